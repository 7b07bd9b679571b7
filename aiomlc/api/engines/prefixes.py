"""Methods of `AsyncMLCEngine` for prefixes: to pin one, and to move one to another engine."""

from __future__ import annotations

__all__ = ("AsyncPrefixMixin", "Piece")

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiomlc.api.chat.preparation import render_chat
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.message_params import MessageLike
from aiomlc.api.protocol.token import parse_token_request
from aiomlc.api.session.lifecycle import EngineLifecycle
from aiomlc.api.session.session import ModelSession
from aiomlc.config import PAGE_SIZE
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.pinned_prefix import PinnedPrefix
from aiomlc.runtime.engine.prefix_transfer import PrefixExport, PrefixTransfers
from aiomlc.runtime.engine.prompt import Prompt

Piece = bytes | bytearray | memoryview


class AsyncPrefixMixin:
    """Gives an engine for async code the methods for prefixes."""

    _lifecycle: EngineLifecycle

    async def pin_prefix(
        self,
        messages: Iterable[MessageLike] | None = None,
        *,
        prompt: str | Sequence[int] | None = None,
        tools: Iterable[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> PinnedPrefix:
        """Compute a common prefix of prompts, and pin it in the prefix cache:

            with await engine.pin_prefix([{"role": "system", "content": ...}]):
                ...

        The prefix is computed when this method returns, and stays in the cache until it is
        released or `reset` is called. There are two exceptions: it is evicted if a request cannot
        run otherwise, and after a step with non-finite logits, which cached values may have caused.

        Args:
            messages: The first messages of chats. Exclusive with `prompt`.
            prompt: The beginning of prompts of text completions: a string, or token ids.
            tools: The tools of these chats, which are a part of the prompt.
            chat_template_kwargs: The template variables of these chats.

        Raises:
            BadRequestError: If a field is invalid, or the prefix cache is disabled.
            PromptTooLongError: If the prefix leaves no room for a completion.
            EngineError: If the engine is closed, dead, or failed on this prefix.
        """
        session = await self._lifecycle.session()
        options = {"tools": tools, "chat_template_kwargs": chat_template_kwargs}
        return await session.engine.pin(await _encode_prefix(session, messages, prompt, options))

    async def export_prefix(
        self,
        messages: Iterable[MessageLike] | None = None,
        *,
        prompt: str | Sequence[int] | None = None,
        tools: Iterable[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        start: int = 0,
    ) -> PrefixExport:
        """Compute a prefix unless it is cached, and copy its keys and values for another engine:

            with await engine.export_prefix(prompt=token_ids) as pieces:
                async for piece in pieces:
                    await other_engine.import_prefix(piece)

        A request to the other engine that begins with the prefix computes only what follows it,
        with the same bits as on this engine. The pieces are bytes, of some megabytes each, and may
        cross processes and machines. The prefix stays pinned until the end of the scope.

        Args:
            messages: The first messages of chats. Exclusive with `prompt`.
            prompt: The prompt of a text completion, or its beginning: a string, or token ids.
            tools: The tools of these chats, which are a part of the prompt.
            chat_template_kwargs: The template variables of these chats.
            start: The number of tokens that the other engine has already; a multiple of 16.

        Raises:
            BadRequestError: If a field is invalid, or the prefix cache is disabled.
            PromptTooLongError: If the prefix leaves no room for a completion.
            EngineError: If the engine is closed, dead, or failed on this prefix.
            PrefixNotCachedError: While iterating, if the prefix was evicted: the engine was reset,
                or a request could not run otherwise.
        """
        session = await self._lifecycle.session()
        transfers = _transfers(session)
        options = {"tools": tools, "chat_template_kwargs": chat_template_kwargs}
        prefix = await _encode_prefix(session, messages, prompt, options)
        _check_start(start, len(prefix))
        return transfers.export(prefix, start, await session.engine.pin(prefix))

    async def import_prefix(self, piece: Piece) -> int:
        """Add a piece that `export_prefix` of another engine returned to the prefix cache.

        Pieces must be added in their order. What they add may be evicted like any other entry, and
        is then computed when it is needed.

        Returns:
            The number of tokens of the prefix up to the end of the piece.

        Raises:
            PrefixTransferError: If the piece is damaged, or the engines differ in version, model,
                quantization, KV cache dtype or context; `field` names what.
            PrefixNotCachedError: If the preceding pieces are not in the prefix cache (any more).
            BadRequestError: If the prefix does not fit the context window, or the prefix cache is
                disabled.
            EngineOverloadedError: If too few pages of the KV cache are available.
            EngineError: If the engine is closed or dead.
        """
        if not isinstance(piece, Piece):
            raise BadRequestError(
                f"piece: must be bytes, got {type(piece).__name__}", param="piece"
            )

        return await _transfers(await self._lifecycle.session()).load(piece)

    async def count_cached_tokens(
        self,
        messages: Iterable[MessageLike] | None = None,
        *,
        prompt: str | Sequence[int] | None = None,
        tools: Iterable[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> int:
        """Return how many of the first tokens of a prefix are in the prefix cache now.

        The arguments and errors are those of `pin_prefix`.
        """
        session = await self._lifecycle.session()
        options = {"tools": tools, "chat_template_kwargs": chat_template_kwargs}
        prefix = await _encode_prefix(session, messages, prompt, options)
        return await _transfers(session).count_cached(prefix)


async def _encode_prefix(
    session: ModelSession,
    messages: Iterable[object] | None,
    prompt: str | Sequence[int] | None,
    options: Mapping[str, Any],
) -> Prompt:
    """Encode a prefix; `options` are fields of a chat that its template uses."""
    if (messages is None) == (prompt is None):
        raise BadRequestError("a prefix is either messages or a prompt", param="prompt")

    if prompt is not None:
        request = await parse_off_loop(parse_token_request, {"prompt": prompt})
        prefix = await session.encode_prompt(request.prompt)
    else:
        template_options = {name: value for name, value in options.items() if value is not None}
        fields = {"messages": messages, "add_generation_prompt": False, **template_options}
        chat = await parse_off_loop(parse_chat_request, fields)
        images = await session.load_images(chat.images)
        prompt = await render_chat(chat, session.model)
        prefix = await session.encode_chat(prompt, images=images)

    session.check_prompt(prefix)
    return prefix


def _transfers(session: ModelSession) -> PrefixTransfers:
    transfers = session.model.prefix_transfers
    if transfers is None:
        raise BadRequestError(
            "prefixes of this model cannot be transferred: only models can whose layers all have "
            "keys and values, with equal heads, on the device cpu"
        )

    return transfers


def _check_start(start: int, num_tokens: int) -> None:
    if type(start) is not int or not 0 <= start < num_tokens or start % PAGE_SIZE:
        raise BadRequestError(
            f"start: must be a multiple of {PAGE_SIZE} from 0 to {num_tokens - 1}, got {start!r}",
            param="start",
        )
