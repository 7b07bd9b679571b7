"""The one place that sums a stream."""

from __future__ import annotations

__all__ = ("aggregate",)

from collections.abc import AsyncIterable

from aiomlc.api.protocol.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    Choice,
    FinishReason,
    Usage,
)
from aiomlc.errors import RequestFailedError


async def aggregate(chunks: AsyncIterable[ChatCompletionChunk]) -> ChatCompletion:
    """The whole answer that the chunks of one request add up to.

    Raises:
        RequestFailedError: the stream ended before the answer did.
    """
    texts: dict[int, list[str]] = {}
    finish_reasons: dict[int, FinishReason] = {}
    usage: Usage | None = None
    last: ChatCompletionChunk | None = None
    async for chunk in chunks:
        last = chunk
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts.setdefault(choice.index, []).append(choice.delta.content or "")
            if choice.finish_reason is not None:
                finish_reasons[choice.index] = choice.finish_reason

    if last is None or not texts or texts.keys() != finish_reasons.keys():
        raise RequestFailedError("the stream ended before the answer did")

    return ChatCompletion(
        id=last.id,
        created=last.created,
        model=last.model,
        choices=[
            Choice(
                index=index,
                message=ChatCompletionMessage(content="".join(texts[index])),
                finish_reason=finish_reasons[index],
            )
            for index in sorted(texts)
        ],
        usage=usage,
        system_fingerprint=last.system_fingerprint,
    )
