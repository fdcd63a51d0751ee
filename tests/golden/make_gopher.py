"""Writes gopher-1.safetensors, gopher-2.safetensors and gopher-3.safetensors: tiny Gopher models in float64.

There is no public Gopher to ask, so this is an independent implementation of its formulas in plain PyTorch, with autograd:
  - pre-norm decoder, RMSNorm y = x / sqrt(mean(x^2) + eps) * g (Zhang & Sennrich 2019), final norm, tied embedding,
    GELU in the tanh form;
  - Transformer-XL attention (Dai et al. 2019, section 3.3), R_d = [sin(d w); cos(d w)], w_c = 10000^(-2c/C), r_d = W_kR R_d,
    and in each head
        S_ij = ((q_i + u) . k_j + (q_i + v) . r_(i-j)) / sqrt(D),   j <= i,
    with the position term computed twice: by the pad-and-reshape shift of appendix B, and by its index i - j; both must agree.

    gopher-1  the model as trained: RMSNorm, relative positions, biases on the attention output and the feed-forward, tied
    gopher-2  the other switches:   LayerNorm, learned positions, biases everywhere, untied logits; AdamW
    gopher-3  and the rest:         RMSNorm, sinusoidal positions added to the embedding, no bias, tied; feed-forward not 4 C

Usage: python make_gopher.py        (versions: README.md)
"""

import math

import torch

import golden

EPSILON = 1e-5


def parameter_shapes(config):
    """Name -> shape. Matrices are (out, in); the rows of query_key_value are [head][q, k, v][D]."""
    hidden, heads, head_size, ffn = (config[k] for k in ("hidden", "heads", "head_size", "ffn"))
    attention_width = heads * head_size
    shapes = {"word_embeddings.weight": (config["vocab"], hidden)}

    def linear(name, outputs, inputs, bias):
        shapes[name + ".weight"] = (outputs, inputs)
        if bias:
            shapes[name + ".bias"] = (outputs,)

    def norm(name):
        shapes[name + ".weight"] = (hidden,)
        if config["norm"] == "layernorm":
            shapes[name + ".bias"] = (hidden,)

    if config["position"] == "learned":
        shapes["position_embeddings.weight"] = (config["context"], hidden)
    for layer in range(config["layers"]):
        h = f"h.{layer}."
        norm(h + "input_layernorm")
        linear(h + "self_attention.query_key_value", 3 * attention_width, hidden, config["bias"] == "all")
        if config["position"] == "relative":
            linear(h + "self_attention.relative", attention_width, hidden, False)
            shapes[h + "self_attention.content_bias"] = (heads, head_size)
            shapes[h + "self_attention.position_bias"] = (heads, head_size)
        linear(h + "self_attention.dense", hidden, attention_width, config["bias"] != "none")
        norm(h + "post_attention_layernorm")
        linear(h + "mlp.dense_h_to_4h", ffn, hidden, config["bias"] != "none")
        linear(h + "mlp.dense_4h_to_h", hidden, ffn, config["bias"] != "none")
    norm("ln_f")
    if not config["tie_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab"], hidden)
    return shapes


def sinusoid(length, hidden):
    """R (T, C): row d is [sin(d w); cos(d w)], the halves one after the other."""
    frequency = 10000.0 ** (-2 * torch.arange(hidden // 2, dtype=torch.float64) / hidden)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def shift_by_reshape(x):
    """(..., T, T) whose column c belongs to distance T-1-c -> entry (i, j) belongs to distance i - j, for j <= i:
    pad a column of zeros on the left, read the rows one entry longer, drop the first."""
    *batch, length, _ = x.shape
    padded = torch.cat([x.new_zeros(*batch, length, 1), x], dim=-1)
    return padded.reshape(*batch, length + 1, length)[..., 1:, :].reshape(*batch, length, length)


def position_scores(q_plus_v, r):
    """(q_i + v) . r_(i-j) for j <= i, and 0 above the diagonal; q_plus_v (B, H, T, D), r (T, H, D) by ascending distance."""
    length = r.shape[0]
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    by_distance = torch.einsum("bhid,nhd->bhin", q_plus_v, r)
    by_index = by_distance[:, :, i, (i - j).clamp(min=0)].masked_fill(j > i, 0)
    by_shift = shift_by_reshape(torch.einsum("bhid,nhd->bhin", q_plus_v, r.flip(0))).masked_fill(j > i, 0)
    tolerance = 1e-12 if r.dtype == torch.float64 else 1e-4
    assert torch.allclose(by_index, by_shift, rtol=tolerance, atol=tolerance)
    return by_index


def norm(x, p, name, config):
    if config["norm"] == "rmsnorm":
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPSILON) * p[name + ".weight"]
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + EPSILON) * p[name + ".weight"] + p[name + ".bias"]


def linear(x, p, name):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(x, p, name, config):
    batch, length, _ = x.shape
    heads, head_size = config["heads"], config["head_size"]
    qkv = linear(x, p, name + ".query_key_value").view(batch, length, heads, 3, head_size)
    q, k, v = qkv.permute(3, 0, 2, 1, 4)
    if config["position"] == "relative":
        u_bias, v_bias = p[name + ".content_bias"][:, None, :], p[name + ".position_bias"][:, None, :]
        r = linear(sinusoid(length, config["hidden"]).to(x.dtype), p, name + ".relative").view(length, heads, head_size)
        scores = (q + u_bias) @ k.transpose(-1, -2) + position_scores(q + v_bias, r)
    else:
        scores = q @ k.transpose(-1, -2)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    probabilities = torch.softmax((scores / math.sqrt(head_size)).masked_fill(future, -math.inf), dim=-1)
    return linear((probabilities @ v).transpose(1, 2).reshape(batch, length, heads * head_size), p, name + ".dense")


def logits_of(p, config, ids):
    """ids (B, T) -> logits (B, T, V), in the dtype of the parameters."""
    length = ids.shape[1]
    x = p["word_embeddings.weight"][ids]
    if config["position"] == "learned":
        x = x + p["position_embeddings.weight"][:length]
    if config["position"] == "sinusoidal":
        x = x + sinusoid(length, config["hidden"]).to(x.dtype)
    for layer in range(config["layers"]):
        h = f"h.{layer}."
        x = x + attention(norm(x, p, h + "input_layernorm", config), p, h + "self_attention", config)
        inner = gelu(linear(norm(x, p, h + "post_attention_layernorm", config), p, h + "mlp.dense_h_to_4h"))
        x = x + linear(inner, p, h + "mlp.dense_4h_to_h")
    head = "word_embeddings.weight" if config["tie_embeddings"] else "lm_head.weight"
    return norm(x, p, "ln_f", config) @ p[head].T


def check_gradients(parameters, config, tensors):
    """Directional derivative of the loss by central differences, along a random direction of every parameter in turn."""
    generator = torch.Generator().manual_seed(0)
    step = 1e-5
    for name, p in parameters.items():
        direction = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        losses = [golden.mean_loss(logits_of(parameters | {name: p.detach() + sign * step * direction}, config, tensors["ids"]),
                                   tensors["targets"]).item() for sign in (1, -1)]
        measured = (losses[0] - losses[1]) / (2 * step)
        expected = (direction * tensors["grad/" + name]).sum().item()
        assert abs(measured - expected) < 1e-7 * (1 + abs(expected)), (name, measured, expected)


def make(name, config, seed, std, batch, length, optimizer, with_final):
    generator = torch.Generator().manual_seed(seed)
    config = {"family": "gopher"} | config | {"head_size": config["hidden"] // config["heads"], "embedding_norm": False,
                                              "norm_eps": EPSILON}
    optimizer = golden.OPTIMIZER | optimizer
    parameters = {n: golden.initial_value(n, shape, generator, std).requires_grad_()
                  for n, shape in parameter_shapes(config).items()}
    tensors = golden.reference(parameters, lambda ids: logits_of(parameters, config, ids), config, generator, batch, length,
                               optimizer)
    golden.write(name, tensors, golden.config_toml(config, optimizer, batch), golden.versions(), with_final)
    check_gradients({n: tensors["param/" + n] for n in parameters}, config, tensors)
    golden.print_float32_error(lambda p: lambda ids: logits_of(p, config, ids), tensors, optimizer)


if __name__ == "__main__":
    # The last frequencies of R are so low that their columns of the relative matrix get almost no gradient; with eps 1e-8 Adam
    # would blow up what rounding makes of it. 1e-4 keeps the step a smooth function of the gradient, and shows whether eps is in
    # its place.
    make("gopher-1.safetensors", {"layers": 2, "hidden": 24, "heads": 3, "ffn": 96, "vocab": 50, "context": 13, "norm": "rmsnorm",
                                  "position": "relative", "bias": "output", "tie_embeddings": True},
         seed=3, std=0.25, batch=2, length=13, optimizer={"eps": 1e-4}, with_final=True)
    make("gopher-2.safetensors", {"layers": 2, "hidden": 32, "heads": 4, "ffn": 128, "vocab": 33, "context": 12,
                                  "norm": "layernorm", "position": "learned", "bias": "all", "tie_embeddings": False},
         seed=4, std=0.2, batch=1, length=9, optimizer={"weight_decay": 0.1}, with_final=False)
    # A clip in the midst of the norms: some steps are clipped, others not.
    make("gopher-3.safetensors", {"layers": 2, "hidden": 24, "heads": 2, "ffn": 60, "vocab": 33, "context": 10, "norm": "rmsnorm",
                                  "position": "sinusoidal", "bias": "none", "tie_embeddings": True},
         seed=5, std=0.2, batch=2, length=10, optimizer={"clip": 1.5}, with_final=True)
