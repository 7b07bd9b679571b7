"""A tiny gpt-oss: its config, and the tensors that differ from Llama's."""

from __future__ import annotations

__all__ = ("CONFIG", "adapt", "by_outputs", "scale")

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# A window shorter than the reference's prompt, in layers 0 and 2.
CONFIG: dict[str, Any] = {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_local_experts": 8,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "attention_bias": True,
    "sliding_window": 20,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "rope_theta": 150000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 8.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 64,
    },
}


def adapt(config: Mapping[str, Any], shapes: dict[str, tuple[int, ...]], at: str) -> None:
    """Replace the experts of the layer `at` by those of gpt-oss, and add its sinks."""
    count, hidden, inner = (
        config[name] for name in ("num_local_experts", "hidden_size", "intermediate_size")
    )
    for name in [name for name in shapes if name.startswith(f"{at}.mlp.")]:
        del shapes[name]
    shapes |= {
        f"{at}.self_attn.sinks": (config["num_attention_heads"],),
        f"{at}.mlp.router.weight": (count, hidden),
        f"{at}.mlp.router.bias": (count,),
        f"{at}.mlp.experts.gate_up_proj": (count, hidden, 2 * inner),
        f"{at}.mlp.experts.gate_up_proj_bias": (count, 2 * inner),
        f"{at}.mlp.experts.down_proj": (count, inner, hidden),
        f"{at}.mlp.experts.down_proj_bias": (count, hidden),
    }


def scale(name: str, shape: tuple[int, ...]) -> float:
    """Return the factor of normally distributed weights or biases of experts."""
    return 0.2 if name.endswith("bias") else float(1.0 / np.sqrt(shape[1]))


def by_outputs(change: Callable[[Floats], Floats], experts: Floats) -> Floats:
    """Return experts `[experts, inputs, outputs]`, changed as a matrix of outputs and inputs."""
    rows = experts.swapaxes(1, 2)
    flat = np.ascontiguousarray(rows.reshape(-1, rows.shape[2]))
    return np.ascontiguousarray(change(flat).reshape(rows.shape).swapaxes(1, 2))
