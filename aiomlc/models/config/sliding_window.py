"""Sliding windows of a model's layers, and the context length."""

from __future__ import annotations

__all__ = (
    "HFWindow",
    "default_window",
    "parse_context",
    "parse_sinks",
    "parse_windows",
    "sliding_layers",
)

from typing import Literal

from aiomlc.models.config.fields import Fields, quote

#: The layers that the `sliding_window` of a Hugging Face config applies to. `never`: none (Llama).
#: `always`: all (Mistral). `switched`: some, if `use_sliding_window` is true (Qwen).
#: `interleaved`: all but every n-th (Gemma).
HFWindow = Literal["never", "always", "switched", "interleaved"]

# For MLC configs without a context length, which the KV cache needs: the context of Mistral.
_DEFAULT_CONTEXT = 32768
_DEFAULT_WINDOW = 4096  # As in transformers, for all families that have a default.
_LAYER_TYPES = {"full_attention": False, "sliding_attention": True}
_QWEN_FULL_LAYERS = 28  # Default max_window_layers of transformers.


def parse_windows(
    fields: Fields, hf_window: HFWindow, layers: int, full_attention_interval: int = 0
) -> tuple[int, ...]:
    """Return the window of every layer in positions, 0 for full attention.

    If windows are `interleaved`, every `full_attention_interval`-th layer has full attention,
    unless the config specifies the layers.

    Raises:
        ModelLoadError: If a field has the wrong type or a value that is not supported.
    """
    if hf_window == "interleaved":
        slides = sliding_layers(fields, layers, full_attention_interval)
        size = _interleaved_size(fields)
        return tuple(size if is_sliding else 0 for is_sliding in slides)

    if "sliding_window_size" in fields:
        return (max(0, fields.integer("sliding_window_size")),) * layers

    if hf_window == "never" or "sliding_window" not in fields:
        return (0,) * layers

    size = max(0, fields.integer("sliding_window"))
    if hf_window == "always":
        return (size,) * layers

    if not fields.boolean("use_sliding_window", False):
        return (0,) * layers

    return tuple(size if is_sliding else 0 for is_sliding in _switched_layers(fields, layers))


def default_window(fields: Fields) -> Fields:
    """Return the fields of a family whose `sliding_window` is 4096 if the config omits it.

    A null field means no window. MLC LLM has no such default.
    """
    if "context_window_size" in fields:
        return fields

    return fields.with_defaults(sliding_window=_DEFAULT_WINDOW)


def parse_context(fields: Fields, windows: tuple[int, ...]) -> int:
    """Return the context length: tokens of the longest sequence."""
    name = "context_window_size"
    if any(windows) and name in fields and fields.integer(name) == -1:
        return fields.integer("max_position_embeddings", _DEFAULT_CONTEXT)

    return fields.integer(name if name in fields else "max_position_embeddings", minimum=1)


def parse_sinks(fields: Fields) -> int:
    """Return the number of attention sinks: first positions that stay visible to every row."""
    return max(0, fields.integer("attention_sink_size", 0))


def sliding_layers(fields: Fields, layers: int, full_attention_interval: int) -> list[bool]:
    """Return for each layer whether it has a window, where windows are `interleaved`."""
    if "layer_types" in fields:
        return _typed_layers(fields, layers)

    interval = fields.integer("sliding_window_pattern", full_attention_interval)
    return [(layer + 1) % interval != 0 for layer in range(layers)]


def _interleaved_size(fields: Fields) -> int:
    # MLC supports one window for all layers or none, and writes -1 next to the window of the model.
    sizes = (fields.integer(n, 0) for n in ("sliding_window_size", "sliding_window"))
    return next((size for size in sizes if size > 0), 0)


def _switched_layers(fields: Fields, layers: int) -> list[bool]:
    if "layer_types" in fields:
        return _typed_layers(fields, layers)

    first = fields.integer("max_window_layers", _QWEN_FULL_LAYERS)
    return [layer >= first for layer in range(layers)]


def _typed_layers(fields: Fields, layers: int) -> list[bool]:
    name = "layer_types"
    types = fields.strings(name)
    if len(types) != layers:
        problem = f"must have one entry per layer (num_hidden_layers is {layers}), got {len(types)}"
        raise fields.error(name, problem)

    for layer_type in types:
        if layer_type not in _LAYER_TYPES:
            allowed = ", ".join(map(quote, _LAYER_TYPES))
            raise fields.error(name, f"must contain only {allowed}, got {quote(layer_type)}")

    return [_LAYER_TYPES[layer_type] for layer_type in types]
