"""Sliding windows of a model's layers, and the context they slide over."""

from __future__ import annotations

__all__ = (
    "HFWindow",
    "parse_context",
    "parse_sinks",
    "parse_windows",
    "sliding_layers",
    "windows_within",
)

from typing import Literal

from aiomlc.models.config.fields import Fields

#: When the `sliding_window` of a Hugging Face config is meant: Llama's never, Mistral's always,
#: Qwen's where `use_sliding_window` says so, and then not in every layer, Gemma's in some.
HFWindow = Literal["never", "always", "switched", "interleaved"]

# MLC's configs of models with windows may know no end. A cache needs one: Mistral's.
_ENDLESS_CONTEXT = 32768
_LAYER_TYPES = {"full_attention": False, "sliding_attention": True}
_QWEN_FULL_LAYERS = 28  # What transformers takes where a config does not say.


def parse_windows(
    fields: Fields, hub: HFWindow, layers: int, full_every: int = 0
) -> tuple[int, ...]:
    """The window of every layer, in positions; 0 is none. Empty if no layer has one.

    If windows are "interleaved", one of `full_every` layers has none, unless the fields say which.

    Raises:
        ModelLoadError: a field is of a wrong type, or asks for what is not supported.
    """
    if hub == "interleaved":
        slides = sliding_layers(fields, layers, full_every)
        size = _interleaved_size(fields)
        return tuple(size if one else 0 for one in slides) if size and any(slides) else ()

    if "sliding_window_size" in fields:
        return (max(0, fields.integer("sliding_window_size", minimum=-1)),) * layers

    if hub == "never" or "sliding_window" not in fields:
        return ()

    size = max(0, fields.integer("sliding_window", minimum=-1))
    if hub == "always":
        return (size,) * layers

    if not fields.boolean("use_sliding_window", False):
        return ()

    return tuple(size if slides else 0 for slides in _switched_layers(fields, layers))


def windows_within(context: int, windows: tuple[int, ...]) -> tuple[int, ...]:
    """The windows that hide something of a context; empty if none does."""
    hiding = tuple(size if size < context else 0 for size in windows)
    return hiding if any(hiding) else ()


def parse_context(fields: Fields, windows: tuple[int, ...]) -> int:
    """The tokens of the longest sequence."""
    name = "context_window_size"
    if any(windows) and name in fields and fields.integer(name, minimum=-1) == -1:
        return fields.integer("max_position_embeddings", _ENDLESS_CONTEXT)

    return fields.integer(name if name in fields else "max_position_embeddings")


def parse_sinks(fields: Fields) -> int:
    """How many first positions no window hides."""
    return max(0, fields.integer("attention_sink_size", 0, minimum=-1))


def sliding_layers(fields: Fields, layers: int, full_every: int) -> list[bool]:
    """Which layers have a window, where windows are interleaved."""
    if "layer_types" in fields:
        return _typed_layers(fields, layers)

    period = fields.integer("sliding_window_pattern", full_every)
    return [(layer + 1) % period != 0 for layer in range(layers)]


def _interleaved_size(fields: Fields) -> int:
    # MLC knows one window for all layers or none, and writes -1 beside the model's own.
    sizes = (fields.integer(n, 0, minimum=-1) for n in ("sliding_window_size", "sliding_window"))
    return next((size for size in sizes if size > 0), 0)


def _switched_layers(fields: Fields, layers: int) -> list[bool]:
    if "layer_types" in fields:
        return _typed_layers(fields, layers)

    first = fields.integer("max_window_layers", _QWEN_FULL_LAYERS, minimum=0)
    return [layer >= first for layer in range(layers)]


def _typed_layers(fields: Fields, layers: int) -> list[bool]:
    name = "layer_types"
    types = fields.texts(name)
    if len(types) != layers:
        raise fields.error(name, f"has {len(types)} layers, num_hidden_layers is {layers}")

    for kind in types:
        if kind not in _LAYER_TYPES:
            raise fields.error(name, f"has {kind!r}; supported: {', '.join(_LAYER_TYPES)}")

    return [_LAYER_TYPES[kind] for kind in types]
