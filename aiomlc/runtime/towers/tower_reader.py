"""The interface of a tower with what makes its inputs."""

from __future__ import annotations

__all__ = ("EmbeddedItem", "PromptReader", "TowerReader")

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Item = TypeVar("Item", contravariant=True)
Inputs = TypeVar("Inputs")


class EmbeddedItem(NamedTuple):
    """An image or a recording as a prompt contains it."""

    replacement: str  #: The text in place of the placeholder.
    rows: NDArray[np.float32]  #: In place of the embeddings of its tokens.
    grid: tuple[int, int, int] | None = None  #: See `PromptPiece`.


class TowerReader(Protocol[Item, Inputs]):
    """A tower that embeds items of one kind. Its methods block and are thread-safe."""

    @property
    def tower_name(self) -> str:
        """The name of the tower in errors."""
        ...

    def process(self, item: Item) -> Inputs:
        """Return the inputs of the tower.

        Raises:
            BadRequestError: If the model cannot read the item.
        """
        ...

    def num_tokens(self, inputs: Inputs) -> int:
        """Return the tokens of an item within the tower."""
        ...

    def embed(self, batch: Sequence[Inputs]) -> list[EmbeddedItem]:
        """Return the items of a batch. The rows of one do not depend on the others."""
        ...


class PromptReader(TowerReader[Item, Inputs], Protocol[Item, Inputs]):
    """A tower whose items are parts of prompts."""

    @property
    def item_name(self) -> str:
        """The name of an item in errors."""
        ...

    @property
    def placeholder(self) -> str:
        """The text by which chat templates stand for an item."""
        ...

    @property
    def token(self) -> str:
        """The token whose embeddings are replaced; part of `EmbeddedItem.replacement`."""
        ...
