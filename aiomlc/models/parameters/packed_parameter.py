"""A parameter of a compiled library, as the library's metadata lists it."""

from __future__ import annotations

__all__ = ("PackedParameter",)

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from aiomlc.models.config.checkpoint import HFExpertsLayout
from aiomlc.models.parameters.packed_layout import (
    GROUP_SIZE,
    ROW_GROUP_BYTES,
    Layout,
    LayoutFamily,
    packed_bytes,
    row_bytes,
)
from aiomlc.models.parameters.parameter import Parameter, RowOrder, Split


@dataclass(frozen=True, slots=True)
class PackedParameter:
    """A parameter in its packed format, and the tensors it is converted from."""

    name: str  #: In an MLC directory.
    kind: Literal["matrix", "vector", "order"]
    layout: Layout  #: The formats of a matrix; empty otherwise.
    shape: tuple[int, ...]  #: Of the parameter of all shards, as `layout` and the sources.
    sources: tuple[str, ...]  #: Tensors of a Hugging Face directory, stacked on axis 0.
    #: Added to every element (RMSNorm offset); 0 for MLC directories, which already include it.
    weight_offset: float = 0.0
    row_order: RowOrder | None = None  #: Row order in a Hugging Face directory, if it differs.
    #: Single tensor that some Hugging Face directories have in place of all `sources`. Its rows may
    #: span several axes.
    fused_source: str = ""
    mlc_parts: tuple[str, ...] = ()  #: Parameters that an MLC directory has in place of `name`.
    family: LayoutFamily = "tiles"  #: The storage of a matrix; `rows` has one format per matrix.
    fused_row_order: RowOrder | None = None  #: The row order of `fused_source`, if it differs.
    fused_layout: HFExpertsLayout = "outputs"
    num_experts: int = 0  #: Experts whose matrices it holds, one after the other; 0 for no experts.
    split: Split | None = None  #: Its division among shards; None if each has all of it.
    shards: int = 1
    shard: int = 0  #: The shard whose part this is.

    @classmethod
    def from_parameter(cls, parameter: Parameter, layout: Layout) -> Self:
        """Return `parameter` in a library that has it in the formats of `layout`."""
        return cls(
            name=parameter.mlc_name or parameter.name,
            kind=parameter.kind,
            layout=layout,
            shape=parameter.shape,
            sources=parameter.sources,
            weight_offset=parameter.weight_offset,
            row_order=parameter.row_order,
            fused_source=parameter.fused_source,
            fused_row_order=parameter.fused_row_order,
            fused_layout=parameter.fused_layout,
            num_experts=parameter.num_experts,
            mlc_parts=parameter.mlc_parts,
            split=parameter.split if parameter.shards > 1 else None,
            shards=parameter.shards,
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Create a parameter from the result of `as_json`."""
        return cls(**{name: _from_json(value) for name, value in values.items()})

    def as_json(self) -> dict[str, Any]:
        """Return the parameter as JSON values."""
        return asdict(self)

    def stored_as(self, family: LayoutFamily) -> Self:
        """Return the parameter in a library of another back end."""
        return replace(self, family=family)

    def of_shard(self, shard: int) -> Self:
        """Return the part of another shard."""
        return replace(self, shard=shard)

    @property
    def row_runs(self) -> tuple[tuple[int, int], ...]:
        """The runs of the shard's rows in the graph's order: the first row and their number."""
        if self.split is not None and self.split.axis == "rows":
            return self.split.row_runs(self.shard, self.shards)

        return ((0, self.shape[0]),)

    @property
    def columns(self) -> tuple[int, int]:
        """The first column of the shard, and the number of its columns; a vector has one."""
        size = self.shape[1] if self.kind == "matrix" else 1
        if self.split is None or self.split.axis != "columns":
            return 0, size

        return self.shard * (size // self.shards), size // self.shards

    @property
    def is_zero(self) -> bool:
        """Whether the shard has zeros in place of the parameter."""
        return self.split is not None and self.split.axis == "first" and self.shard > 0

    @property
    def shard_shape(self) -> tuple[int, ...]:
        """The shape of the shard's part."""
        rows = sum(count for _, count in self.row_runs)
        return (rows, self.columns[1]) if self.kind == "matrix" else (rows,)

    @property
    def shard_layout(self) -> Layout:
        """The formats of the shard's part; a matrix that is divided by rows has one format."""
        if self.split is None or self.split.axis != "rows" or not self.layout:
            return self.layout

        ((name, _),) = self.layout
        return ((name, self.shard_shape[0]),)

    @property
    def storage(self) -> Literal["matrix", "rows", "vector", "order"]:
        """The kind of storage, as the native converter names it; float32 rows are a vector."""
        if self.kind != "matrix" or self.family == "tiles":
            return self.kind

        return "rows" if self.layout[0][0] == "q4" else "vector"

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """The shape of the parameter's tensor."""
        match self.storage:
            case "matrix":
                return (self.nbytes,)
            case "rows":
                return (self.shape[0], -(-self.shape[1] // GROUP_SIZE), ROW_GROUP_BYTES)
            case "vector" | "order":
                return self.shape if self.kind == "order" else self.shard_shape

    @property
    def nbytes(self) -> int:
        """Size in the packed file."""
        if self.kind != "matrix":
            return math.prod(self.shape if self.kind == "order" else self.shard_shape) * 4

        rows, columns = self.shard_shape
        if self.family == "rows":
            return rows * row_bytes(self.layout[0][0], columns)

        return sum(packed_bytes(name, rows, columns) for name, rows in self.shard_layout)


def _from_json(value: Any) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """Return a value with tuples in place of lists; objects are orders of rows, or splits."""
    if isinstance(value, dict):
        kind = Split if "axis" in value else RowOrder
        return kind(**{name: _from_json(item) for name, item in value.items()})

    return tuple(map(_from_json, value)) if isinstance(value, list) else value
