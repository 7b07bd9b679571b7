"""Tiny models that differ little from Llama, and the differences of their tensors."""

from __future__ import annotations

__all__ = ("CONFIGS", "adapt")

from collections.abc import Mapping
from typing import Any

_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
}
_GLM: dict[str, Any] = _SIZES | {
    "head_dim": 32,
    "attention_bias": True,
    "attention_out_bias": False,
    "partial_rotary_factor": 0.5,
    "tie_word_embeddings": False,
    "pad_token_id": None,
}
CONFIGS: Mapping[str, dict[str, Any]] = {
    "ernie4_5": _SIZES
    | {
        "model_type": "ernie4_5",
        "architectures": ["Ernie4_5ForCausalLM"],
        "head_dim": 32,
        "use_bias": True,
    },
    "exaone4": _SIZES
    | {
        "model_type": "exaone4",
        "architectures": ["Exaone4ForCausalLM"],
        "sliding_window": None,
        "layer_types": ["full_attention"] * 2,
    },
    "exaone4_window": _SIZES
    | {
        "model_type": "exaone4",
        "architectures": ["Exaone4ForCausalLM"],
        "num_hidden_layers": 3,
        "sliding_window": 20,
        "sliding_window_pattern": 2,
    },
    "glm": _GLM | {"model_type": "glm", "architectures": ["GlmForCausalLM"]},
    "glm4": _GLM | {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"]},
    "granitemoehybrid": _SIZES
    | {
        "model_type": "granitemoehybrid",
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "shared_intermediate_size": 160,
        "num_local_experts": 0,
        "position_embedding_type": "rope",
        "layer_types": ["full_attention"] * 2,
        "mamba_n_heads": 4,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.3,
        "attention_multiplier": 0.2,
        "logits_scaling": 0.5,
    },
    # In this family, all query heads together are as wide as the residual stream.
    "helium": _SIZES
    | {
        "model_type": "helium",
        "architectures": ["HeliumForCausalLM"],
        "head_dim": 16,
        "tie_word_embeddings": False,
    },
    "internlm3": _SIZES
    | {
        "model_type": "internlm3",
        "architectures": ["LlamaForCausalLM"],
        "head_dim": 32,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_scaling": {"rope_type": "dynamic", "factor": 6.0},
    },
    "olmo3": _SIZES
    | {
        "model_type": "olmo3",
        "architectures": ["Olmo3ForCausalLM"],
        "num_hidden_layers": 3,
        "sliding_window": 20,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "pad_token_id": None,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "attention_factor": 1.2,
        },
    },
    "seed_oss": _SIZES
    | {
        "model_type": "seed_oss",
        "architectures": ["SeedOssForCausalLM"],
        "head_dim": 32,
        "attention_bias": True,
        "attention_out_bias": False,
    },
    "smollm3": _SIZES
    | {
        "model_type": "smollm3",
        "architectures": ["SmolLM3ForCausalLM"],
        "num_hidden_layers": 3,
        "no_rope_layer_interval": 2,
        "pad_token_id": None,
    },
}


def adapt(config: Mapping[str, Any], shapes: dict[str, tuple[int, ...]], at: str) -> None:
    """Change the tensor shapes of a Llama layer to those of the variant."""
    hidden = config["hidden_size"]
    if config["model_type"] == "exaone4":
        head = hidden // config["num_attention_heads"]
        del shapes[f"{at}.input_layernorm.weight"]
        shapes[f"{at}.post_feedforward_layernorm.weight"] = (hidden,)
        shapes[f"{at}.self_attn.q_norm.weight"] = (head,)
        shapes[f"{at}.self_attn.k_norm.weight"] = (head,)
    if config["model_type"] in ("glm", "glm4"):
        for part in ("gate_proj", "up_proj"):
            del shapes[f"{at}.mlp.{part}.weight"]
        shapes[f"{at}.mlp.gate_up_proj.weight"] = (2 * config["intermediate_size"], hidden)
    if config["model_type"] == "glm4":
        shapes[f"{at}.post_self_attn_layernorm.weight"] = (hidden,)
        shapes[f"{at}.post_mlp_layernorm.weight"] = (hidden,)
    if config["model_type"] == "granitemoehybrid":
        inner = config["shared_intermediate_size"]
        for part in ("gate_proj", "up_proj", "down_proj"):
            del shapes[f"{at}.mlp.{part}.weight"]
        shapes[f"{at}.shared_mlp.input_linear.weight"] = (2 * inner, hidden)
        shapes[f"{at}.shared_mlp.output_linear.weight"] = (hidden, inner)
