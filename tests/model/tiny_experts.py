"""Tiny mixture-of-experts models: their configs, and the shapes of their layers."""

from __future__ import annotations

__all__ = ("EXPERT_CONFIGS", "add_experts", "fused_experts")

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]

EXPERT_CONFIGS: Mapping[str, dict[str, Any]] = {
    # A dense layer between two mixture-of-experts layers.
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "moe_intermediate_size": 96,
        "num_experts": 9,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [1],
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "rope_theta": 1000000.0,
    },
    # A window shorter than the reference's prompt.
    "mixtral": {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "hidden_size": 96,
        "intermediate_size": 64,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "sliding_window": 24,
        "tie_word_embeddings": False,
        "rope_theta": 1000000.0,
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "architectures": ["Qwen2MoeForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 96,
        "num_experts": 7,
        "num_experts_per_tok": 3,
        "norm_topk_prob": False,
        "decoder_sparse_step": 2,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "rope_theta": 1000000.0,
    },
    "olmoe": {
        "model_type": "olmoe",
        "architectures": ["OlmoeForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_experts": 12,
        "num_experts_per_tok": 4,
        "norm_topk_prob": False,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "rope_theta": 10000.0,
    },
}
# Names of the layer, and of the gate, up and down matrices of an expert.
_QWEN = ("mlp", "gate_proj", "up_proj", "down_proj")
_NAMES = {"mixtral": ("block_sparse_moe", "w1", "w3", "w2")}
_EXPERT = re.compile(r"(.+\.(?:mlp|block_sparse_moe|feed_forward))\.experts\.\d+\.(\w+)\.weight")
_FUSED = {
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "down_proj": "down_proj",
    "w1": "gate_up_proj",
    "w3": "gate_up_proj",
    "w2": "down_proj",
}


def add_experts(shapes: dict[str, tuple[int, ...]], config: Mapping[str, Any], layer: int) -> None:
    """Replace the MLP of a layer by experts, unless the layer is dense."""
    dense = "num_experts_per_tok" not in config or layer in config.get("mlp_only_layers", [])
    dense = dense or layer < config.get("num_dense_layers", 0)
    if dense or (layer + 1) % config.get("decoder_sparse_step", 1):
        return

    at = f"model.layers.{layer}"
    hidden, count = (
        config["hidden_size"],
        config.get("num_experts", config.get("num_local_experts")),
    )
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    block, gate, up, down = _NAMES.get(config["model_type"], _QWEN)
    for part in ("gate_proj", "up_proj", "down_proj"):
        del shapes[f"{at}.mlp.{part}.weight"]
    shapes[f"{at}.{block}.gate.weight"] = (count, hidden)
    for expert in range(count):
        shapes |= {
            f"{at}.{block}.experts.{expert}.{gate}.weight": (inner, hidden),
            f"{at}.{block}.experts.{expert}.{up}.weight": (inner, hidden),
            f"{at}.{block}.experts.{expert}.{down}.weight": (hidden, inner),
        }
    shared = config.get("shared_expert_intermediate_size")
    if shared:
        shapes |= {
            f"{at}.mlp.shared_expert.gate_proj.weight": (shared, hidden),
            f"{at}.mlp.shared_expert.up_proj.weight": (shared, hidden),
            f"{at}.mlp.shared_expert.down_proj.weight": (hidden, shared),
            f"{at}.mlp.shared_expert_gate.weight": (1, hidden),
        }
    if config["model_type"] == "olmoe":
        for part in ("q", "k"):
            rows = shapes[f"{at}.self_attn.{part}_proj.weight"][:1]
            shapes[f"{at}.self_attn.{part}_norm.weight"] = rows


def fused_experts(weights: Weights) -> Weights:
    """Return the weights in the format of newer checkpoints, which fuse the experts of a layer."""
    fused: dict[str, list[NDArray[np.float32]]] = {}
    result: Weights = {}
    counts: dict[str, int] = {}
    for name, value in weights.items():
        match = _EXPERT.fullmatch(name)
        if match is None:
            result[name.replace(".block_sparse_moe.", ".mlp.")] = value
            continue

        block, part = match[1].replace(".block_sparse_moe", ".mlp"), match[2]
        fused.setdefault(f"{block}.experts.{_FUSED[part]}", []).append(value)
        counts[block] = counts.get(block, 0) + (_FUSED[part] == "down_proj")
    for name, parts in fused.items():
        experts = counts[name.split(".experts.")[0]]
        rows = np.concatenate(parts)
        result[name] = rows.reshape(experts, -1, rows.shape[1])
    return result
