"""Chat completions and their chunks: `model_dump()` of each is OpenAI's JSON."""

from __future__ import annotations

__all__ = (
    "ChatCompletion",
    "ChatCompletionChunk",
    "ChatCompletionMessage",
    "Choice",
    "ChoiceDelta",
    "ChoiceDeltaToolCall",
    "ChoiceLogprobs",
    "ChunkChoice",
    "FinishReason",
    "FunctionDelta",
    "PromptLogprobs",
    "TokenLogprob",
    "TopLogprob",
    "Usage",
)

from typing import Annotated, Literal, final

from pydantic import Field

from aiomlc.api.protocol.base import WireModel
from aiomlc.api.protocol.messages import ToolCall
from aiomlc.api.protocol.usage import StreamedWithUsage, Usage

# "error" is of JSONFFIEngine alone, whose errors are chunks.
FinishReason = Literal["stop", "length", "tool_calls", "error"]


def _is_none(value: object) -> bool:
    return value is None


@final
class _NoText(str):
    """Of a delta without text: upstream's readers add texts up, or print them, unasked."""

    __slots__ = ()


def _is_no_text(value: object) -> bool:
    return value is None or isinstance(value, _NoText)


class ChatCompletionMessage(WireModel):
    """What the model said."""

    role: Literal["assistant"] = "assistant"
    content: str | None  #: None when it only calls tools.
    refusal: str | None = None
    #: What it thought before; not OpenAI's, but what servers like theirs call it.
    reasoning_content: Annotated[str | None, Field(exclude_if=_is_none)] = None
    tool_calls: Annotated[list[ToolCall] | None, Field(exclude_if=_is_none)] = None


class TopLogprob(WireModel):
    """A token that was likely in some place, the chosen one or another."""

    token: str  #: Bytes that are no whole characters are U+FFFD here.
    logprob: float
    bytes: list[int] | None  #: What the token adds to the text; None is nothing.


class TokenLogprob(TopLogprob):
    """A token of the answer, or of the prompt, and what else was likely in its place."""

    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(WireModel):
    """An entry for each token, in order; their text may come with a later chunk."""

    content: list[TokenLogprob]
    refusal: None = None


#: An entry for each token of the prompt, None for the first; not OpenAI's, and there if asked for.
PromptLogprobs = Annotated[list[TokenLogprob | None] | None, Field(exclude_if=_is_none)]


class Choice(WireModel):
    """One answer."""

    index: int
    message: ChatCompletionMessage
    logprobs: ChoiceLogprobs | None = None  #: If they were asked for.
    finish_reason: FinishReason


class ChatCompletion(WireModel):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int  #: Unix time in seconds.
    model: str
    choices: list[Choice]
    usage: Usage | None = None
    system_fingerprint: str | None = None
    prompt_logprobs: PromptLogprobs = None


class FunctionDelta(WireModel):
    """The name, once, and then the arguments' JSON text piece by piece."""

    name: Annotated[str | None, Field(exclude_if=_is_none)] = None
    arguments: Annotated[str | None, Field(exclude_if=_is_none)] = None


class ChoiceDeltaToolCall(WireModel):
    """What the call at `index` gained; its first delta has the id, the type and the name."""

    index: int
    id: Annotated[str | None, Field(exclude_if=_is_none)] = None
    type: Annotated[Literal["function"] | None, Field(exclude_if=_is_none)] = None
    function: FunctionDelta


class ChoiceDelta(WireModel):
    """What an answer gained; the wire form has only the fields that are there."""

    role: Annotated[Literal["assistant"] | None, Field(exclude_if=_is_none)] = None
    #: Where it has none, "" here and no field in the wire form.
    content: Annotated[str | None, Field(exclude_if=_is_no_text)] = _NoText()
    reasoning_content: Annotated[str | None, Field(exclude_if=_is_none)] = None
    tool_calls: Annotated[list[ChoiceDeltaToolCall] | None, Field(exclude_if=_is_none)] = None


class ChunkChoice(WireModel):
    """The gain of one answer."""

    index: int
    delta: ChoiceDelta
    logprobs: ChoiceLogprobs | None = None  #: If they were asked for; not with a finish reason.
    finish_reason: FinishReason | None = None


class ChatCompletionChunk(StreamedWithUsage):
    """One event of a stream. All chunks of a stream share `id` and `created`."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int  #: Unix time in seconds.
    model: str
    choices: list[ChunkChoice]
    system_fingerprint: str | None = None
    prompt_logprobs: PromptLogprobs = None  #: On the first chunk.
