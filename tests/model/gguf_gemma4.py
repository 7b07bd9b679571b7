"""The keys and names of Gemma 3n and 4 in GGUF files, as llama.cpp's converter writes them."""

from __future__ import annotations

__all__ = ("add_3n_config", "add_config", "converted_3n", "mapped_name", "router_name")

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

_SIZES = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "sliding_window": "attention.sliding_window",
    "hidden_size_per_layer_input": "embedding_length_per_layer_input",
    "num_experts": "expert_count",
    "top_k_experts": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
_NUMBERS = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "final_logit_softcapping": "final_logit_softcapping",
}
_FACTORS = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}


def add_config(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    """Add the keys of a config, and the divisors of RoPE."""
    for fields, add in ((_SIZES, writer.add_uint32), (_NUMBERS, writer.add_float32)):
        for field, key in fields.items():
            if config.get(field) is not None:
                add(f"gemma4.{key}", config[field])
    slides = [kind == "sliding_attention" for kind in config["layer_types"]]
    writer.add_array("gemma4.attention.sliding_window_pattern", slides)
    _add_heads(writer, config, slides)
    shared = config.get("num_kv_shared_layers", 0)
    writer.add_shared_kv_layers(shared)
    inner, own = config["intermediate_size"], config["num_hidden_layers"] - shared
    is_wide = config.get("use_double_wide_mlp")
    writer.add_feed_forward_length([inner] * own + [2 * inner] * shared if is_wide else inner)
    _add_rope(writer, config)


def add_3n_config(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    """Add the keys of a config of Gemma 3n."""
    for fields, add in ((_SIZES, writer.add_uint32), (_NUMBERS, writer.add_float32)):
        for field, key in fields.items():
            if config.get(field) is not None:
                add(f"gemma3n.{key}", config[field])
    slides = [kind == "sliding_attention" for kind in config["layer_types"]]
    writer.add_array("gemma3n.attention.sliding_window_pattern", slides)
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    writer.add_altup_active_idx(config["altup_active_idx"])
    writer.add_altup_num_inputs(config["altup_num_inputs"])
    quantiles = [
        NormalDist().inv_cdf(fraction) if fraction else -math.inf
        for fraction in config["activation_sparsity_pattern"]
    ]
    writer.add_activation_sparsity_scale(quantiles)
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    writer.add_float32("gemma3n.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])


def converted_3n(weights: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of Gemma 3n, of which those outside of layers are stacked."""
    stacks: dict[str, list[NDArray[np.float32]]] = {}
    converted: dict[str, NDArray[np.float32]] = {}
    for name, value in weights.items():
        if name.startswith("model.altup_"):
            stacks.setdefault(name.split(".")[1], []).append(value)
        else:
            converted[f"{name}.weight" if name.endswith("_scale") else name] = value
    return converted | {f"model.{name}.weight": np.stack(v) for name, v in stacks.items()}


def _add_heads(writer: gguf.GGUFWriter, config: Mapping[str, Any], slides: list[bool]) -> None:
    size, own = config["global_head_dim"], config["head_dim"]
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_key_length_swa(own)
    writer.add_value_length_swa(own)
    heads = config["num_key_value_heads"]
    if config["attention_k_eq_v"]:
        full = config["num_global_key_value_heads"]
        writer.add_head_count_kv([heads if is_sliding else full for is_sliding in slides])
    else:
        writer.add_head_count_kv(heads)


def _add_rope(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    rope, size = config["rope_parameters"], config["global_head_dim"]
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    writer.add_float32("gemma4.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
    rotated = int(size * rope["full_attention"]["partial_rotary_factor"] / 2)
    divisors = [1.0] * rotated + [1e30] * (size // 2 - rotated)
    writer.add_tensor("rope_freqs.weight", np.array(divisors, np.float32))


def mapped_name(name: str) -> str:
    """Return the name under which the map of tensors has a tensor."""
    return f"{name}.weight" if name.endswith("layer_scalar") or ".experts." in name else name


def router_name(name: str) -> str | None:
    """Return GGUF's name of the factors of a router; None for other tensors."""
    own = next((own for part, own in _FACTORS.items() if name.endswith(part)), None)
    return own and f"blk.{name.split('.')[2]}.{own}"
