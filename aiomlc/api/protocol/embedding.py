"""The wire models of embeddings; `model_dump()` gives OpenAI's JSON."""

from __future__ import annotations

__all__ = (
    "Embedding",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "EmbeddingUsage",
    "SparseEmbedding",
    "parse_embedding_request",
    "to_inputs",
)

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    InstanceOf,
    StrictBool,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from aiomlc.api.protocol.base import ABSENT_IF_NONE, FieldSink, WireModel, parse
from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.api.protocol.messages import image_part, text_part
from aiomlc.api.protocol.request import Name, are_token_ids, with_extra_body
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.images.reference import ImageReference
from aiomlc.runtime.tokenization.prompt_encoder import MAX_PROMPT_CHARACTERS
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.parameter import Integer

_JINA_ITEM = (
    "an object must be {'text': ...}, {'image': ...} with a URL, or a content part of type 'text' "
    "or 'image_url'"
)
_STAND_IN = "image"  # A valid input in place of one that is not text.
_Image = Annotated[
    InstanceOf[ImageReference],
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "type": {"enum": ["text", "image_url"]},
                "text": {"type": "string"},
                "image": {"type": "string"},
                "image_url": {"type": ["object", "string"]},
            },
        }
    ),
]


def to_inputs(value: object) -> tuple[object, ...]:
    """Return a list of inputs as a tuple; a single input becomes a tuple of one."""
    is_single = isinstance(value, str) or are_token_ids(value)
    values = [value] if is_single else value
    inputs = tuple(values) if isinstance(values, (list, tuple)) else ()
    if not inputs:
        raise ValueError(
            "must be a string, a list of token ids or a non-empty list of either, "
            f"got {safe_repr(value)}"
        )

    for index, item in enumerate(inputs):
        if not isinstance(item, str) and not are_token_ids(item):
            raise ValueError(
                f"item {index} must be a string or a non-empty list of token ids, "
                f"got {safe_repr(item)}"
            )

        if isinstance(item, str) and len(item) > MAX_PROMPT_CHARACTERS:
            raise ValueError(
                f"item {index} must have at most {MAX_PROMPT_CHARACTERS} characters, "
                f"got {len(item)}"
            )

    return inputs


def _to_items(value: object, info: ValidationInfo) -> tuple[object, ...]:
    """Return a list of inputs as a tuple, in which objects became texts and images."""
    values = [value] if isinstance(value, Mapping | ImageData) else value
    if not isinstance(values, list | tuple) or are_token_ids(values):
        return to_inputs(values)

    items = tuple(_to_item(item, index, info.context) for index, item in enumerate(values))
    to_inputs([_STAND_IN if isinstance(item, ImageReference) else item for item in items])
    return items


def _to_item(item: object, index: int, ignored: FieldSink | None) -> object:
    if isinstance(item, ImageData):
        return ImageReference(item)

    if not isinstance(item, Mapping):
        return item

    try:
        if "type" not in item:
            return _to_jina_item(item)

        if item["type"] == "image_url":
            return image_part(item, ignored, "input[]")

        return text_part(item, ignored, "only 'text' and 'image_url'", "input[]")
    except PydanticCustomError:
        raise
    except ValueError as error:
        raise ValueError(f"item {index}: {error}") from None


def _to_jina_item(item: Mapping[str, object]) -> object:
    """Return the text or image of an object in the shape of Jina's API."""
    match list(item.items()):
        case [("text", str(text))]:
            return text
        case [("image", str() | bytes() | ImageData() as image)] if image:
            return ImageReference(image)
        case _:
            raise ValueError(_JINA_ITEM)


class EmbeddingRequest(WireModel):
    """A validated request for embeddings."""

    input: Annotated[tuple[str | tuple[int, ...] | _Image, ...], BeforeValidator(_to_items)]
    model: Name | None = None  #: Echoed in the response.
    encoding_format: Literal["float", "base64"] | None = None  #: None means "float".
    #: The number of leading elements to keep of each embedding; None keeps all.
    dimensions: Annotated[int | None, Integer(ge=1)] = None
    user: StrictStr | None = None
    # Extensions of OpenAI's API.
    pooling: Literal["mean", "cls", "last"] | None = None  #: None means the model's default.
    normalize: StrictBool | None = None  #: False keeps the embeddings' norms instead of 1.
    prompt_name: Name | None = None  #: The prompt that precedes texts; None means the default.
    truncate: StrictBool | None = None  #: Whether to truncate inputs that are too long.
    return_sparse: StrictBool | None = None  #: Whether to return the weights of tokens.
    return_multi_vector: StrictBool | None = None  #: Whether to return the vectors of tokens.

    @property
    def images(self) -> list[tuple[str, ImageReference]]:
        """The images in their order, each with the path of its item."""
        return [
            (f"input[{index}]", item)
            for index, item in enumerate(self.input)
            if isinstance(item, ImageReference)
        ]


class SparseEmbedding(WireModel):
    """The weights of the tokens of one input that have one (BGE M3)."""

    indices: list[int]  #: Token ids, ascending.
    values: list[float]  #: The weight of each, > 0.


class Embedding(WireModel):
    """The embedding of one input."""

    object: Literal["embedding"] = "embedding"
    index: int  #: The index of the input.
    embedding: list[float] | str  #: A string is base64 of little-endian float32 values.
    #: With `return_sparse`.
    sparse_embedding: Annotated[SparseEmbedding | None, ABSENT_IF_NONE] = None
    #: With `return_multi_vector`: the vector of each token but the first.
    multi_vector: Annotated[list[list[float] | str] | None, ABSENT_IF_NONE] = None


class EmbeddingUsage(WireModel):
    """Token counts over all inputs, including special tokens."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(WireModel):
    """The embeddings in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


def parse_embedding_request(
    fields: Mapping[str, Any], ignored: IgnoredFields | None = None
) -> EmbeddingRequest:
    """Validate the fields of a request for embeddings.

    Args:
        ignored: Where unknown fields are noted; None rejects them.

    Raises:
        BadRequestError: If a field is invalid or unknown; `param` names it.
    """
    return parse(EmbeddingRequest, with_extra_body(fields), ignored)
