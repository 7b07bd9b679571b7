"""Mixtures of experts: feed-forward layers of many parts, of which each token takes a few."""

from __future__ import annotations

__all__ = ("ExpertsConfig", "parse_experts")

from dataclasses import dataclass

from aiomlc.models.config.fields import Fields

_TILE = 16  # Rows of a packed matrix that stay together.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """The sizes of a mixture, the same in every layer that has one."""

    count: int
    per_token: int
    intermediate_size: int  #: Of one expert.
    normalize: bool  #: Whether the weights of a token's experts are scaled to a sum of one.
    shared_size: int = 0  #: Inner size of an expert that all tokens go to; 0 is none.
    dense_layers: tuple[int, ...] = ()  #: Layers with an ordinary gated layer in its place.

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer is a mixture."""
        return layer not in self.dense_layers


def parse_experts(fields: Fields, *, size: str, normalize: bool) -> ExpertsConfig:
    """Read the fields that all mixtures share; `size` names that of an expert's inner layer.

    Raises:
        ModelLoadError: a field is missing, of a wrong type, or asks for what is not supported.
    """
    count_name = "num_experts" if "num_experts" in fields else "num_local_experts"
    count = fields.integer(count_name)
    per_token = fields.integer("num_experts_per_tok")
    if per_token > count:
        raise fields.error("num_experts_per_tok", f"is {per_token}, there are {count} experts")

    for name in (size, "hidden_size"):
        if fields.integer(name) % _TILE:
            raise fields.error(name, f"is {fields.integer(name)}, not a multiple of {_TILE}")

    return ExpertsConfig(
        count=count,
        per_token=per_token,
        intermediate_size=fields.integer(size),
        normalize=normalize,
        dense_layers=_dense_layers(fields),
    )


def _dense_layers(fields: Fields) -> tuple[int, ...]:
    step = fields.integer("decoder_sparse_step", 1)
    dense = fields.integers("mlp_only_layers") if "mlp_only_layers" in fields else []
    layers = range(fields.integer("num_hidden_layers"))
    return tuple(layer for layer in layers if layer in dense or (layer + 1) % step)
