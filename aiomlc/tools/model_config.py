"""The `model_config` of `mlc-chat-config.json`, from the `config.json` of Hugging Face."""

from __future__ import annotations

__all__ = ("ConvertibleConfig", "SizeOverrides", "mlc_model_config", "mlc_sizes")

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from aiomlc.models import DecoderConfig, EncoderConfig, MlpConfig, VisionConfig

_MAX_PREFILL_CHUNK: Final = 8192
# Fields of transformers that describe the file, and not the model.
_OMITTED: Final = frozenset(
    {
        "_name_or_path",
        "architectures",
        "auto_map",
        "dtype",  # MLC LLM's field of this name has another meaning.
        "torch_dtype",
        "transformers_version",
    }
)
_ARCHITECTURES: Final = MappingProxyType(
    {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """The particulars of MLC LLM's configs of a model type."""

    window_only: bool = False  #: Whether a window is in place of a context length.
    no_sinks: int = -1  #: The `attention_sink_size` without a window.
    #: Whether layers differ in `sliding_window`, beside a `sliding_window_size` of -1.
    is_interleaved: bool = False
    is_nested: bool = False  #: Whether the fields are in `text_config`.
    #: Fields that MLC LLM requires and that Hugging Face may omit.
    required: Mapping[str, Any] = field(default_factory=dict)
    rope_theta: str = "position_embedding_base"  #: The name of the RoPE base.
    fp8_blocks: bool = False  #: Whether MLC LLM reads the blocks of FP8 checkpoints.


_PLAIN: Final = _Format()
_OWN_ROPE_NAME: Final = _Format(rope_theta="rope_theta")
_QWEN3: Final = _Format(rope_theta="rope_theta", fp8_blocks=True)
_GEMMA3: Final = _Format(is_interleaved=True, is_nested=True)
_FORMATS: Final[Mapping[str, _Format]] = MappingProxyType(
    {
        "gemma": _Format(required={"attention_bias": False}),
        "gemma2": _Format(is_interleaved=True, required={"attention_bias": False}),
        "gemma3": _GEMMA3,
        "gemma3_text": _GEMMA3,
        "gpt_neox": _Format(required={"ffn_out_dtype": "float32"}),
        # MLC LLM rejects -1 sinks for Mistral also without a window.
        "mistral": _Format(window_only=True, no_sinks=4),
        "qwen2": _OWN_ROPE_NAME,
        "qwen2_moe": _OWN_ROPE_NAME,
        "qwen3": _QWEN3,
        "qwen3_moe": _QWEN3,
        "stablelm": _OWN_ROPE_NAME,
        "starcoder2": _Format(rope_theta="rope_theta", required={"use_cache": True}),
    }
)

#: The models that MLC's format has.
ConvertibleConfig = DecoderConfig | EncoderConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOverrides:
    """Sizes that replace those of the model; None keeps them."""

    context_window_size: int | None = None
    sliding_window_size: int | None = None
    prefill_chunk_size: int | None = None
    attention_sink_size: int | None = None
    tensor_parallel_shards: int | None = None
    pipeline_parallel_stages: int | None = None
    max_batch_size: int = 128


def mlc_sizes(config: ConvertibleConfig, overrides: SizeOverrides) -> dict[str, int]:
    """Return the sizes that MLC LLM has both in `model_config` and beside it.

    A model whose layers differ in their windows has no `sliding_window_size`, except Gemma.
    """
    if isinstance(config, EncoderConfig):
        context, windows, sinks = config.num_positions, set[int](), 0
    else:
        context, windows = config.context_window_size, set(config.windows)
        sinks = max(layer.sinks for layer in config.attention)
    window = _chosen(overrides.sliding_window_size, max(windows) if len(windows) == 1 else -1)
    own = _FORMATS.get(config.model_type, _PLAIN)
    if overrides.context_window_size is None and window > 0 and own.window_only:
        context = -1
    context = _chosen(overrides.context_window_size, context)
    limit = window if context <= 0 else context
    sizes = {
        "context_window_size": context,
        "sliding_window_size": window,
        "prefill_chunk_size": _chosen(overrides.prefill_chunk_size, min(limit, _MAX_PREFILL_CHUNK)),
        "attention_sink_size": _chosen(
            overrides.attention_sink_size, sinks if window > 0 else own.no_sinks
        ),
        "tensor_parallel_shards": _chosen(overrides.tensor_parallel_shards, 1),
        "pipeline_parallel_stages": _chosen(overrides.pipeline_parallel_stages, 1),
    }
    is_mixed = len(windows) > 1 and not own.is_interleaved
    if is_mixed and overrides.sliding_window_size is None:
        del sizes["sliding_window_size"]
    return sizes


def mlc_model_config(
    fields: Mapping[str, Any],
    config: ConvertibleConfig,
    sizes: Mapping[str, int],
    max_batch_size: int,
    tower: VisionConfig | None = None,
) -> dict[str, Any]:
    """Return the fields that MLC LLM's converter writes, and all others of `config.json`.

    MLC LLM ignores the others; they are kept because it does not know every variant of the models.

    Args:
        config: What `fields` describes, or their decoder.
        tower: The tower of LLaVA.
    """
    outer = {**sizes, "max_batch_size": max_batch_size}
    kept = {name: value for name, value in fields.items() if name not in _OMITTED}
    if isinstance(config, EncoderConfig):
        return {**kept, "head_dim": config.hidden_size // config.num_attention_heads, **outer}

    if tower is not None:
        return {**kept, **_llava_fields(kept["text_config"], config, sizes), **outer}

    if not _FORMATS.get(config.model_type, _PLAIN).is_nested:
        return {**kept, **_decoder_fields(fields, config), **outer}

    inner = kept.pop("text_config", None) or kept
    text = {**inner, **_decoder_fields(inner, config), **sizes}
    return {
        "text_config": text,
        "vocab_size": config.vocab_size,
        "is_text_model": config.model_type == "gemma3_text",
        **outer,
    }


def _llava_fields(
    inner: Mapping[str, Any], config: DecoderConfig, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Return the fields of LLaVA, whose decoder has its own also where MLC LLM has no default."""
    mlp = config.layers[0].feed_forward
    assert isinstance(mlp, MlpConfig), "decoders of LLaVA are plain"
    text = {
        "model_type": config.model_type,
        "hidden_size": config.hidden_size,
        "intermediate_size": mlp.intermediate_size,
        "num_attention_heads": config.attention[0].num_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "rms_norm_eps": config.norm_eps,
        **{name: value for name, value in inner.items() if name not in _OMITTED},
        **_decoder_fields(inner, config),
        **sizes,
    }
    return {
        "text_config": text,
        "text_architecture": _ARCHITECTURES[config.model_type],
        "vocab_size": config.vocab_size,
    }


def _decoder_fields(fields: Mapping[str, Any], config: DecoderConfig) -> dict[str, Any]:
    own = _FORMATS.get(config.model_type, _PLAIN)
    derived: dict[str, Any] = {
        **{name: value for name, value in own.required.items() if name not in fields},
        "vocab_size": config.vocab_size,
        "num_key_value_heads": config.cache_shape.num_kv_heads,
        "head_dim": config.cache_shape.head_dim,
        own.rope_theta: config.rope_theta,
    }
    if fields.get("tie_word_embeddings") is not False and not config.tie_word_embeddings:
        derived["tie_word_embeddings"] = False  # The head is in the weights.
    quantization = fields.get("quantization_config")
    if own.fp8_blocks and isinstance(quantization, Mapping):
        derived["weight_block_size"] = quantization.get("weight_block_size")
    parameters = fields.get("rope_parameters")
    if isinstance(parameters, Mapping) and parameters.get("rope_type", "default") != "default":
        derived["rope_scaling"] = dict(parameters)
    return derived


def _chosen(override: int | None, default: int) -> int:
    return default if override is None else override
