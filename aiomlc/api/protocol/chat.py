"""Chat completions and their chunks: `model_dump()` of each is OpenAI's JSON."""

from __future__ import annotations

__all__ = (
    "ChatCompletion",
    "ChatCompletionChunk",
    "ChatCompletionMessage",
    "Choice",
    "ChoiceDelta",
    "ChunkChoice",
    "FinishReason",
    "PromptTokensDetails",
    "Usage",
)

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from aiomlc.api.protocol.wire import WireModel

FinishReason = Literal["stop", "length"]


def _is_none(value: object) -> bool:
    return value is None


class PromptTokensDetails(WireModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int  #: Those that an earlier or concurrent request had computed.


class Usage(WireModel):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class ChatCompletionMessage(WireModel):
    """What the model said."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None = None


class Choice(WireModel):
    """One answer."""

    index: int
    message: ChatCompletionMessage
    logprobs: None = None
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


class ChoiceDelta(WireModel):
    """What an answer gained; the wire form has only the fields that are there."""

    role: Annotated[Literal["assistant"] | None, Field(exclude_if=_is_none)] = None
    content: Annotated[str | None, Field(exclude_if=_is_none)] = None


class ChunkChoice(WireModel):
    """The gain of one answer."""

    index: int
    delta: ChoiceDelta
    logprobs: None = None
    finish_reason: FinishReason | None = None


class ChatCompletionChunk(WireModel):
    """One event of a stream. All chunks of a stream share `id` and `created`."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int  #: Unix time in seconds.
    model: str
    choices: list[ChunkChoice]
    system_fingerprint: str | None = None
    usage: Usage | None = None  #: In the last chunk, if it was asked for.

    @model_serializer(mode="wrap")
    def _wire_form(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # OpenAI has a null usage in every chunk of a stream that ends with one, else no field.
        fields: dict[str, Any] = serialize(self)
        if "usage" not in self.model_fields_set:
            fields.pop("usage", None)

        return fields
