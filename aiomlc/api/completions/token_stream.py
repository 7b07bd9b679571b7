"""`engine.generate`: a stream of text, token ids and log-probabilities."""

from __future__ import annotations

__all__ = ("TokenStream", "open_token_stream")

import uuid
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, final

from anyio.streams.memory import MemoryObjectStreamStatistics

from aiomlc.api.generation.structured_output import response_grammar
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.token import parse_token_request
from aiomlc.api.session.session import SessionProvider
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.runtime.engine.stream import Delta, DeltaStream


@final
class TokenStream(ChunkStream[Delta, Delta]):
    """The stream of one request's deltas, as an async iterator for one task.

    Yields a `Delta` with new text, token ids and log-probabilities of one choice. The text lags
    the token ids while a token ends in the middle of a character or a stop string may have
    begun. If the reader falls behind, the tokens generated in the meantime arrive merged in one
    delta. Closing and errors are as in `ChunkStream`.
    """

    def __init__(self, stream: DeltaStream, owner: object) -> None:
        super().__init__(stream.request_id, owner)
        self._stream = stream

    def __repr__(self) -> str:
        return f"<TokenStream {self.request_id!r}>"

    def _next_delta(self) -> Awaitable[Delta]:
        return self._stream.__anext__()

    def _delta_to_chunks(self, delta: Delta) -> Iterable[Delta]:
        # As tuples, which the records of the native core become when they are read.
        prompt = tuple(delta.prompt_logprobs)
        return (delta._replace(logprobs=tuple(delta.logprobs), prompt_logprobs=prompt),)

    def _delta_statistics(self) -> MemoryObjectStreamStatistics:
        return self._stream.statistics()

    def _cancel(self) -> None:
        self._stream.close()


async def open_token_stream(
    service: SessionProvider, prompt: str | Sequence[int], options: Mapping[str, Any]
) -> TokenStream:
    """Submit a request and return its stream.

    Raises:
        AiomlcError: As `AsyncMLCEngine.generate`.
    """
    fields = {"prompt": prompt, "stream": True, **options}
    request = await parse_off_loop(parse_token_request, fields)
    session = await service.session()
    request_id = request.request_id or f"gen-{uuid.uuid4().hex}"
    with session.preparation(
        request, request_id, request.num_choices, "text_completion"
    ) as elapsed:
        encoded = await session.encode_prompt(
            request.prompt,
            add_special_tokens=request.add_special_tokens,
            split_special_tokens=request.split_special_tokens,
        )
        session.check_prompt(encoded)
        uncompiled = response_grammar(request.response_format, session.model)
        grammar = await session.compile(uncompiled, "response_format", request.num_choices)

    # No await from here on, so that a cancelled caller never leaves a request without a reader.
    stream = session.open_stream(
        encoded,
        request,
        request_id,
        request.num_choices,
        grammar,
        operation="text_completion",
        elapsed=elapsed.seconds,
    )
    return TokenStream(stream, service)
