"""Tiny Gemma 4 models: their configs, and the shapes of their tensors."""

from __future__ import annotations

__all__ = ("CONFIGS", "shapes", "special_values")

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 20000.0,
    },
}
_SLIDING, _FULL = "sliding_attention", "full_attention"
_LARGE: dict[str, Any] = {
    "model_type": "gemma4_text",
    "architectures": ["Gemma4ForCausalLM"],
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "sliding_window": 20,
    "layer_types": [_SLIDING, _FULL] * 2,
    "rope_parameters": _ROPE,
    "final_logit_softcapping": 1.5,
    "tie_word_embeddings": True,
}
#: The kinds of the 31B, of E2B and E4B, and of 26B-A4B.
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma4_text": _LARGE,
    "gemma4_small": _LARGE
    | {
        "num_hidden_layers": 6,
        "num_key_value_heads": 1,
        "attention_k_eq_v": False,
        "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": 320,
        "num_kv_shared_layers": 3,
        "use_double_wide_mlp": True,
        "layer_types": [_SLIDING, _SLIDING, _FULL] * 2,
    },
    "gemma4_moe": _LARGE
    | {
        "num_hidden_layers": 2,
        "layer_types": [_SLIDING, _FULL],
        "num_key_value_heads": 2,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 3,
        "moe_intermediate_size": 64,
    },
}


def _sizes(config: Mapping[str, Any], layer: int) -> tuple[int, int, bool]:
    """Return the size and the number of a layer's key heads, and whether it has values."""
    if config["layer_types"][layer] == _SLIDING:
        return config["head_dim"], config["num_key_value_heads"], True

    if not config["attention_k_eq_v"]:
        return config["global_head_dim"], config["num_key_value_heads"], True

    return config["global_head_dim"], config["num_global_key_value_heads"], False


def _attention(config: Mapping[str, Any], layer: int) -> dict[str, tuple[int, ...]]:
    hidden = config["hidden_size"]
    size, keys, has_values = _sizes(config, layer)
    queries = config["num_attention_heads"] * size
    bias = config.get("attention_bias", False)
    shapes: dict[str, tuple[int, ...]] = {
        "q_proj.weight": (queries, hidden),
        "o_proj.weight": (hidden, queries),
        "q_norm.weight": (size,),
    }
    if layer < config["num_hidden_layers"] - config.get("num_kv_shared_layers", 0):
        shapes |= {"k_proj.weight": (keys * size, hidden), "k_norm.weight": (size,)}
        if has_values:
            shapes["v_proj.weight"] = (keys * size, hidden)
    projections = [name for name in shapes if name.endswith("_proj.weight")]
    if bias:
        shapes |= {name.replace("weight", "bias"): shapes[name][:1] for name in projections}
    return {f"self_attn.{name}": shape for name, shape in shapes.items()}


def _layer(config: Mapping[str, Any], layer: int) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    is_shared = layer >= config["num_hidden_layers"] - config.get("num_kv_shared_layers", 0)
    if is_shared and config.get("use_double_wide_mlp"):
        inner *= 2
    norms = ["input", "post_attention", "pre_feedforward", "post_feedforward"]
    shapes = _attention(config, layer) | {
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "layer_scalar": (1,),
    }
    if size := config["hidden_size_per_layer_input"]:
        shapes |= {
            "per_layer_input_gate.weight": (size, hidden),
            "per_layer_projection.weight": (hidden, size),
            "post_per_layer_input_norm.weight": (hidden,),
        }
    if config.get("enable_moe_block"):
        count, inner = config["num_experts"], config["moe_intermediate_size"]
        shapes |= {
            "router.proj.weight": (count, hidden),
            "router.scale": (hidden,),
            "router.per_expert_scale": (count,),
            "experts.gate_up_proj": (count, 2 * inner, hidden),
            "experts.down_proj": (count, hidden, inner),
            "post_feedforward_layernorm_1.weight": (hidden,),
            "post_feedforward_layernorm_2.weight": (hidden,),
            "pre_feedforward_layernorm_2.weight": (hidden,),
        }
    return shapes | {f"{norm}_layernorm.weight": (hidden,) for norm in norms}


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of a Hugging Face directory."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    result: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden)
    }
    if size := config["hidden_size_per_layer_input"]:
        result |= {
            "model.embed_tokens_per_layer.weight": (
                config["vocab_size_per_layer_input"],
                layers * size,
            ),
            "model.per_layer_model_projection.weight": (layers * size, hidden),
            "model.per_layer_projection_norm.weight": (size,),
        }
    for layer in range(layers):
        at = f"model.layers.{layer}"
        result |= {f"{at}.{name}": shape for name, shape in _layer(config, layer).items()}
    result["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        result["lm_head.weight"] = (config["vocab_size"], hidden)
    return result


def special_values(name: str, values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the values of weights that are not those of earlier Gemma models; else None."""
    if name.endswith(("q_norm.weight", "k_norm.weight")):  # Scores have no other factor.
        return 0.35 + 0.05 * values

    if name.endswith("post_feedforward_layernorm_2.weight"):  # Tied experts change little.
        return 0.2 + 0.05 * values

    if name.endswith("router.proj.weight"):  # The router divides its inputs by their size.
        return 6.0 * values

    if name.endswith(("norm.weight", "layernorm_1.weight", "layernorm_2.weight")):
        return 1.0 + 0.1 * values

    if name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
        return 1.0 + 0.2 * values

    if name.endswith("embed_tokens_per_layer.weight"):
        return values * (1.0 / math.sqrt(values.shape[-1]))

    if ".experts." in name:
        return values * (1.0 / math.sqrt(values.shape[-1]))

    return None
