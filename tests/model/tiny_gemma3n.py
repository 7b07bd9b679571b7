"""A tiny Gemma 3n: its config, and the shapes of its tensors."""

from __future__ import annotations

__all__ = ("CONFIG", "FLOAT32_MATRICES", "shapes", "special_values")

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SLIDING, _FULL = "sliding_attention", "full_attention"
CONFIG: dict[str, Any] = {
    "model_type": "gemma3n_text",
    "architectures": ["Gemma3nForCausalLM"],
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 64,
    "intermediate_size": [96, 96, 96, 192, 96],
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 20,
    "layer_types": [_SLIDING, _FULL, _SLIDING, _SLIDING, _FULL],
    "num_kv_shared_layers": 2,
    "rope_parameters": {
        _SLIDING: {"rope_type": "default", "rope_theta": 300.0},
        _FULL: {"rope_type": "default", "rope_theta": 20000.0},
    },
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 320,
    "altup_num_inputs": 4,
    "altup_active_idx": 0,
    "altup_correct_scale": True,
    "laurel_rank": 32,
    "activation_sparsity_pattern": [0.5, 0.3, 0.0, 0.0, 0.0],
    "final_logit_softcapping": 1.5,
    "tie_word_embeddings": True,
}
FLOAT32_MATRICES = (
    "correction_coefs.weight",
    "prediction_coefs.weight",
    "modality_router.weight",
)


def _layer(config: Mapping[str, Any], layer: int) -> dict[str, tuple[int, ...]]:
    hidden, size = config["hidden_size"], config["hidden_size_per_layer_input"]
    head, inner = config["head_dim"], config["intermediate_size"][layer]
    queries, keys = (config[f"num_{kind}_heads"] * head for kind in ("attention", "key_value"))
    count, rank = config["altup_num_inputs"], config["laurel_rank"]
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "self_attn.q_norm.weight": (head,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "altup.correction_coefs.weight": (count, count),
        "altup.prediction_coefs.weight": (count * count, count),
        "altup.modality_router.weight": (count, hidden),
        "altup.router_norm.weight": (hidden,),
        "altup.correct_output_scale": (hidden,),
        "laurel.linear_left.weight": (rank, hidden),
        "laurel.linear_right.weight": (hidden, rank),
        "laurel.post_laurel_norm.weight": (hidden,),
        "per_layer_input_gate.weight": (size, hidden),
        "per_layer_projection.weight": (hidden, size),
        "post_per_layer_input_norm.weight": (hidden,),
    }
    if layer < config["num_hidden_layers"] - config["num_kv_shared_layers"]:
        shapes |= {
            "self_attn.k_proj.weight": (keys, hidden),
            "self_attn.v_proj.weight": (keys, hidden),
            "self_attn.k_norm.weight": (head,),
        }
    norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    return shapes | {f"{norm}_layernorm.weight": (hidden,) for norm in norms}


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of a Hugging Face directory."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    size = config["hidden_size_per_layer_input"]
    result: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.embed_tokens_per_layer.weight": (
            config["vocab_size_per_layer_input"],
            layers * size,
        ),
        "model.per_layer_model_projection.weight": (layers * size, hidden),
        "model.per_layer_projection_norm.weight": (size,),
    }
    for name in ("altup_projections", "altup_unembed_projections"):
        for index in range(config["altup_num_inputs"] - 1):
            result[f"model.{name}.{index}.weight"] = (hidden, hidden)
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

    if name.endswith(("norm.weight", "correct_output_scale")):
        return 1.0 + 0.1 * values

    if name.endswith("modality_router.weight"):  # The router divides its inputs by their number.
        return 4.0 * values

    if name.endswith("_coefs.weight"):
        return 0.1 * values

    if name.endswith("embed_tokens_per_layer.weight"):
        return values * (1.0 / math.sqrt(values.shape[-1]))

    return None
