"""A compact Llama for training: weights in a dict, and pure functions over them."""

from __future__ import annotations

__all__ = (
    "DRAFT_SHAPE",
    "SHAPE",
    "Shape",
    "Weights",
    "fake_quantize",
    "forward",
    "initial_weights",
    "prepare",
    "rotary_tables",
)

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Weights = dict[str, Tensor]

_GROUP_SIZE = 32
_MAX_LEVEL = 7


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Llama."""

    hidden: int = 256
    layers: int = 5
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    intermediate: int = 704
    vocab: int = 4096
    context: int = 2048
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0


SHAPE = Shape()
# A draft model is only useful if its step is cheap: one layer.
DRAFT_SHAPE = Shape(hidden=128, layers=1, heads=4, kv_heads=2, intermediate=352)


@dataclass(frozen=True, slots=True)
class PreparedLayer:
    """The weights of one layer, fused and in compute precision."""

    input_norm: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model with fused matrices in compute precision."""

    shape: Shape
    embedding: Tensor
    layers: tuple[PreparedLayer, ...]
    norm: Tensor


def initial_weights(shape: Shape, seed: int) -> Weights:
    """Return random weights under Hugging Face's names."""
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int, columns: int, std: float) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * std

    std = shape.hidden**-0.5
    weights = {"model.embed_tokens.weight": draw(shape.vocab, shape.hidden, 0.02)}
    for index in range(shape.layers):
        layer = f"model.layers.{index}."
        kv_rows = shape.kv_heads * shape.head_dim
        weights[layer + "input_layernorm.weight"] = torch.ones(shape.hidden)
        weights[layer + "self_attn.q_proj.weight"] = draw(
            shape.heads * shape.head_dim, shape.hidden, std
        )
        weights[layer + "self_attn.k_proj.weight"] = draw(kv_rows, shape.hidden, std)
        weights[layer + "self_attn.v_proj.weight"] = draw(kv_rows, shape.hidden, std)
        weights[layer + "self_attn.o_proj.weight"] = draw(shape.hidden, shape.hidden, std * 0.1)
        weights[layer + "post_attention_layernorm.weight"] = torch.ones(shape.hidden)
        weights[layer + "mlp.gate_proj.weight"] = draw(shape.intermediate, shape.hidden, std)
        weights[layer + "mlp.up_proj.weight"] = draw(shape.intermediate, shape.hidden, std)
        weights[layer + "mlp.down_proj.weight"] = draw(shape.hidden, shape.intermediate, std * 0.1)
    weights["model.norm.weight"] = torch.ones(shape.hidden)
    return weights


def fake_quantize(weight: Tensor) -> Tensor:
    """Return `weight` rounded to q4f16_1, with a straight-through gradient."""
    groups = weight.detach().unflatten(-1, (-1, _GROUP_SIZE))
    scale = (groups.abs().amax(-1, keepdim=True) / _MAX_LEVEL).half().float()
    levels = torch.round(groups / scale.clamp(min=1e-12) + _MAX_LEVEL).clamp(0, 2 * _MAX_LEVEL)
    rounded = ((levels - _MAX_LEVEL) * scale).flatten(-2)
    return weight + (rounded - weight.detach())


def prepare(weights: Weights, shape: Shape, *, quantized: bool, dtype: torch.dtype) -> Prepared:
    """Return the model with fused matrices in `dtype`, rounded to q4f16_1 first if `quantized`."""

    def matrix(*names: str) -> Tensor:
        parts = [weights[name] for name in names]
        fused = parts[0] if len(parts) == 1 else torch.cat(parts)
        return (fake_quantize(fused) if quantized else fused).to(dtype)

    layers = []
    for index in range(shape.layers):
        layer = f"model.layers.{index}."
        attention, mlp = layer + "self_attn.", layer + "mlp."
        layers.append(
            PreparedLayer(
                weights[layer + "input_layernorm.weight"].to(dtype),
                matrix(*(f"{attention}{part}_proj.weight" for part in "qkv")),
                matrix(attention + "o_proj.weight"),
                weights[layer + "post_attention_layernorm.weight"].to(dtype),
                matrix(mlp + "gate_proj.weight", mlp + "up_proj.weight"),
                matrix(mlp + "down_proj.weight"),
            )
        )
    return Prepared(
        shape,
        matrix("model.embed_tokens.weight"),
        tuple(layers),
        weights["model.norm.weight"].to(dtype),
    )


def rotary_tables(shape: Shape, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine, both [length, head_dim / 2], with the type and device of `like`."""
    steps = torch.arange(0, shape.head_dim, 2, device=like.device).float()
    inverse = shape.rope_theta ** (-steps / shape.head_dim)
    angles = torch.arange(length, device=like.device).float()[:, None] * inverse
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Apply rotary positions to `x` [..., head_dim], in the rotate-half layout."""
    low, high = x.chunk(2, -1)
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1)


def forward(model: Prepared, token_ids: Tensor, groups: tuple[tuple[int, int], ...]) -> Tensor:
    """Return the final hidden states [tokens, hidden].

    `token_ids` is flat: for each `(rows, length)` of `groups`, `rows` rows padded to `length`.
    Rows do not attend to each other, and short rows need no long attention.
    """
    shape = model.shape
    x = functional.embedding(token_ids, model.embedding)
    order = torch.arange(max(length for _, length in groups), device=x.device)
    positions = torch.cat([order[:length].repeat(rows) for rows, length in groups])
    tables = rotary_tables(shape, len(order), x)
    cosine, sine = (table[positions][:, None] for table in tables)
    for layer in model.layers:
        normed = functional.rms_norm(x, (shape.hidden,), layer.input_norm, shape.norm_eps)
        heads = functional.linear(normed, layer.qkv).unflatten(-1, (-1, shape.head_dim))
        queries, keys, values = heads.split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
        queries, keys = rotate(queries, cosine, sine), rotate(keys, cosine, sine)
        x = x + functional.linear(_attend(queries, keys, values, groups), layer.out)
        normed = functional.rms_norm(x, (shape.hidden,), layer.mlp_norm, shape.norm_eps)
        gate, up = functional.linear(normed, layer.gate_up).chunk(2, -1)
        x = x + functional.linear(functional.silu(gate) * up, layer.down)
    return functional.rms_norm(x, (shape.hidden,), model.norm, shape.norm_eps)


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, groups: tuple[tuple[int, int], ...]
) -> Tensor:
    """Return causal attention within each row; all tensors are [tokens, heads, head_dim]."""
    mixed = []
    start = 0
    for rows, length in groups:
        end = start + rows * length
        parts = (x[start:end].unflatten(0, (rows, length)) for x in (queries, keys, values))
        q, k, v = (part.transpose(1, 2) for part in parts)
        rows_mixed = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )
        mixed.append(rows_mixed.transpose(1, 2).reshape(rows * length, -1))
        start = end
    return torch.cat(mixed)
