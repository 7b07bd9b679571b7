"""The base class of the wire models, and the conversion of validation errors."""

from __future__ import annotations

__all__ = (
    "ABSENT_IF_NONE",
    "FIRST_ERROR",
    "NONE_IS_EMPTY",
    "UNKNOWN_IN_PART",
    "FieldSink",
    "JsonObject",
    "WireModel",
    "construct_unchecked",
    "model_dict",
    "parse",
    "plain_fields",
)

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from aiomlc.errors import BadRequestError, UnsupportedFieldError
from aiomlc.validation.error_messages import describe_error
from aiomlc.validation.json_values import InvalidValueError, is_utf8, short_name, to_plain
from aiomlc.validation.request_shape import check_shape

_Model = TypeVar("_Model", bound="WireModel")
# The models are frozen, so their state can only be set through the descriptors of BaseModel.
_DESCRIPTORS = vars(BaseModel)
_get_dict = _DESCRIPTORS["__dict__"].__get__
_set_dict = _DESCRIPTORS["__dict__"].__set__
_set_fields_set = _DESCRIPTORS["__pydantic_fields_set__"].__set__
_set_extra = _DESCRIPTORS["__pydantic_extra__"].__set__
_set_private = _DESCRIPTORS["__pydantic_private__"].__set__

#: Stops at the first invalid item of a list, and does not describe all of them.
FIRST_ERROR: Any = Field(fail_fast=True)
NONE_IS_EMPTY = BeforeValidator(lambda value: () if value is None else value)


def _check_is_json(fields: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(fields)
    except TypeError as error:
        raise ValueError(f"is not JSON: {error}") from None

    return fields


#: Of a field that JSON omits if it is None.
ABSENT_IF_NONE: Any = Field(exclude_if=lambda value: value is None)
#: A JSON object with arbitrary fields, such as a JSON schema or template variables.
JsonObject = Annotated[dict[str, Any], AfterValidator(_check_is_json)]


class WireModel(BaseModel):
    """An immutable object of the OpenAI API; unknown fields are rejected."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False
    )

    if not TYPE_CHECKING:

        def __getitem__(self, name):  # noqa: ANN001, ANN204
            """Raise what a dictionary's way of reading an answer should be."""
            raise TypeError(
                f"{type(self).__name__} is an object: write `.{name}` in place of `[{name!r}]`, "
                "or call `to_dict()`"
            )

    def to_dict(
        self,
        *,
        mode: Literal["json", "python"] = "python",
        exclude_unset: bool = True,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
    ) -> dict[str, object]:
        """Return the fields, as OpenAI's models do; by default those that are set."""
        return self.model_dump(
            mode=mode,
            exclude_unset=exclude_unset,
            exclude_defaults=exclude_defaults,
            exclude_none=exclude_none,
        )

    def to_json(
        self,
        *,
        indent: int | None = 2,
        exclude_unset: bool = True,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
    ) -> str:
        """Return the fields as JSON, as OpenAI's models do; by default those that are set."""
        return self.model_dump_json(
            indent=indent,
            exclude_unset=exclude_unset,
            exclude_defaults=exclude_defaults,
            exclude_none=exclude_none,
        )


def construct_unchecked(
    model: type[_Model], fields: dict[str, Any], fields_set: set[str]
) -> _Model:
    """Construct a model from valid values, at half the cost of `model_validate`.

    Args:
        fields: The values of all fields, in the order of the class; nested models must be
            instances. The result takes ownership of the dict.
        fields_set: The names of the explicitly set fields. Never modified, so it may be shared.
    """
    instance = object.__new__(model)
    _set_dict(instance, fields)
    _set_fields_set(instance, fields_set)
    _set_extra(instance, None)
    _set_private(instance, None)
    return instance


def model_dict(model: WireModel) -> dict[str, Any]:
    """Return the `__dict__` of a model, whatever its class does to read it."""
    fields: dict[str, Any] = _get_dict(model)
    return fields


def plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the fields of a caller's request; see `to_plain`.

    Raises:
        BadRequestError: If a value is invalid, such as a lone surrogate, or raises when it is read,
            or if there are too many names and values; `param` names it.
    """
    check_shape(fields)
    plain = {}
    for name, value in fields.items():
        if _is_omitted(value):
            continue

        if not is_utf8(str(name)):
            escaped = short_name(str(name)).encode(errors="backslashreplace").decode()
            raise BadRequestError(f"{escaped}: unknown field", param=escaped)

        try:
            plain[name] = to_plain(value)
        except InvalidValueError as error:
            param = f"{short_name(str(name))}{error.path}"
            raise BadRequestError(f"{param}: {error.reason}", param=param) from error.__cause__

    return plain


def _is_omitted(value: object) -> bool:
    """Return whether a value is OpenAI's `omit` or `NOT_GIVEN`, without importing its package."""
    kind = type(value)
    return kind.__name__ in ("Omit", "NotGiven") and kind.__module__.split(".")[0] == "openai"


class FieldSink(Protocol):
    """Collects the names of ignored fields; validators get it as their context."""

    def add(self, path: str) -> None:
        """Note that the field at a path was ignored."""
        ...


def parse(
    model: type[_Model], fields: Mapping[str, Any], ignored: FieldSink | None = None
) -> _Model:
    """Validate fields; those of a caller must have been copied by `plain_fields`.

    Args:
        ignored: Where unknown fields are noted, at any depth; None means that they are errors.

    Raises:
        BadRequestError: If a field is invalid; `param` and the message name the first such field.
    """
    try:
        return model.model_validate(fields, context=ignored)
    except ValidationError as error:
        if ignored is None:
            raise _to_request_error(error, model) from None

        for each in error.errors(include_url=False, include_context=False, include_input=False):
            if each["type"] == _UNKNOWN:
                ignored.add(_param_path(each["loc"]))

    try:
        return model.model_validate(fields, context=ignored, extra="ignore")
    except ValidationError as error:
        raise _to_request_error(error, model) from None


def _to_request_error(error: ValidationError, model: type[BaseModel]) -> BadRequestError:
    first = error.errors(include_url=False)[0]
    param = _param_path(first["loc"])
    reason = describe_error(first, known=tuple(model.model_fields))
    is_unknown = first["type"] in (_UNKNOWN, UNKNOWN_IN_PART)
    kind = UnsupportedFieldError if is_unknown else BadRequestError
    return kind(f"{param}: {reason}", param=param)


def _param_path(location: tuple[int | str, ...]) -> str:
    """Convert pydantic's location to a path such as `messages[0].content`.

    The path omits union tags and the marker for a dict key, which pydantic adds.
    """
    path = ""
    previous: int | str = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != _KEY and not _is_union_tag(step, previous):
            name = short_name(step)
            path += f".{name}" if path else name

        previous = step

    return path


def _is_union_tag(step: str, previous: int | str) -> bool:
    field = _LIST_ITEM if isinstance(previous, int) else previous
    return step in _UNION_TAGS.get(field, ())


_UNKNOWN = "extra_forbidden"  # Pydantic's type of the error for an unknown field.
UNKNOWN_IN_PART = "unknown_in_part"  #: Ours, for an unknown field of a content part.
_KEY = "[key]"  # Pydantic's location step for the key of a dict.
_LIST_ITEM = "[item]"
# The tags of each union, by the field that has the union as its type.
_UNION_TAGS = {
    _LIST_ITEM: (
        "assistant",
        "developer",
        "function_call",
        "function_call_output",
        "image part",
        "message",
        "reasoning",
        "system",
        "text part",
        "tool",
        "user",
    ),
    "format": ("text", "json_object", "json_schema"),
    "response_format": ("text", "json_object", "json_schema", "grammar", "structural_tag"),
    "tool_choice": ("mode", "function", "allowed_tools"),
}
