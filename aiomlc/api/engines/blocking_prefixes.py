"""Methods of `MLCEngine` for prefixes: to pin one, and to move one to another engine."""

from __future__ import annotations

__all__ = ("BlockingPrefixExport", "PrefixMixin")

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self, final

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.engines.prefixes import Piece
from aiomlc.api.protocol.message_params import MessageLike
from aiomlc.api.streams.portal import EnginePortal
from aiomlc.runtime.engine.pinned_prefix import PinnedPrefix
from aiomlc.runtime.engine.prefix_transfer import PrefixExport


@final
class BlockingPrefixExport:
    """The pieces of a pinned prefix for blocking code, as an iterator and a context manager."""

    def __init__(self, export: PrefixExport, portal: EnginePortal) -> None:
        self._export = export
        self._portal = portal

    @property
    def num_tokens(self) -> int:
        """The tokens of the whole prefix."""
        return self._export.num_tokens

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def release(self) -> None:
        """Allow the prefix to be evicted. Idempotent."""
        self._export.release()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        piece = self._portal.call(self._export.receive)
        if not piece:
            raise StopIteration

        return piece


class PrefixMixin:
    """Gives an engine for blocking code the methods for prefixes."""

    _engine: AsyncMLCEngine
    _portal: EnginePortal

    def pin_prefix(
        self,
        messages: Iterable[MessageLike] | None = None,
        *,
        prompt: str | Sequence[int] | None = None,
        tools: Iterable[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> PinnedPrefix:
        """Compute a common prefix of prompts, and pin it in the prefix cache.

        The result is a context manager that releases the prefix.
        """
        pin = partial(
            self._engine.pin_prefix,
            messages,
            prompt=prompt,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self._portal.call(pin, discard=PinnedPrefix.release)

    def export_prefix(
        self,
        messages: Iterable[MessageLike] | None = None,
        *,
        prompt: str | Sequence[int] | None = None,
        tools: Iterable[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        start: int = 0,
    ) -> BlockingPrefixExport:
        """Compute a prefix unless it is cached, and copy its keys and values for another engine.

        The result is a context manager, and an iterator of the pieces.
        """
        export = partial(
            self._engine.export_prefix,
            messages,
            prompt=prompt,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
            start=start,
        )
        exported = self._portal.call(export, discard=PrefixExport.release)
        return BlockingPrefixExport(exported, self._portal)

    def import_prefix(self, piece: Piece) -> int:
        """Add a piece that `export_prefix` of another engine returned to the prefix cache.

        Returns the number of tokens of the prefix up to the end of the piece.
        """
        return self._portal.call(self._engine.import_prefix, piece)

    def count_cached_tokens(
        self,
        messages: Iterable[MessageLike] | None = None,
        *,
        prompt: str | Sequence[int] | None = None,
        tools: Iterable[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> int:
        """Return how many of the first tokens of a prefix are in the prefix cache now."""
        count = partial(
            self._engine.count_cached_tokens,
            messages,
            prompt=prompt,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self._portal.call(count)
