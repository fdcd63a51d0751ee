"""Writes bloom-1.safetensors and bloom-2.safetensors: two tiny BLOOM models computed by Hugging Face transformers in float64.

Beside the Hugging Face model stands a plain PyTorch BLOOM, written from the formulas; both must agree to 1e-9. It pins down
  - ALiBi as slope * (j - i) (Hugging Face adds slope * j, which softmax does not tell apart),
  - the rows of query_key_value as [head][q, k, v][head_dim],
  - the tanh form of GELU and its constants,
  - LayerNorm after the embedding, and a logit matrix that is the embedding.

Usage: python make_bloom.py        (versions: README.md)
"""

import contextlib
import math

import torch
import torch.nn.functional as F
import transformers
from transformers import BloomConfig, BloomForCausalLM

import golden

EPSILON = 1e-5


@contextlib.contextmanager
def softmax_in_input_dtype():
    """BloomAttention asks for a float32 softmax whatever the dtype of the model; a float64 reference needs a float64 softmax."""
    softmax = F.softmax
    F.softmax = lambda x, dim, dtype=None: softmax(x, dim=dim)
    try:
        yield
    finally:
        F.softmax = softmax


def alibi_slopes(heads):
    """2^(-8 i / n) for a power of two n; else those of the next lower power, then every second one of the next higher."""
    def power_of_two(n):
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]
    lower = 2 ** math.floor(math.log2(heads))
    slopes = power_of_two(lower) + power_of_two(2 * lower)[0::2][: heads - lower]
    return torch.tensor(slopes, dtype=torch.float64)


def gelu(x, exact=False):
    """tanh form, with Megatron's and Hugging Face's decimals of sqrt(2 / pi), or with the number itself."""
    return 0.5 * x * (1 + torch.tanh((math.sqrt(2 / math.pi) if exact else 0.79788456) * x * (1 + 0.044715 * x * x)))


def plain_logits(p, config, ids, exact_gelu=False):
    """BLOOM in plain PyTorch: the parameters by name, ids (B, T) -> logits (B, T, V), in the dtype of the parameters."""
    heads, hidden = config["heads"], config["hidden"]
    head_size = hidden // heads

    def norm(x, name):
        return F.layer_norm(x, (hidden,), p[name + ".weight"], p[name + ".bias"], EPSILON)

    def linear(x, name):
        return x @ p[name + ".weight"].T + p[name + ".bias"]

    batch, length = ids.shape
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    x = norm(p["word_embeddings.weight"][ids], "word_embeddings_layernorm")
    bias = (alibi_slopes(heads)[:, None, None] * (j - i)).masked_fill(j > i, -math.inf).to(x.dtype)
    for layer in range(config["layers"]):
        h = f"h.{layer}."
        qkv = linear(norm(x, h + "input_layernorm"), h + "self_attention.query_key_value")
        q, k, v = qkv.view(batch, length, heads, 3, head_size).permute(3, 0, 2, 1, 4)
        attention = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(head_size) + bias, dim=-1) @ v
        x = x + linear(attention.transpose(1, 2).reshape(batch, length, hidden), h + "self_attention.dense")
        inner = linear(norm(x, h + "post_attention_layernorm"), h + "mlp.dense_h_to_4h")
        x = x + linear(gelu(inner, exact_gelu), h + "mlp.dense_4h_to_h")
    return norm(x, "ln_f") @ p["word_embeddings.weight"].T


def hugging_face_model(config, generator, std):
    """BloomForCausalLM in float64 with our own random parameters, and these by name, without the prefix `transformer.`."""
    model = BloomForCausalLM(BloomConfig(
        hidden_size=config["hidden"], n_layer=config["layers"], n_head=config["heads"], vocab_size=config["vocab"],
        layer_norm_epsilon=EPSILON, hidden_dropout=0.0, attention_dropout=0.0, tie_word_embeddings=True, use_cache=False,
        attn_implementation="eager")).double().eval()
    assert model.lm_head.weight is model.transformer.word_embeddings.weight
    parameters = {name.removeprefix("transformer."): p for name, p in model.named_parameters()}
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(golden.initial_value(name, p.shape, generator, std))
    return model, parameters


def check_conventions(model, parameters, config, tensors):
    """The Hugging Face model against the plain one: logits and gradients; prints what the decimals of GELU do, and float32."""
    ids, targets = tensors["ids"], tensors["targets"]
    copies = {n: p.detach().clone().requires_grad_() for n, p in parameters.items()}
    for exact in (False, True):
        logits, loss, grads, _ = golden.gradients(copies, lambda ids: plain_logits(copies, config, ids, exact), ids, targets)
        logit_error = (logits - tensors["logits"]).abs().max().item()
        grad_error = max(golden.normalised_error(g, tensors["grad/" + n]) for n, g in grads.items())
        print(f"  plain PyTorch, gelu constants {'exact' if exact else 'as Hugging Face'}: logits within {logit_error:.1e}, "
              f"loss within {abs(loss - tensors['loss']).item():.1e}, gradients within {grad_error:.1e} (normalised)")
        assert exact or (logit_error < 1e-9 and grad_error < 1e-10)
        assert logit_error < 1e-7 and grad_error < 1e-7
    with torch.no_grad():
        as_shipped = model.float()(ids).logits.double()
    model.double()
    shipped_error = golden.normalised_error(as_shipped, tensors["logits"])
    print(f"  Hugging Face in float32, unpatched: logits within {shipped_error:.1e} (normalised)")


def greedy(logits_of, prompt, tokens):
    """The greedy continuation, and the smallest lead of the best token over the second."""
    ids, gap = prompt.clone(), math.inf
    for _ in range(tokens):
        with torch.no_grad():
            best = logits_of(ids[None])[0, -1].topk(2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        ids = torch.cat([ids, best.indices[:1]])
    return ids[len(prompt):], gap


def make(name, config, seed, std, batch, length, with_final, prompt=None):
    generator = torch.Generator().manual_seed(seed)
    config = {"family": "bloom"} | config | {
        "head_size": config["hidden"] // config["heads"], "ffn": 4 * config["hidden"], "context": length, "norm": "layernorm",
        "position": "alibi", "embedding_norm": True, "bias": "all", "tie_embeddings": True, "norm_eps": EPSILON}
    optimizer = golden.OPTIMIZER | {"weight_decay": 0.1}
    model, parameters = hugging_face_model(config, generator, std)
    generation = {}
    with softmax_in_input_dtype():
        if prompt is not None:
            continuation, gap = greedy(lambda ids: model(ids).logits, torch.tensor(prompt), tokens=12)
            assert gap > 1e-3, gap
            print(f"greedy: {prompt} -> {continuation.tolist()}, least lead {gap:.4f}")
            generation = {"prompt": torch.tensor(prompt), "greedy": continuation}
        tensors = golden.reference(parameters, lambda ids: model(ids).logits, config, generator, batch, length, optimizer)
    versions = golden.versions() | {"transformers": transformers.__version__}
    golden.write(name, tensors | generation, golden.config_toml(config, optimizer, batch), versions, with_final)
    with torch.no_grad():
        for n, p in parameters.items():
            p.copy_(tensors["param/" + n])
    check_conventions(model, parameters, config, tensors)
    golden.print_float32_error(lambda p: lambda ids: plain_logits(p, config, ids), tensors, optimizer)


if __name__ == "__main__":
    make("bloom-1.safetensors", {"layers": 2, "hidden": 24, "heads": 3, "vocab": 61}, seed=21, std=0.3, batch=2, length=13,
         with_final=True, prompt=[60, 2, 33, 21])
    make("bloom-2.safetensors", {"layers": 3, "hidden": 32, "heads": 2, "vocab": 40}, seed=2, std=0.2, batch=3, length=8,
         with_final=False)
