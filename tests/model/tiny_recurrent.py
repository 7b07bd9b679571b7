"""Tiny models with recurrent layers: their configs, and the shapes of their layers."""

from __future__ import annotations

__all__ = ("CALM", "CONFIGS", "FLOAT32_MATRICES", "adapt_recurrent", "calm")

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": None,
}
_QWEN3_5: dict[str, Any] = _SIZES | {
    "head_dim": 32,
    "num_hidden_layers": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
    },
}
_QWEN3_5_MOE: dict[str, Any] = _QWEN3_5 | {
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "full_attention_interval": 2,
    "num_hidden_layers": 3,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 96,
    "tie_word_embeddings": False,
}
CONFIGS: Mapping[str, dict[str, Any]] = {
    "lfm2": _SIZES
    | {
        "model_type": "lfm2",
        "architectures": ["Lfm2ForCausalLM"],
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"],
        "conv_L_cache": 3,
        "conv_bias": True,
        "norm_eps": 1e-5,
        "block_auto_adjust_ff_dim": False,
        "tie_word_embeddings": True,
        "rope_theta": 1000000.0,
    },
    "lfm2_moe": _SIZES
    | {
        "model_type": "lfm2_moe",
        "architectures": ["Lfm2MoeForCausalLM"],
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
        "conv_L_cache": 3,
        "conv_bias": False,
        "norm_eps": 1e-5,
        "num_dense_layers": 1,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "use_expert_bias": True,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "tie_word_embeddings": False,
        "rope_theta": 1000000.0,
    },
    "qwen3_5_text": _QWEN3_5
    | {
        "model_type": "qwen3_5_text",
        "architectures": ["Qwen3_5ForCausalLM"],
        "tie_word_embeddings": False,
    },
    "qwen3_5_moe_text": _QWEN3_5_MOE
    | {"model_type": "qwen3_5_moe_text", "architectures": ["Qwen3_5MoeForCausalLM"]},
    "qwen3_next": _QWEN3_5_MOE
    | {
        "model_type": "qwen3_next",
        "architectures": ["Qwen3NextForCausalLM"],
        "linear_value_head_dim": 24,
        "norm_topk_prob": True,
        "rope_parameters": None,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
    },
}
#: Ends of the names of matrices that are float32 in every quantization.
FLOAT32_MATRICES = ("in_proj_a.weight", "in_proj_b.weight", "in_proj_ba.weight")

#: Ends of the names of weights for which `calm` chooses the values.
CALM = ("A_log", "conv1d.weight", "expert_bias", "linear_attn.norm.weight")

_LFM2_NAMES = {
    "self_attn.o_proj": "self_attn.out_proj",
    ".mlp.": ".feed_forward.",
    ".gate_proj.": ".w1.",
    ".up_proj.": ".w3.",
    ".down_proj.": ".w2.",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "operator_norm",
}
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def adapt_recurrent(
    config: Mapping[str, Any], shapes: dict[str, tuple[int, ...]], layer: int
) -> None:
    """Change the tensors of a layer from Llama's to those of the config's family."""
    at = f"model.layers.{layer}"
    match config["model_type"]:
        case "lfm2" | "lfm2_moe":
            _adapt_lfm2(config, shapes, layer)
        case "qwen3_5_text" | "qwen3_5_moe_text" | "qwen3_next":
            default = "full_attention" if layer % 4 == 3 else "linear_attention"
            types = config.get("layer_types")
            if (types[layer] if types else default) == "full_attention":
                query = f"{at}.self_attn.q_proj.weight"
                shapes[query] = (2 * shapes[query][0], shapes[query][1])
                names = ("self_attn.q_norm", "self_attn.k_norm")
                shapes |= {f"{at}.{name}.weight": (config["head_dim"],) for name in names}
            else:
                _replace_by_delta_net(config, shapes, at)


def _adapt_lfm2(config: Mapping[str, Any], shapes: dict[str, tuple[int, ...]], layer: int) -> None:
    at, hidden = f"model.layers.{layer}", config["hidden_size"]
    if config["layer_types"][layer] == "conv":
        for part in _ATTENTION:
            del shapes[f"{at}.self_attn.{part}.weight"]
        shapes[f"{at}.conv.in_proj.weight"] = (3 * hidden, hidden)
        shapes[f"{at}.conv.conv.weight"] = (hidden, 1, config["conv_L_cache"])
        shapes[f"{at}.conv.out_proj.weight"] = (hidden, hidden)
        if config["conv_bias"]:
            for part in ("in_proj", "conv", "out_proj"):
                shapes[f"{at}.conv.{part}.bias"] = shapes[f"{at}.conv.{part}.weight"][:1]
    else:
        size = hidden // config["num_attention_heads"]
        shapes |= {f"{at}.self_attn.{part}_layernorm.weight": (size,) for part in "qk"}
    if f"{at}.mlp.gate.weight" in shapes and config["use_expert_bias"]:
        shapes[f"{at}.mlp.expert_bias"] = (config["num_experts"],)
    for name in [name for name in shapes if name.startswith(f"{at}.")]:
        renamed = name
        for old, new in _LFM2_NAMES.items():
            renamed = renamed.replace(old, new)
        shapes[renamed] = shapes.pop(name)


def _replace_by_delta_net(
    config: Mapping[str, Any], shapes: dict[str, tuple[int, ...]], at: str
) -> None:
    for part in _ATTENTION:
        del shapes[f"{at}.self_attn.{part}.weight"]
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    values = heads * config["linear_value_head_dim"]
    channels = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + values
    inputs = {"qkv": channels, "z": values, "b": heads, "a": heads}
    if config["model_type"] == "qwen3_next":
        inputs = {"qkvz": channels + values, "ba": 2 * heads}
    shapes |= {
        f"{at}.linear_attn.in_proj_{part}.weight": (rows, hidden) for part, rows in inputs.items()
    }
    shapes |= {
        f"{at}.linear_attn.conv1d.weight": (channels, 1, config["linear_conv_kernel_dim"]),
        f"{at}.linear_attn.A_log": (heads,),
        f"{at}.linear_attn.dt_bias": (heads,),
        f"{at}.linear_attn.norm.weight": (config["linear_value_head_dim"],),
        f"{at}.linear_attn.out_proj.weight": (hidden, values),
    }


def calm(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values with which rounding errors do not grow.

    Without them, keys and outputs near 0 would be given length 1.
    """
    if name.endswith("expert_bias"):  # So that the choice of experts is rarely close.
        return 2.0 * values

    return 0.3 * values + (-2.0 if name.endswith("A_log") else 1.0)
