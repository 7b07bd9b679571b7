"""The fields of mixture-of-experts configs."""

from __future__ import annotations

__all__ = ("parse_experts", "with_experts")

from dataclasses import replace
from typing import Any

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import ExpertsConfig
from aiomlc.models.config.limits import MAX_EXPERT_MATRICES
from aiomlc.models.parameters.packed_layout import TILE_ROWS


def with_experts(
    config: DecoderConfig,
    fields: Fields,
    *,
    size_field: str,
    **traits: Any,  # noqa: ANN401 - of any field.
) -> DecoderConfig:
    """Return the config with a mixture of experts in the layers that the fields do not call dense.

    Args:
        config: The model with an MLP in every layer.
        fields: The model's config.
        size_field: The field with an expert's intermediate size.
        traits: Fields of `ExpertsConfig` that depend on the family.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    experts = parse_experts(fields, size_field=size_field, **traits)
    dense = _dense_layers(fields)
    layers = (
        layer if index in dense else replace(layer, feed_forward=experts)
        for index, layer in enumerate(config.layers)
    )
    return replace(config, layers=tuple(layers))


def parse_experts(
    fields: Fields,
    *,
    size_field: str,
    **traits: Any,  # noqa: ANN401 - of any field.
) -> ExpertsConfig:
    """Return the mixture of experts of a layer, as `with_experts` does for all layers."""
    count_field = "num_experts" if "num_experts" in fields else "num_local_experts"
    count = fields.integer(count_field, minimum=1)
    _check_matrices(fields, count_field, count)
    per_token = fields.integer("num_experts_per_tok")
    if per_token > count:
        problem = f"must be <= {count_field} ({count}), got {per_token}"
        raise fields.error("num_experts_per_tok", problem)

    # An expert's rows are part of one packed matrix and must not share a tile with the next expert.
    for name in (size_field, "hidden_size"):
        if (size := fields.integer(name)) % TILE_ROWS:
            raise fields.error(name, f"must be a multiple of {TILE_ROWS}, got {size}")

    return ExpertsConfig(
        count=count,
        per_token=per_token,
        intermediate_size=fields.integer(size_field),
        **traits,
    )


def _check_matrices(fields: Fields, count_field: str, count: int) -> None:
    layers = fields.integer("num_hidden_layers")
    if count * layers > MAX_EXPERT_MATRICES:
        limit = f"must be <= {MAX_EXPERT_MATRICES} in all {layers} layers together"
        raise fields.error(count_field, f"{limit}, got {count} in each")


def _dense_layers(fields: Fields) -> set[int]:
    step = fields.integer("decoder_sparse_step", 1)
    dense = set(fields.integers("mlp_only_layers") if "mlp_only_layers" in fields else ())
    layers = range(fields.integer("num_hidden_layers"))
    return dense.union(layer for layer in layers if (layer + 1) % step)
