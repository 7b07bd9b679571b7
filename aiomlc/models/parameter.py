"""One parameter of a model."""

from __future__ import annotations

__all__ = ("Parameter",)

from dataclasses import dataclass
from typing import Literal

from aiomlc.models.row_order import RowOrder


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. A matrix is `[outputs, inputs]` and its sources are stacked on axis 0."""

    name: str  #: In the graph.
    kind: Literal["matrix", "vector"]
    shape: tuple[int, ...]
    sources: tuple[str, ...]  #: Tensors of a Hugging Face directory.
    mlc_name: str = ""  #: Where MLC's is another.
    mlc_parts: tuple[str, ...] = ()  #: Where MLC has several, in the order of their rows.
    #: What the elements in a Hugging Face directory leave out; in MLC's they are whole.
    added: float = 0.0
    order: RowOrder | None = None  #: Of the rows in a Hugging Face directory, where another.
    #: The tensor that some files have in place of all sources; its outputs may be several axes.
    whole: str = ""
    exact: bool = False  #: Whether a matrix is float32 whatever the quantisation.
