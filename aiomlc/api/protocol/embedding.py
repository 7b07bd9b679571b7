"""Embeddings: `model_dump()` of each is OpenAI's JSON."""

from __future__ import annotations

__all__ = (
    "Embedding",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "EmbeddingUsage",
    "parse_embedding_request",
)

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from aiomlc.api.protocol.base import WireModel, parse
from aiomlc.api.protocol.request import Int64, are_token_ids, with_extra_body


def _as_inputs(value: object) -> tuple[object, ...]:
    """The inputs of a list; one text, or one list of token ids, is a list of one."""
    if isinstance(value, str) or are_token_ids(value):
        return (value,)

    inputs = tuple(value) if isinstance(value, (list, tuple)) else ()
    if not inputs:
        raise ValueError("is not text, token ids or a list of either")

    for index, one in enumerate(inputs):
        if not isinstance(one, str) and not are_token_ids(one):
            raise ValueError(f"item {index} is neither text nor token ids")

    return inputs


class EmbeddingRequest(WireModel):
    """A validated request."""

    input: Annotated[tuple[str | tuple[int, ...], ...], BeforeValidator(_as_inputs)]
    model: StrictStr | None = None  #: Echoed in the answer.
    encoding_format: Literal["float", "base64"] | None = None  #: None is float.
    dimensions: Annotated[Int64, Field(ge=1)] | None = None  #: The first so many elements.
    user: StrictStr | None = None
    pooling: Literal["mean", "cls", "last"] | None = None  #: Ours; None is the model's own.
    normalize: StrictBool | None = None  #: Ours; False leaves the vectors' lengths as they are.
    truncate: StrictBool | None = None  #: Ours; cut an input that is too long.


class Embedding(WireModel):
    """The vector of one input."""

    object: Literal["embedding"] = "embedding"
    index: int  #: Of the input.
    embedding: list[float] | str  #: Text is base64 of float32, little-endian.


class EmbeddingUsage(WireModel):
    """Tokens of all inputs, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(WireModel):
    """The vectors, in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


def parse_embedding_request(fields: Mapping[str, Any]) -> EmbeddingRequest:
    """Validate a request's fields.

    Raises:
        BadRequestError: a field is invalid or unknown; `param` names it.
    """
    return parse(EmbeddingRequest, with_extra_body(fields))
