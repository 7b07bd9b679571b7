"""The types that `parse` accepts, and the errors for those it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NoReturn

import pytest
from pydantic import BaseModel, ConfigDict, GetPydanticSchema
from pydantic_core import core_schema

from aiomlc import BadRequestError
from aiomlc.api.chat.typed_output import TypedOutput, output_reader


class Person(BaseModel):
    name: str


def raising(error: Exception) -> object:
    """Return a type whose schema raises."""

    def schema(*_: object) -> NoReturn:
        raise error

    return Annotated[int, GetPydanticSchema(schema)]


class Raises(type):
    """A metaclass of which every attribute raises."""

    def __getattribute__(cls, name: str) -> NoReturn:
        raise KeyError(name)


IMPOSSIBLE = {
    "a number's text": b"x",
    "function": len,
    "instance": object(),
    "callable": Callable[[int], int],
    "forward reference": list["Nope"],  # type: ignore[name-defined] # noqa: F821
    "malformed reference": list["a b"],  # type: ignore[valid-type] # noqa: F722
    "surrogate": Literal["\ud800"],
    "class": raising(KeyError("a")),
    "recursion": raising(RecursionError()),
    "schema": Annotated[int, GetPydanticSchema(lambda *_: {"type": "nope"})],
    "metaclass": Raises("Odd", (), {}),
    "validator": Annotated[int, GetPydanticSchema(lambda *_: core_schema.is_instance_schema(int))],
}  # fmt: skip


@pytest.mark.parametrize("output_type", [Person, int, list[Person], Person | None, Literal["a"]])
def test_types_that_pydantic_supports(output_type: Any) -> None:  # noqa: ANN401
    reader = output_reader(output_type)

    assert isinstance(reader, TypedOutput)
    assert reader.response_format["type"] == "json_schema"


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_an_impossible_type_is_a_bad_request(kind: str) -> None:
    output_type: Any = IMPOSSIBLE[kind]

    with pytest.raises(BadRequestError, match=r"^response_format: .") as caught:
        TypedOutput(output_type)

    assert caught.value.param == "response_format"
    assert "\n" not in str(caught.value)


def test_a_type_may_have_any_name() -> None:
    class default(BaseModel):  # noqa: N801
        const: int = 3

    class Outer(BaseModel):
        inner: default

    reader = output_reader(Outer)
    assert isinstance(reader, TypedOutput)
    schema = reader.response_format["json_schema"]["schema"]

    assert schema["properties"]["inner"] == {"$ref": "#/$defs/default"}
    assert schema["$defs"]["default"]["properties"]["const"]["type"] == "integer"
    assert schema["$defs"]["default"]["required"] == ["const"]


def test_a_property_may_be_called_like_a_keyword() -> None:
    class Options(BaseModel):
        model_config = ConfigDict(json_schema_extra={"dependentRequired": {"default": ["other"]}})
        default: int
        other: int

    reader = output_reader(Options)
    assert isinstance(reader, TypedOutput)
    schema = reader.response_format["json_schema"]["schema"]

    assert schema["required"] == ["default", "other"]
    assert schema["dependentRequired"] == {"default": ["other"]}
