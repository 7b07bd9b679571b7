"""The interface of the part of a model that reads images or audio."""

from __future__ import annotations

__all__ = ("Digested", "Encode", "PieceModel")

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from aiomlc.runtime.engine.prompt import Prompt

#: Returns the token ids of a text, in which special tokens are recognized.
Encode: TypeAlias = Callable[[str], Awaitable[list[int]]]


class Digested(Protocol):
    """An image or a recording."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the content."""
        ...


Item = TypeVar("Item", bound=Digested, contravariant=True)


class PieceModel(Protocol[Item]):
    """A tower, with what makes its inputs. Used in one event loop after the other."""

    @property
    def placeholder(self) -> str:
        """The text that stands for an item in a prompt, as the model's chat template writes it."""
        ...

    async def prompt(self, text: str, items: Sequence[Item], encode: Encode) -> Prompt:
        """Return a prompt whose placeholders became the embeddings of items.

        Args:
            text: A rendered chat, with a placeholder for each item.
            items: Images or recordings in the order of their placeholders.
            encode: Encodes the text after the placeholders were expanded.

        Raises:
            BadRequestError: If the number of placeholders is not that of the items.
        """
        ...
