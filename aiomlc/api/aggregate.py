"""The one place that sums a stream."""

from __future__ import annotations

__all__ = ("aggregate",)

from collections.abc import AsyncIterable

from aiomlc.api.protocol.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    Choice,
    ChoiceLogprobs,
    FinishReason,
    TokenLogprob,
    Usage,
)
from aiomlc.errors import RequestFailedError


async def aggregate(chunks: AsyncIterable[ChatCompletionChunk]) -> ChatCompletion:
    """The whole answer that the chunks of one request add up to.

    Raises:
        RequestFailedError: the stream ended before the answer did.
    """
    texts: list[str] = []
    logprobs: list[TokenLogprob] | None = None
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    last: ChatCompletionChunk | None = None
    async for chunk in chunks:
        last = chunk
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts.append(choice.delta.content or "")
            finish_reason = choice.finish_reason or finish_reason
            if choice.logprobs is not None:
                logprobs = [*(logprobs or ()), *choice.logprobs.content]

    if last is None or finish_reason is None:
        raise RequestFailedError("the stream ended before the answer did")

    answer = Choice(
        index=0,
        message=ChatCompletionMessage(content="".join(texts)),
        logprobs=None if logprobs is None else ChoiceLogprobs(content=logprobs),
        finish_reason=finish_reason,
    )
    return ChatCompletion(
        id=last.id,
        created=last.created,
        model=last.model,
        choices=[answer],
        usage=usage,
        system_fingerprint=last.system_fingerprint,
    )
