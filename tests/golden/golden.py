"""What make_bloom.py and make_gopher.py share: parameters, batches, ten optimizer steps, the file.

All arithmetic is float64; the files hold float32 (ids: int32). The parameters are rounded to float32 before the first use, so that
a reader of the file starts from the very numbers that the reference was computed with.
"""

import json
import pathlib
import platform

import numpy
import safetensors
import safetensors.torch
import torch
import torch.nn.functional as F

STEPS = 10
OPTIMIZER = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0, "clip": 1.0}
FOLDER = pathlib.Path(__file__).parent


def initial_value(name, shape, generator, std):
    """Norm weights around 1, other vectors around 0 with 0.1, matrices with std: no activation is trivial, no gradient zero."""
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    if "layernorm" in name or name.startswith("ln_f"):
        value = 1 + 0.1 * noise if name.endswith("weight") else 0.1 * noise
    elif len(shape) == 1:
        value = 0.1 * noise
    else:
        value = std * noise
    return value.float().double()


def make_tokens(batch, length, vocab, generator):
    """(B, length) tokens: each sequence counts up by its own stride, with one token in four drawn anew."""
    tokens = torch.empty(batch, length, dtype=torch.int64)
    tokens[:, 0] = torch.randint(vocab, (batch,), generator=generator)
    stride = torch.randint(1, 4, (batch,), generator=generator)
    for t in range(1, length):
        fresh = torch.randint(vocab, (batch,), generator=generator)
        keep = torch.rand(batch, generator=generator) < 0.75
        tokens[:, t] = torch.where(keep, (tokens[:, t - 1] + stride) % vocab, fresh)
    return tokens


def with_untrained(targets, count, generator):
    """The targets with `count` of them replaced by -1: not trained."""
    targets = targets.clone()
    targets.view(-1)[torch.randperm(targets.numel(), generator=generator)[:count]] = -1
    return targets


def mean_loss(logits, targets):
    """Mean cross-entropy over the trained targets."""
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)


def gradients(parameters, logits_of, ids, targets):
    """Logits, loss, gradients and their global norm at `parameters` (name -> leaf tensor)."""
    for p in parameters.values():
        p.grad = None
    logits = logits_of(ids)
    loss = mean_loss(logits, targets)
    loss.backward()
    grads = {name: p.grad.clone() for name, p in parameters.items()}
    norm = torch.sqrt(sum((g * g).sum() for g in grads.values()))
    return logits.detach(), loss.detach(), grads, norm


def train(parameters, logits_of, step_tokens, optimizer_settings):
    """One step per batch of (B, T + 1) tokens at a constant learning rate: the gradient times min(1, clip / (norm + 1e-6)), then AdamW, which decays
    matrices alone (not biases, not norms, not the u and v of relative attention); decay 0 is Adam. Changes the parameters in place;
    returns the losses and the gradient norms before clipping."""
    s = optimizer_settings
    decayed = [p for name, p in parameters.items() if p.ndim == 2 and name.endswith(".weight")]
    others = [p for name, p in parameters.items() if not (p.ndim == 2 and name.endswith(".weight"))]
    groups = [{"params": decayed, "weight_decay": s["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=s["lr"], betas=(s["beta1"], s["beta2"]), eps=s["eps"], foreach=False)
    losses, norms = [], []
    for tokens in step_tokens:
        optimizer.zero_grad()
        loss = mean_loss(logits_of(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(parameters.values()), s["clip"], foreach=False)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms


def reference(parameters, logits_of, config, generator, batch, length, optimizer_settings):
    """Every tensor of a golden file. `parameters` end as after the ten steps, whose sequences have the length of the context."""
    tokens = make_tokens(batch, length + 1, config["vocab"], generator)
    ids, targets = tokens[:, :-1], with_untrained(tokens[:, 1:], 2, generator)
    step_tokens = torch.stack([make_tokens(batch, config["context"] + 1, config["vocab"], generator) for _ in range(STEPS)])

    tensors = {"param/" + name: p.detach().clone() for name, p in parameters.items()}
    logits, loss, grads, norm = gradients(parameters, logits_of, ids, targets)
    losses, norms = train(parameters, logits_of, step_tokens, optimizer_settings)
    tensors |= {"ids": ids, "targets": targets, "logits": logits, "loss": loss.reshape(1), "grad_norm": norm.reshape(1)}
    tensors |= {"grad/" + name: g for name, g in grads.items()}
    tensors |= {"step_tokens": step_tokens, "step_losses": torch.tensor(losses, dtype=torch.float64),
                "step_grad_norms": torch.tensor(norms, dtype=torch.float64)}
    return tensors | {"final/" + name: p.detach().clone() for name, p in parameters.items()}


def print_float32_error(make_logits_of, tensors, optimizer_settings):
    """The same ten steps in float32: how far rounding alone carries a correct float32 program from the reference."""
    parameters = {n[6:]: t.float().requires_grad_() for n, t in tensors.items() if n.startswith("param/")}
    losses, _ = train(parameters, make_logits_of(parameters), tensors["step_tokens"], optimizer_settings)
    loss_error = max(abs(a - b) / b for a, b in zip(losses, tensors["step_losses"].tolist()))
    errors = {n: normalised_error(p.detach().double(), tensors["final/" + n]) for n, p in parameters.items()}
    worst = sorted(errors, key=errors.get, reverse=True)[:5]
    print(f"  ten steps in float32: losses within {loss_error:.1e}; final parameters, worst:",
          ", ".join(f"{n} {errors[n]:.1e}" for n in worst))


def normalised_error(a, b):
    return ((a - b).norm() / b.norm()).item()


def versions():
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__,
            "safetensors": safetensors.__version__}


def with_sorted_metadata(file):
    """safetensors writes the metadata in a random order; sorted, the same values make the same bytes."""
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + file[8 + length :]


def config_toml(model, optimizer, batch):
    """The config file of the run, as Clover reads it."""
    def value(x):
        return json.dumps(x) if isinstance(x, (str, bool)) else repr(x)
    name = "adamw" if optimizer["weight_decay"] else "adam"
    sections = {"model": model, "train": {"steps": STEPS, "micro_batch": batch},
                "optimizer": {"name": name, "schedule": "constant", "warmup": 0} | optimizer, "precision": {"recipe": "fp32"}}
    return "".join(f"[{s}]\n" + "".join(f"{k} = {value(x)}\n" for k, x in keys.items()) for s, keys in sections.items())


def write(name, tensors, config, versions, with_final):
    """Floats as F32, ids as I32; in the metadata the config, and the versions of what computed it."""
    as_stored = {n: (t.float() if t.is_floating_point() else t.int()).contiguous() for n, t in tensors.items()
                 if with_final or not n.startswith("final/")}
    path = FOLDER / name
    path.write_bytes(with_sorted_metadata(safetensors.torch.save(as_stored, metadata={"config": config} | versions)))
    losses = " ".join(f"{x:.4f}" for x in tensors["step_losses"].tolist())
    norms = " ".join(f"{x:.3f}" for x in tensors["step_grad_norms"].tolist())
    print(f"{name}: {path.stat().st_size} bytes\n  loss {tensors['loss'].item():.6f}  grad_norm {tensors['grad_norm'].item():.6f}")
    print(f"  step losses {losses}\n  step norms  {norms}")
