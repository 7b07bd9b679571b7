"""The encoder of Jina Embeddings 2 in torch, which transformers has no class for.

It follows the paper of the model (https://arxiv.org/abs/2310.19923): BERT whose attention scores
are lowered by a slope of each head times the distance, and whose feed-forward layer is GELU of one
half of its outputs times the other half. The models for code and languages beside English have
norms of queries and keys, one more after attention, and the halves in the other order.
"""

from __future__ import annotations

__all__ = ("jina_bert_states",)

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Tensors = dict[str, torch.Tensor]


def jina_bert_states(
    config: dict[str, Any], weights: Tensors, ids: Sequence[int], types: Sequence[int]
) -> torch.Tensor:
    """Return the last hidden states of one input, `[tokens, hidden]`, in float64.

    Args:
        weights: By the names of the published checkpoints, without the prefix `bert.`.
    """
    import torch

    w = {name: value.double() for name, value in weights.items()}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        size = (config["hidden_size"],)
        weight, bias = w[f"{name}.weight"], w[f"{name}.bias"]
        return torch.nn.functional.layer_norm(x, size, weight, bias, config["layer_norm_eps"])

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    heads = config["num_attention_heads"]
    places = torch.arange(len(ids))
    distances = (places[:, None] - places[None, :]).abs()
    bias = -torch.tensor(_slopes(heads), dtype=torch.float64)[:, None, None] * distances
    x = w["embeddings.word_embeddings.weight"][list(ids)]
    kinds = w["embeddings.token_type_embeddings.weight"][list(types)]
    x = norm(x + kinds, "embeddings.LayerNorm")
    for index in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{index}."
        parts = [linear(x, f"{layer}attention.self.{kind}") for kind in ("query", "key", "value")]
        has_more_norms = f"{layer}layer_norm_1.weight" in w
        if has_more_norms:
            for part, kind in enumerate("qk"):
                parts[part] = norm(parts[part], f"{layer}attention.self.layer_norm_{kind}")
        query, key, value = (part.unflatten(1, (heads, -1)).transpose(0, 1) for part in parts)
        scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1]) + bias
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).flatten(1)
        mixed = linear(mixed, f"{layer}attention.output.dense")
        mixed = norm(x + mixed, f"{layer}attention.output.LayerNorm")
        if has_more_norms:
            x = norm(x + mixed, f"{layer}layer_norm_1")
            up, gate = linear(x, f"{layer}mlp.up_gated_layer").chunk(2, dim=-1)
            inner = linear(torch.nn.functional.gelu(gate) * up, f"{layer}mlp.down_layer")
            x = norm(x + inner, f"{layer}layer_norm_2")
            continue

        x = mixed
        gate, up = linear(x, f"{layer}mlp.gated_layers").chunk(2, dim=-1)
        inner = linear(torch.nn.functional.gelu(gate) * up, f"{layer}mlp.wo")
        x = norm(x + inner, f"{layer}mlp.layernorm")
    return x


def _slopes(heads: int) -> list[float]:
    """Return the slopes of ALiBi's authors, by recursion for numbers that are no powers of 2."""
    if math.log2(heads).is_integer():
        ratio = 2 ** (-8 / heads)
        return [ratio**power for power in range(1, heads + 1)]

    closest = 2 ** math.floor(math.log2(heads))
    return [*_slopes(closest), *_slopes(2 * closest)[0::2][: heads - closest]]
