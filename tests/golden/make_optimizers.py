"""Optimizers over 25 steps in float64: optimizers.safetensors, for test_adafactor.cpp and test_adamw.cpp.

    venv/bin/pip install numpy==2.4.6 torch==2.15.0 optax==0.2.8 jax==0.10.2 safetensors
    venv/bin/python make_optimizers.py

AdamW is PyTorch's, in two groups of weight decay. Adafactor is written here from the published algorithm (Shazeer & Stern 2018, algorithms 4 and 5, with the
options of tensor2tensor utils/adafactor.py) and asserted to be optax.adafactor's in float64 to 1e-8: optax makes beta2 in float32. Where the packages differ from the authors:
  - optax decays weights by weight_decay_rate alone, not times the learning rate: it is given their product;
  - optax factors over the two largest dimensions and reduces the larger one first: the same, as mean(R) = mean(C);
  - torch.optim.Adafactor takes max(V, eps1) instead of adding eps1 to g², and decays by t^-0.8 from the same t: not used.
The parameters are a matrix with more columns than rows, one with fewer, and a vector; the gradients' size differs from step to step so that updates are clipped.
"""
import os

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import optax
import torch
from safetensors.numpy import save_file

SHAPES = {"wide": (12, 20), "tall": (33, 5), "vector": (17,)}
STEPS = 25
CASES = {  # lr, parameter_scale, beta1, weight_decay, factored; lr None: relative step
    "plain": (0.01, False, 0.0, 0.0, True),
    "relative": (None, True, 0.0, 0.0, True),
    "momentum": (0.01, False, 0.9, 0.1, True),
    "unfactored": (0.02, True, 0.9, 0.0, False),
}


def as_f32(x):
    return x.astype(np.float32).astype(np.float64)


def adafactor(params, grads, lr, parameter_scale, beta1, decay, factored):
    w = {k: v.copy() for k, v in params.items()}
    state = {k: [0.0, 0.0, 0.0] for k in w}  # R or V, C, m
    for t in range(1, STEPS + 1):
        beta2 = 1 - t ** -0.8
        rho = min(1e-2, 1 / np.sqrt(t)) if lr is None else lr
        for k, s in state.items():
            g = grads[t - 1][k]
            g2 = g * g + 1e-30
            if g.ndim == 2 and factored:
                s[0] = beta2 * s[0] + (1 - beta2) * g2.mean(axis=1)
                s[1] = beta2 * s[1] + (1 - beta2) * g2.mean(axis=0)
                u = g / np.sqrt(np.outer(s[0], s[1]) / s[0].mean())
            else:
                s[0] = beta2 * s[0] + (1 - beta2) * g2
                u = g / np.sqrt(s[0])
            u /= max(1.0, np.sqrt((u * u).mean()))
            alpha = rho * max(1e-3, np.sqrt((w[k] * w[k]).mean())) if parameter_scale else rho
            step = alpha * u
            if beta1:
                s[2] = beta1 * s[2] + (1 - beta1) * step
                step = s[2]
            w[k] = w[k] - step - rho * decay * w[k]
    return w


def optax_adafactor(params, grads, lr, parameter_scale, beta1, decay, factored):
    rate = (lambda count: jnp.minimum(1e-2, 1 / jnp.sqrt(count + 1.0))) if lr is None else lr
    optimizer = optax.adafactor(learning_rate=rate, min_dim_size_to_factor=1, decay_rate=0.8, multiply_by_parameter_scale=parameter_scale, clipping_threshold=1.0,
                                momentum=beta1 or None, dtype_momentum=jnp.float64, weight_decay_rate=decay * lr if decay else None, eps=1e-30, factored=factored)
    w = {k: jnp.asarray(v) for k, v in params.items()}
    state = optimizer.init(w)
    for g in grads:
        updates, state = optimizer.update({k: jnp.asarray(v) for k, v in g.items()}, state, w)
        w = optax.apply_updates(w, updates)
    return {k: np.asarray(v) for k, v in w.items()}


def adamw(params, grads):
    w = {k: torch.tensor(v, requires_grad=True) for k, v in params.items()}
    groups = [{"params": [w["wide"], w["tall"]], "weight_decay": 0.1}, {"params": [w["vector"]], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    for g in grads:
        for k in w:
            w[k].grad = torch.tensor(g[k])
        optimizer.step()
    return {k: v.detach().numpy() for k, v in w.items()}


def main():
    rng = np.random.default_rng(5)
    params = {k: as_f32(rng.normal(size=s) * 0.3) for k, s in SHAPES.items()}
    sizes = 10.0 ** rng.uniform(-3, 1, size=STEPS)
    # Rows and columns of their own size, so that the factors matter.
    grads = [{k: as_f32(size * rng.normal(size=s) * np.exp(rng.normal(size=s[:1] + (1,) * (len(s) - 1))) * np.exp(rng.normal(size=s[-1:]))) for k, s in SHAPES.items()}
             for size in sizes]
    out = {f"param/{k}": v for k, v in params.items()}
    out |= {f"grad/{k}": np.stack([g[k] for g in grads]) for k in SHAPES}
    out |= {f"adamw/{k}": v for k, v in adamw(params, grads).items()}
    for name, options in CASES.items():
        ours, theirs = adafactor(params, grads, *options), optax_adafactor(params, grads, *options)
        for k in SHAPES:
            error = np.linalg.norm(ours[k] - theirs[k]) / np.linalg.norm(theirs[k])
            print(f"adafactor {name} {k}: {error:.1e} from optax; moved by {np.linalg.norm(ours[k] - params[k]):.3f} of {np.linalg.norm(params[k]):.3f}")
            assert error < 1e-8
        out |= {f"{name}/{k}": v for k, v in ours.items()}
    versions = {"numpy": np.__version__, "torch": torch.__version__, "optax": optax.__version__, "jax": jax.__version__}
    save_file({k: np.ascontiguousarray(v, dtype=np.float32) for k, v in out.items()},
              os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers.safetensors"), metadata=versions)
    print(versions)


if __name__ == "__main__":
    main()
