"""Transfers of prefixes between the KV caches of engines."""

from __future__ import annotations

__all__ = ("PrefixExport", "PrefixStore", "PrefixTransfers")

import array
from collections.abc import Sequence
from typing import Final, Protocol, Self, final

from anyio import to_thread

from aiomlc.config import PAGE_SIZE
from aiomlc.errors import BadRequestError
from aiomlc.runtime.concurrency.interrupts import uninterruptible
from aiomlc.runtime.engine.pinned_prefix import PinnedPrefix
from aiomlc.runtime.engine.prefix_piece import KVFormat, new_piece, pack_tokens, parse_piece
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.validation.shortages import names_shortages

_PIECE_BYTES: Final = 8 << 20
_MAX_PIECE_TOKENS: Final = 512


class PrefixStore(Protocol):
    """The prefix cache of a core, as bytes. The methods wait for the end of a step.

    Tokens are int32 in native byte order, and rows bytes.
    """

    def count_cached(self, token_ids: bytes) -> int:
        """Return how many of the first tokens are in the prefix cache."""
        ...

    def export_prefix(self, token_ids: bytes, start: int, rows: memoryview) -> None:
        """Copy the keys and values of the tokens from `start` to the end into `rows`.

        Raises:
            PrefixNotCachedError: If not all tokens are in the prefix cache.
            EngineError: If the engine is closed or dead.
        """
        ...

    def import_prefix(self, token_ids: bytes, start: int, rows: memoryview) -> None:
        """Add a prefix to the cache, of which the first `start` tokens are in it already.

        Raises:
            BadRequestError: If an argument is out of range.
            PrefixNotCachedError: If the first tokens are not in the prefix cache.
            EngineOverloadedError: If too few pages are available.
            EngineError: If the engine is closed or dead.
        """
        ...


@final
class PrefixTransfers:
    """Copies prefixes out of the cache of a core, and into it, in worker threads."""

    def __init__(self, store: PrefixStore, kv_format: KVFormat) -> None:
        self._store = store
        self.kv_format = kv_format  #: Must equal the other engine's.

    @names_shortages
    async def count_cached(self, prompt: Prompt) -> int:
        """Return how many of the first tokens are in the prefix cache.

        Raises:
            BadRequestError: If the prompt has embedded pieces.
            EngineError: If the engine is closed or dead.
        """
        token_ids = _text_ids(prompt).tobytes()
        return await to_thread.run_sync(self._store.count_cached, token_ids)

    def export(self, prompt: Prompt, start: int, pinned: PinnedPrefix) -> PrefixExport:
        """Return the pieces of a pinned prefix from token `start` on.

        Raises:
            BadRequestError: If the prompt has embedded pieces.
        """
        return PrefixExport(self._store, self.kv_format, _text_ids(prompt), start, pinned)

    @names_shortages
    async def load(self, piece: bytes | bytearray | memoryview) -> int:
        """Add a piece to the prefix cache; return the tokens of the prefix that it now has.

        Raises:
            PrefixTransferError: If the piece is damaged, or does not fit this engine.
            PrefixNotCachedError: If the preceding pieces are not in the prefix cache (any more).
            BadRequestError: If the prefix does not fit the context window, or the prefix cache is
                disabled.
            EngineOverloadedError: If too few pages are available.
            EngineError: If the engine is closed or dead.
        """
        return await to_thread.run_sync(self._load, piece)

    def _load(self, data: bytes | bytearray | memoryview) -> int:
        piece = parse_piece(self.kv_format, data)
        self._store.import_prefix(piece.token_ids, piece.start, piece.rows)
        return piece.num_tokens


@final
class PrefixExport:
    """The pieces of a prefix, which is pinned until `release` or the end of the scope.

    Iterating asynchronously yields the pieces in order, as bytes; an iteration that was cancelled
    may be continued.
    """

    def __init__(
        self,
        store: PrefixStore,
        kv_format: KVFormat,
        token_ids: Sequence[int],
        start: int,
        pinned: PinnedPrefix,
    ) -> None:
        self.num_tokens: int = len(token_ids)  #: The tokens of the whole prefix.
        self.num_sent: int = start  #: Tokens before the next piece.
        self._store = store
        self._format = kv_format
        self._token_ids = token_ids
        self._pinned = pinned

    def __repr__(self) -> str:
        return f"<PrefixExport {self.num_sent} of {self.num_tokens} tokens>"

    @uninterruptible
    def __enter__(self) -> Self:
        return self

    @uninterruptible
    def __exit__(self, *exc_info: object) -> None:
        self.release()

    @uninterruptible
    def release(self) -> None:
        """Allow the prefix to be evicted. Thread-safe and idempotent; never blocks."""
        self._pinned.release()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.receive()
        if not piece:
            raise StopAsyncIteration

        return piece

    @names_shortages
    async def receive(self) -> bytes:
        """Return the next piece; b"" after the last.

        Raises:
            PrefixNotCachedError: If the prefix was evicted, because a request could not run
                otherwise, or because the engine was reset.
            EngineError: If the engine is closed or dead.
        """
        start = self.num_sent
        end = min(self.num_tokens, start + _piece_tokens(self._format))
        if start == end:
            return b""

        piece = await to_thread.run_sync(self._read, start, end)
        self.num_sent = end
        return piece

    def _read(self, start: int, end: int) -> bytes:
        token_ids = self._token_ids[:end]
        piece = new_piece(self._format, token_ids, start)
        self._store.export_prefix(pack_tokens(token_ids), start, piece.rows)
        return piece.finish()


def _text_ids(prompt: Prompt) -> array.array[int]:
    if prompt.pieces:
        # A piece of a transfer names its prefix by token ids.
        raise BadRequestError(
            f"prompt: a prefix with embedded pieces cannot be transferred, got "
            f"{len(prompt.pieces)}; use text or token ids only",
            param="prompt",
        )

    return prompt.token_ids


def _piece_tokens(kv_format: KVFormat) -> int:
    """Return the tokens of a piece: whole pages, so that the next piece begins with a page."""
    pages = min(_MAX_PIECE_TOKENS, _PIECE_BYTES // kv_format.token_bytes) // PAGE_SIZE
    return max(1, pages) * PAGE_SIZE
