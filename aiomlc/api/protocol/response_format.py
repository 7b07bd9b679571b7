"""The wire models of `response_format`: OpenAI's types, grammars and structural tags."""

from __future__ import annotations

__all__ = ("ResponseFormat", "parse_response_format")

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from aiomlc.api.protocol.base import FIRST_ERROR, JsonObject, WireModel, parse, plain_fields
from aiomlc.validation.json_values import read_json


def _parse_schema(value: object) -> object:
    """Parse a schema given as JSON text, which MLC LLM's API uses; true means any value."""
    schema = read_json(value) if isinstance(value, str) else value
    return {} if schema is True else schema


Schema = Annotated[JsonObject, BeforeValidator(_parse_schema)]


class TextFormat(WireModel):
    """Unconstrained text."""

    type: Literal["text"]


class JsonObjectFormat(WireModel):
    """A JSON object, optionally of a schema (an extension by MLC LLM)."""

    type: Literal["json_object"]
    schema_: Annotated[Schema | None, Field(alias="schema")] = None


class JsonSchema(WireModel):
    """A named JSON schema, which is enforced regardless of `strict`."""

    name: StrictStr
    description: StrictStr | None = None
    schema_: Annotated[Schema | None, Field(alias="schema")] = None  #: None means any object.
    strict: StrictBool | None = None


class JsonSchemaFormat(WireModel):
    """JSON that conforms to a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class GrammarFormat(WireModel):
    """Text that a grammar or regex generates, in the format of OpenAI's custom tools."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: StrictStr


class TagStructure(WireModel):
    """JSON of a schema between a begin string and an end string."""

    begin: Annotated[str, Field(min_length=1)]
    schema_: Annotated[Schema, Field(alias="schema")]
    end: StrictStr


class StructuralTagFormat(WireModel):
    """Unconstrained text in which every occurrence of a trigger must begin a structure."""

    type: Literal["structural_tag"]
    structures: Annotated[tuple[TagStructure, ...], FIRST_ERROR, Field(min_length=1)]
    triggers: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], FIRST_ERROR, Field(min_length=1)
    ]


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | GrammarFormat | StructuralTagFormat,
    Field(discriminator="type"),
]


class _Holder(WireModel):
    response_format: ResponseFormat


def parse_response_format(value: object) -> ResponseFormat:
    """Validate a `response_format` that is not part of a request.

    Raises:
        BadRequestError: If it is invalid; `param` names the field.
    """
    return parse(_Holder, plain_fields({"response_format": value})).response_format
