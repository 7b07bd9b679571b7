"""Token counts, and how a stream tells them."""

from __future__ import annotations

__all__ = ("CompletionTokensDetails", "PromptTokensDetails", "StreamedWithUsage", "Usage")

from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from aiomlc.api.protocol.base import WireModel


class PromptTokensDetails(WireModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int = 0  #: Those that an earlier or concurrent request had computed.


class CompletionTokensDetails(WireModel):
    """What the completion's tokens were for."""

    reasoning_tokens: int = 0  #: Of its thoughts; estimated where they end.


class Usage(WireModel):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails = PromptTokensDetails()
    #: Of a model that thinks aloud.
    completion_tokens_details: Annotated[
        CompletionTokensDetails | None, Field(exclude_if=lambda value: value is None)
    ] = None
    #: Times and rates under upstream's names, where there are any; see `request_metrics`.
    extra: Annotated[dict[str, float] | None, Field(exclude_if=lambda value: value is None)] = None


class StreamedWithUsage(WireModel):
    """An event of a stream that ends with the usage, if it was asked for."""

    usage: Usage | None = None  #: In the last event.

    @model_serializer(mode="wrap")
    def _wire_form(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # OpenAI has a null usage in every event of a stream that ends with one, else no field.
        fields: dict[str, Any] = serialize(self)
        if "usage" not in self.model_fields_set:
            fields.pop("usage", None)

        return fields
