"""Prompts with images or recordings, by a tower."""

from __future__ import annotations

__all__ = ("TowerModel",)

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, TypeVar, final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.prompt import Prompt, PromptPiece
from aiomlc.runtime.towers.piece_model import Digested, Encode
from aiomlc.runtime.towers.tower_batcher import TowerBatcher
from aiomlc.runtime.towers.tower_reader import EmbeddedItem, PromptReader

Item = TypeVar("Item", bound=Digested)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TowerModel(Generic[Item]):
    """A `PieceModel` with a tower. Used in one event loop after the other."""

    reader: PromptReader[Item, Any]
    batcher: TowerBatcher[Item, Any]
    token_id: int
    key: bytes  #: Identifies the weights of the tower and the settings of its inputs.

    @property
    def placeholder(self) -> str:
        """The text that stands for an item in a prompt, as the model's chat template writes it."""
        return self.reader.placeholder

    async def prompt(self, text: str, items: Sequence[Item], encode: Encode) -> Prompt:
        """Return a prompt whose placeholders became the embeddings of items.

        Raises:
            BadRequestError: If the number of placeholders is not that of the items, the text
                contains their tokens, or the model cannot read an item.
            RequestFailedError: If the tower failed.
        """
        parts, name = text.split(self.placeholder), self.reader.item_name
        if len(parts) - 1 != len(items):
            raise BadRequestError(
                f"messages: the prompt has {len(parts) - 1} placeholders {self.placeholder!r} for "
                f"{len(items)} {name}s: a text must not contain the placeholder, and the chat "
                f"template must write one for each {name}",
                param="messages",
            )

        embedded = await self.batcher.run(items)
        filled = "".join(
            part + item.replacement for part, item in zip(parts, embedded, strict=False)
        )
        token_ids = await encode(filled + parts[-1])
        return Prompt(token_ids, self._pieces(token_ids, items, embedded))

    def _pieces(
        self, token_ids: Sequence[int], items: Sequence[Item], embedded: list[EmbeddedItem]
    ) -> Iterator[PromptPiece]:
        places = [i for i, token in enumerate(token_ids) if token == self.token_id]
        expected = sum(len(item.rows) for item in embedded)
        if len(places) != expected:
            raise BadRequestError(
                f"messages: the prompt has {len(places)} tokens {self.reader.token!r}, but its "
                f"{self.reader.item_name}s have {expected}: a text must not contain this token",
                param="messages",
            )

        start = 0
        for item, one in zip(items, embedded, strict=True):
            count = len(one.rows)
            numbered = enumerate(places[start : start + count])
            # Tokens at consecutive places have the same difference.
            for _, run in groupby(numbered, key=lambda pair: pair[1] - pair[0]):
                (first, begin), *others = run
                rows = one.rows[first : first + 1 + len(others)]
                yield PromptPiece(begin, self._digest(item, first), rows, one.grid)
            start += count

    def _digest(self, item: Item, first: int) -> bytes:
        """Identify the rows of an item from `first` on, up to the next token of the text."""
        return hashlib.sha256(self.key + item.digest + first.to_bytes(8, "little")).digest()
