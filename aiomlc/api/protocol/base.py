"""What the wire models share: their base, and how a failed parse reads."""

from __future__ import annotations

__all__ = ("NONE_IS_EMPTY", "JsonObject", "WireModel", "construct_unchecked", "parse")

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from aiomlc.api.protocol.error_messages import describe_error
from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import find_invalid, is_utf8

_Model = TypeVar("_Model", bound="WireModel")
# Where a model keeps its state. The models are frozen, so their attributes cannot be assigned.
_STATE = vars(BaseModel)
_set_fields = _STATE["__dict__"].__set__
_set_given = _STATE["__pydantic_fields_set__"].__set__
_set_extra = _STATE["__pydantic_extra__"].__set__
_set_private = _STATE["__pydantic_private__"].__set__

NONE_IS_EMPTY = BeforeValidator(lambda value: () if value is None else value)


def _has_json(fields: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(fields)
    except TypeError as error:
        raise ValueError(f"is not JSON: {error}") from error

    return fields


#: A schema, or variables of a template: any fields, of JSON's types.
JsonObject = Annotated[dict[str, Any], AfterValidator(_has_json)]


class WireModel(BaseModel):
    """A frozen record of OpenAI's; an unknown field is an error."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False
    )


def construct_unchecked(model: type[_Model], fields: dict[str, Any], given: set[str]) -> _Model:
    """A model of values that are known to be right, at half the cost of `model_validate`.

    Args:
        fields: All fields, in the order of the class, nested models as such. Owned by the result.
        given: The names of those that are not left at their defaults. Never changed, so it may
            be shared.
    """
    made = object.__new__(model)
    _set_fields(made, fields)
    _set_given(made, given)
    _set_extra(made, None)
    _set_private(made, None)
    return made


def parse(model: type[_Model], fields: Mapping[str, Any]) -> _Model:
    """Validate foreign fields.

    Raises:
        BadRequestError: the first field that is wrong, named in `param` and in the message.
    """
    _check(fields)
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        param = _path(first["loc"])
        raise BadRequestError(f"{param}: {describe_error(first)}", param=param) from error


def _check(fields: Mapping[str, Any]) -> None:
    """Refuse what nothing behind this could read, before anything tries to."""
    for name, value in fields.items():
        if not is_utf8(str(name)):
            readable = str(name).encode(errors="backslashreplace").decode()
            raise BadRequestError(f"{readable}: is not a known field", param=readable)

        if fault := find_invalid(value):
            param = f"{name}{fault.path}"
            raise BadRequestError(f"{param}: {fault.reason}", param=param)


def _path(location: tuple[int | str, ...]) -> str:
    """`messages[0].content`: pydantic's location without its marks for a union and a key."""
    path = ""
    previous: int | str = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != _KEY and not _is_tag(step, previous):
            path += f".{step}" if path else step

        previous = step

    return path


def _is_tag(step: str, previous: int | str) -> bool:
    field = _KEY if isinstance(previous, int) else previous
    return step in _TAGS.get(field, ())


_KEY = "[key]"
# The names of a union's parts, by the field that is the union; a message is one in a list.
_TAGS = {
    _KEY: (
        "assistant",
        "developer",
        "function_call",
        "function_call_output",
        "message",
        "reasoning",
        "system",
        "tool",
        "user",
    ),
    "format": ("text", "json_object", "json_schema"),
    "response_format": ("text", "json_object", "json_schema", "grammar", "structural_tag"),
    "tool_choice": ("mode", "function", "allowed_tools"),
}
