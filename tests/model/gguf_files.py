"""Tiny models as GGUF files, written by the package `gguf` as llama.cpp's converter does."""

from __future__ import annotations

__all__ = ("ARCHITECTURES", "Encode", "add_tiny_text", "write_gguf", "write_tiny_gguf")

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from tests.model import gguf_gemma4
from tests.model.gguf_tokenizers import add_byte_level
from tests.model.tiny_models import TEMPLATE, TINY_CONFIGS, tiny_tokenizer, tiny_weights

Weights = Mapping[str, NDArray[np.float32]]
#: Returns the contents of a tensor in the file, and their type.
Encode = Callable[[str, NDArray[np.float32]], tuple[NDArray[Any], Type]]

#: `general.architecture` by `model_type`.
ARCHITECTURES: Mapping[str, str] = {
    "cohere": "command-r",
    "gemma3_text": "gemma3",
    "gemma3n_text": "gemma3n",
    "gemma4_text": "gemma4",
    "glm": "chatglm",
    "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss",
    "internlm3": "llama",
    "lfm2_moe": "lfm2moe",
    "mistral": "llama",
    "mixtral": "llama",
    "olmo3": "olmo2",
    "phi": "phi2",
    "qwen2_5_vl_text": "qwen2vl",
    "qwen2_moe": "qwen2moe",
    "qwen2_vl_text": "qwen2vl",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_5_text": "qwen35",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_vl_text": "qwen3vl",
}
_GEMMA_CONFIGS = {"gemma3n": gguf_gemma4.add_3n_config, "gemma4": gguf_gemma4.add_config}
_PERMUTED = ("granite", "internlm3", "llama", "mistral", "mixtral", "smollm3")
_MINUS_ONE = (
    *("gemma", "gemma2", "gemma3_text", "nemotron"),
    *("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
)
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
_SIZES = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "conv_L_cache": "shortconv.l_cache",
    "num_dense_layers": "leading_dense_block_count",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "full_attention_interval": "full_attention_interval",
}
_NUMBERS = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "norm_eps": "attention.layer_norm_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope_local_base_freq": "rope.freq_base_swa",
    "logit_scale": "logit_scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale",
    "logits_scaling": "logit_scale",
}


def write_tiny_gguf(
    path: Path,
    name: str,
    encode: Encode | None = None,
    *,
    split_max_tensors: int = 0,
    **changes: Any,  # noqa: ANN401 - JSON.
) -> Path:
    """Write one of the tiny models with changes of its config, and return the path."""
    config, weights = TINY_CONFIGS[name] | changes, tiny_weights(name)
    return write_gguf(
        path, config, weights, add_tiny_text, encode, split_max_tensors=split_max_tensors
    )


def add_tiny_text(writer: gguf.GGUFWriter) -> None:
    """Add the tokenizer and the chat template of the tiny models."""
    add_byte_level(writer, tiny_tokenizer(), "gpt-2", bos="<s>", eos="</s>")
    writer.add_chat_template(TEMPLATE)


def write_gguf(
    path: Path,
    config: Mapping[str, Any],
    weights: Weights,
    add_text: Callable[[gguf.GGUFWriter], object],
    encode: Encode | None = None,
    split_delta_nets: bool = True,
    **options: Any,  # noqa: ANN401 - of the writer.
) -> Path:
    """Write a Hugging Face model; `add_text` adds the tokenizer.

    Matrices are encoded by `encode`, by default as F32. Files of 2025 do not split the inputs of
    Qwen 3 Next's delta nets.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    model_type = config["model_type"]
    name = ARCHITECTURES.get(model_type, model_type)
    writer = gguf.GGUFWriter(path, name, **options)
    if name in _GEMMA_CONFIGS:
        _GEMMA_CONFIGS[name](writer, config)
    else:
        _add_config(writer, name, config)
        _add_rope(writer, name, config)
        _add_sections(writer, config)
    add_text(writer)
    known = {value: key for key, value in gguf.MODEL_ARCH_NAMES.items()}
    layers = config["num_hidden_layers"]
    names = gguf.get_tensor_name_map(known[name], layers)
    dense_names = gguf.get_tensor_name_map(known["llama"], layers)  # Of layers without experts.
    converted = _convert(config, weights, split_delta_nets=split_delta_nets)
    for tensor, value in _stack_experts(converted).items():
        suffixes = (".weight", ".bias")
        target = names.get_name(tensor, suffixes) or dense_names.get_name(tensor, suffixes)
        target = gguf_gemma4.router_name(tensor) or target
        assert target is not None, f"{tensor} is not a tensor of {name}"
        data, kind = value, Type.F32
        if encode is not None and value.ndim > 1:
            data, kind = encode(target, value)
        writer.add_tensor(target, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_config(writer: gguf.GGUFWriter, name: str, config: Mapping[str, Any]) -> None:
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    for field, key in _SIZES.items():
        if config.get(field) is not None:
            writer.add_uint32(f"{name}.{key}", config[field])
    for field, key in _NUMBERS.items():
        if config.get(field) is not None:
            writer.add_float32(f"{name}.{key}", config[field])
    _add_key_heads(writer, config, kv_heads)
    if config.get("head_dim"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if "query_pre_attn_scalar" in config:
        writer.add_attention_scale(config["query_pre_attn_scalar"] ** -0.5)
    if name in ("gptneox", "stablelm"):
        default = name == "gptneox"
        writer.add_parallel_residual(config.get("use_parallel_residual", default))
    _add_windows(writer, f"{name}.attention.sliding_window_pattern", config)


def _add_key_heads(writer: gguf.GGUFWriter, config: Mapping[str, Any], kv_heads: int) -> None:
    if config["model_type"].startswith("lfm2"):
        kinds = config["layer_types"]
        writer.add_head_count_kv([0 if kind == "conv" else kv_heads for kind in kinds])
        writer.add_layer_norm_rms_eps(config["norm_eps"])
    else:
        writer.add_head_count_kv(kv_heads)
    if "linear_value_head_dim" in config:
        values = config["linear_value_head_dim"] * config["linear_num_value_heads"]
        writer.add_ssm_inner_size(values)
        if kinds := config.get("layer_types"):
            key = f"{ARCHITECTURES[config['model_type']]}.attention.recurrent_layers"
            writer.add_array(key, [kind == "linear_attention" for kind in kinds])


def _add_windows(writer: gguf.GGUFWriter, key: str, config: Mapping[str, Any]) -> None:
    if "sliding_window_pattern" in config:
        writer.add_uint32(key, config["sliding_window_pattern"])
    elif "layer_types" in config and config.get("sliding_window"):
        writer.add_array(key, [kind == "sliding_attention" for kind in config["layer_types"]])


def _add_rope(writer: gguf.GGUFWriter, name: str, config: Mapping[str, Any]) -> None:
    rope = {**config, **(config.get("rope_parameters") or {})}
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rotated = int(head_dim * rope.get("partial_rotary_factor", config.get("rotary_pct", 1.0)))
    writer.add_rope_dimension_count(rotated)
    theta = rope.get("rope_theta", rope.get("rotary_emb_base"))
    if theta is not None:
        writer.add_rope_freq_base(theta)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(scaling["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        if "attention_factor" in scaling:
            writer.add_rope_scaling_yarn_attn_factor(scaling["attention_factor"])
    if kind == "longrope":
        original, context = config["original_max_position_embeddings"], 512
        writer.add_rope_scaling_orig_ctx_len(original)
        ratio = context / original
        factor = math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 else 1.0
        writer.add_rope_scaling_attn_factors(factor)
        for length in ("long", "short"):
            values = np.array(scaling[f"{length}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", values)
    if kind == "llama3":
        divisors = _llama3_divisors(rotated, rope["rope_theta"], scaling)
        writer.add_tensor("rope_freqs.weight", divisors)


def _add_sections(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    for field in ("rope_scaling", "rope_parameters"):
        if sections := (config.get(field) or {}).get("mrope_section"):
            writer.add_rope_dimension_sections([*sections, 0])


def _llama3_divisors(size: int, theta: float, scaling: Mapping[str, Any]) -> NDArray[np.float32]:
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    divisors = []
    for frequency in theta ** -(np.arange(0, size, 2) / size):
        wavelength = 2 * math.pi / frequency
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


def _convert(
    config: Mapping[str, Any], weights: Weights, *, split_delta_nets: bool
) -> dict[str, NDArray[np.float32]]:
    """Return the weights with the rows and norms of a GGUF file."""
    if config["model_type"] == "gemma3n_text":
        return gguf_gemma4.converted_3n(weights)

    converted: dict[str, NDArray[np.float32]] = {}
    for name, value in weights.items():
        if config["model_type"] == "gpt_oss":
            converted |= _without_stacks(name, value)
        elif config["model_type"] == "gemma4_text":
            converted[gguf_gemma4.mapped_name(name)] = value
        elif name.endswith(".in_proj_qkvz.weight") and split_delta_nets:
            converted |= _split_delta_net(config, name, value)
        elif ".linear_attn." in name:
            new_name, rows = _convert_delta_net(config, name, value)
            converted[new_name] = np.ascontiguousarray(rows)
        else:
            rows = _convert_rows(config, name, value)
            converted[_convert_name(name)] = np.ascontiguousarray(rows)
    return converted


def _convert_name(name: str) -> str:
    """Return the name under which the map of tensors has a tensor of LFM 2's mixtures."""
    if name.endswith(".expert_bias"):
        return f"{name}.bias"

    if ".feed_forward.experts." in name:
        for own, part in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            name = name.replace(f".{own}.", f".{part}.")
    return name


def _convert_rows(
    config: Mapping[str, Any], name: str, value: NDArray[np.float32]
) -> NDArray[np.float32]:
    model_type, heads = config["model_type"], config["num_attention_heads"]
    if model_type in _PERMUTED and (".q_proj." in name or ".k_proj." in name):
        kv_heads = config.get("num_key_value_heads") or heads
        return _interleave(value, heads if ".q_proj." in name else kv_heads)

    if model_type == "gpt_neox" and "query_key_value" in name:
        parts = value.reshape(heads, 3, -1, *value.shape[1:])
        return np.concatenate([parts[:, i].reshape(-1, *value.shape[1:]) for i in range(3)])

    if name.endswith(".conv.conv.weight"):
        return value[:, 0]

    has_offset = model_type in _MINUS_ONE and name.endswith("norm.weight")
    return value + np.float32(1) if has_offset else value


def _split_delta_net(
    config: Mapping[str, Any], name: str, value: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    """Return queries, keys and values of all heads, and all gates."""
    heads, size = config["linear_num_key_heads"], config["linear_key_head_dim"]
    by_head = value.reshape(heads, -1, value.shape[1])
    values = (by_head.shape[1] - 2 * size) // 2
    parts = np.split(by_head, np.cumsum([size, size, values]), axis=1)
    *qkv, z = (part.reshape(-1, value.shape[1]) for part in parts)
    return {name.replace("qkvz", "qkv"): np.concatenate(qkv), name.replace("qkvz", "z"): z}


def _tiled(config: Mapping[str, Any], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Put value heads in the order of GGUF: first one of each key head, then the next of each.

    Those of Qwen 3 Next keep their order.
    """
    key_heads, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    if config["model_type"] == "qwen3_next":
        return rows

    by_head = rows.reshape(key_heads, heads // key_heads, -1, *rows.shape[1:])
    return by_head.swapaxes(0, 1).reshape(rows.shape)


def _convert_delta_net(
    config: Mapping[str, Any], name: str, value: NDArray[np.float32]
) -> tuple[str, NDArray[np.float32]]:
    keys = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    match name.split(".linear_attn.")[1]:
        case "in_proj_qkv.weight":
            value = np.concatenate([value[:keys], _tiled(config, value[keys:])])
        case "conv1d.weight":
            value = np.concatenate([value[:keys], _tiled(config, value[keys:])])[:, 0]
        case "out_proj.weight":
            value = _tiled(config, value.T).T
        case "A_log":
            value = -np.exp(_tiled(config, value))
        case "dt_bias":
            name, value = name.replace("dt_bias", "dt_proj.bias"), _tiled(config, value)
        case "in_proj_z.weight" | "in_proj_a.weight" | "in_proj_b.weight":
            value = _tiled(config, value)
        case _:
            pass
    return name, value


def _without_stacks(name: str, value: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Return a tensor of gpt-oss as llama.cpp's converter splits and transposes it."""
    if name.endswith(".sinks"):
        return {f"{name}.weight": value}

    if ".experts." not in name:
        return {name: value}

    if name.endswith("_bias"):
        stem, kind = name.removesuffix("_bias"), "bias"
    else:
        stem, kind, value = name, "weight", value.swapaxes(1, 2)
    if stem.endswith("down_proj"):
        return {f"{stem}.{kind}": np.ascontiguousarray(value)}

    return {
        f"{stem.replace('gate_up', part)}.{kind}": np.ascontiguousarray(value[:, first::2])
        for first, part in enumerate(("gate", "up"))
    }


def _interleave(value: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return halves.swapaxes(1, 2).reshape(value.shape)


def _stack_experts(weights: Weights) -> dict[str, NDArray[np.float32]]:
    stacked: dict[str, Any] = {}
    for name, value in weights.items():
        match = _EXPERT.fullmatch(name)
        if match is None:
            stacked[name] = value
        else:
            stacked.setdefault(f"{match[1]}.{match[3]}.weight", []).append(value)
    return {
        name: np.stack(value) if isinstance(value, list) else value
        for name, value in stacked.items()
    }
