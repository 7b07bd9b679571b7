"""The fields of mixture-of-experts configs."""

from __future__ import annotations

__all__ = ("parse_experts",)

from aiomlc.models.config.fields import Fields
from aiomlc.models.config.limits import MAX_EXPERT_MATRICES
from aiomlc.models.config.moe import ExpertsConfig
from aiomlc.models.parameters.packed_layout import TILE_ROWS


def parse_experts(fields: Fields, *, size_field: str, normalize: bool) -> ExpertsConfig:
    """Read the fields that all mixture-of-experts families share.

    Args:
        fields: The model's config.
        size_field: The field with an expert's intermediate size.
        normalize: Whether the weights of a token's experts are scaled to sum to 1.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
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
        normalize=normalize,
        dense_layers=_dense_layers(fields),
    )


def _check_matrices(fields: Fields, count_field: str, count: int) -> None:
    layers = fields.integer("num_hidden_layers")
    if count * layers > MAX_EXPERT_MATRICES:
        limit = f"must be <= {MAX_EXPERT_MATRICES} in all {layers} layers together"
        raise fields.error(count_field, f"{limit}, got {count} in each")


def _dense_layers(fields: Fields) -> tuple[int, ...]:
    step = fields.integer("decoder_sparse_step", 1)
    dense = set(fields.integers("mlp_only_layers") if "mlp_only_layers" in fields else ())
    layers = range(fields.integer("num_hidden_layers"))
    return tuple(layer for layer in layers if layer in dense or (layer + 1) % step)
