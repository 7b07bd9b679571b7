"""The field `layer_types` of models with recurrent layers."""

from __future__ import annotations

__all__ = ("recurrent_layers",)

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
