"""What an answer must be: OpenAI's `response_format` and what servers add to it."""

from __future__ import annotations

__all__ = ("ResponseFormat", "parse_response_format")

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from aiomlc.api.protocol.base import JsonObject, WireModel, parse
from aiomlc.validation.json_values import read_json


def _parsed(value: object) -> object:
    """A schema that was written as JSON text, as upstream's is, as its object."""
    return read_json(value) if isinstance(value, str) else value


Schema = Annotated[JsonObject, BeforeValidator(_parsed)]


class TextFormat(WireModel):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(WireModel):
    """A JSON object; `schema` is upstream's way to say which."""

    type: Literal["json_object"]
    schema_: Annotated[Schema | None, Field(alias="schema")] = None


class JsonSchema(WireModel):
    """A schema; it is enforced whether it is called strict or not."""

    name: StrictStr
    description: StrictStr | None = None
    schema_: Annotated[Schema | None, Field(alias="schema")] = None  #: None is any object.
    strict: StrictBool | None = None


class JsonSchemaFormat(WireModel):
    """JSON that a schema describes."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class GrammarFormat(WireModel):
    """Text of a language, in the form of OpenAI's custom tools."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: StrictStr


class TagStructure(WireModel):
    """JSON between two texts."""

    begin: Annotated[str, Field(min_length=1)]
    schema_: Annotated[Schema, Field(alias="schema")]
    end: StrictStr


class StructuralTagFormat(WireModel):
    """Any text, but what a trigger begins must be one of the structures."""

    type: Literal["structural_tag"]
    structures: Annotated[tuple[TagStructure, ...], Field(min_length=1)]
    triggers: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | GrammarFormat | StructuralTagFormat,
    Field(discriminator="type"),
]


class _Holder(WireModel):
    response_format: ResponseFormat


def parse_response_format(value: object) -> ResponseFormat:
    """Validate a `response_format` that stands alone.

    Raises:
        BadRequestError: it is none; `param` names the field.
    """
    return parse(_Holder, {"response_format": value}).response_format
