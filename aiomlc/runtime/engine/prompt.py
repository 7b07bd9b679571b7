"""Prompts as the engine takes them: token ids, and pieces whose embeddings are given."""

from __future__ import annotations

__all__ = ("Prompt", "PromptPiece")

import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, final

from aiomlc.errors import BadRequestError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PromptPiece(NamedTuple):
    """Consecutive positions of a prompt whose embeddings are given, such as those of an image."""

    begin: int  #: The index of the first position in the prompt.
    digest: bytes  #: SHA-256 of the content; pieces with equal digests share their KV cache.
    #: The embeddings, [positions, hidden], each followed by what the first layers add to it.
    rows: NDArray[np.float32]
    #: Rows in time, height and width, if RoPE has a position on each of these axes.
    grid: tuple[int, int, int] | None = None


@final
class Prompt:
    """A prompt from its encoding to its submission. Immutable.

    Args:
        token_ids: One id per position; a placeholder of the vocabulary where a piece is.
        pieces: In ascending order, without overlap; none for text.

    Raises:
        BadRequestError: If a token id does not fit 32 bits. The core checks everything else.
    """

    __slots__ = ("pieces", "token_ids")

    def __init__(self, token_ids: Iterable[int], pieces: Iterable[PromptPiece] = ()) -> None:
        try:
            self.token_ids: array.array[int] = array.array("i", token_ids)  #: As int32.
        except OverflowError:
            raise BadRequestError("prompt: a token id does not fit 32 bits") from None

        self.pieces: tuple[PromptPiece, ...] = tuple(pieces)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def num_embedded(self) -> int:
        """The number of positions whose embeddings are given."""
        return sum(len(piece.rows) for piece in self.pieces)

    def __repr__(self) -> str:
        return f"<Prompt {len(self)} tokens, {len(self.pieces)} embedded pieces>"
