"""The field `layer_types` of models with recurrent layers."""

from __future__ import annotations

__all__ = ("recurrent_layers", "shared_sources")

from collections.abc import Sequence

from aiomlc.models.config.fields import Fields, quote


def recurrent_layers(
    fields: Fields, layers: int, recurrent: str, default: Sequence[str]
) -> list[bool]:
    """Return for each layer whether it has the type `recurrent`; the others have full attention.

    Args:
        fields: The model's config.
        layers: The number of layers.
        recurrent: The type of the recurrent layers.
        default: The types if the config has none.

    Raises:
        ModelLoadError: If `layer_types` has another length or another type, or if no layer has
            attention.
    """
    name = "layer_types"
    types = fields.strings(name) if name in fields else list(default)
    if len(types) != layers:
        problem = f"must have one entry per layer (num_hidden_layers is {layers}), got {len(types)}"
        raise fields.error(name, problem)

    for layer_type in types:
        if layer_type not in (recurrent, "full_attention"):
            allowed = f"{quote(recurrent)}, {quote('full_attention')}"
            raise fields.error(name, f"must contain only {allowed}, got {quote(layer_type)}")

    if "full_attention" not in types:
        raise fields.error(name, f"must contain {quote('full_attention')} at least once")

    return [layer_type == recurrent for layer_type in types]


def shared_sources(fields: Fields, slides: Sequence[bool]) -> list[int | None]:
    """Return for each layer the one whose keys and values it reads, or None."""
    name = "num_kv_shared_layers"
    count = fields.integer(name, 0)
    first = len(slides) - count
    own = slides[: max(0, first)]
    if not own or set(own) != set(slides):
        problem = "must leave a layer of each type with keys and values of its own"
        raise fields.error(name, f"{problem}, got {count} of {len(slides)} layers")

    last = {kind: len(own) - 1 - own[::-1].index(kind) for kind in set(own)}
    return [None if layer < first else last[kind] for layer, kind in enumerate(slides)]
