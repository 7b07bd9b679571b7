"""The wire models of token usage."""

from __future__ import annotations

__all__ = ("CompletionTokensDetails", "PromptTokensDetails", "StreamedWithUsage", "Usage")

from typing import Annotated, Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from aiomlc.api.protocol.base import ABSENT_IF_NONE, WireModel


class PromptTokensDetails(WireModel):
    """A breakdown of the prompt tokens."""

    cached_tokens: int = 0  #: Tokens found in the KV cache, computed for another request.
    #: Tokens that are embeddings of images; None if the prompt has no images.
    image_tokens: Annotated[int | None, ABSENT_IF_NONE] = None
    #: Tokens that are embeddings of audio; None if the prompt has no audio.
    audio_tokens: Annotated[int | None, ABSENT_IF_NONE] = None


class CompletionTokensDetails(WireModel):
    """A breakdown of the completion tokens."""

    reasoning_tokens: int = 0  #: Tokens of the reasoning and its markers; estimated at its end.


class Usage(WireModel):
    """Token counts of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails = PromptTokensDetails()
    #: None unless reasoning is separated from the content.
    completion_tokens_details: Annotated[CompletionTokensDetails | None, ABSENT_IF_NONE] = None
    #: Times and rates under MLC LLM's names, or None if not measured; see `request_metrics`.
    extra: Annotated[dict[str, Any] | None, ABSENT_IF_NONE] = None


class StreamedWithUsage(WireModel):
    """The base class of chunks of a stream that ends with the usage if requested."""

    usage: Usage | None = None  #: Set in the last chunk only, or in all if the request asks for it.

    @model_serializer(mode="wrap")
    def _serialize(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # As in OpenAI's API: if the usage is requested, all other chunks have a null usage;
        # otherwise no chunk has the field.
        fields: dict[str, Any] = serialize(self)
        if "usage" not in self.model_fields_set:
            fields.pop("usage", None)

        return fields
