"""Messages for invalid fields, with MLC LLM's texts where its users may match them."""

from __future__ import annotations

__all__ = ("describe_error", "describe_requirement")

from collections.abc import Mapping

from pydantic_core import ErrorDetails

from aiomlc.validation.json_values import safe_repr, short_repr
from aiomlc.validation.parameter import OUT_OF_RANGE


def describe_error(error: ErrorDetails) -> str:
    """Return why a field of a request is invalid, without the name of the field."""
    match error["type"]:
        case "extra_forbidden":
            return "unknown field"
        case "string_too_short" | "too_short":
            return "cannot be empty"
        case "union_tag_invalid":
            return _describe_wrong_tag(error)
        case kind if kind == OUT_OF_RANGE:
            return f"{error['msg']}, got {short_repr(error['input'])}"
        case kind if kind in _BOUNDS:
            return f"should be {_allowed_range(error)}, got {short_repr(error['input'])}"
        case kind if kind in _TYPES:
            return f"must be {_TYPES[kind]}, got {type(error['input']).__name__}"
        case _:
            return error["msg"].removeprefix("Value error, ").removeprefix("Input ")


def describe_requirement(error: ErrorDetails) -> str:
    """Return the requirement of an argument and its value: `>= 0, got -1`."""
    value = error["input"]
    context = error.get("ctx", {})
    match error["type"]:
        case "literal_error":
            return f"one of {context['expected'].replace(' or ', ', ')}, got {safe_repr(value)}"
        case kind if kind == OUT_OF_RANGE:
            return f"{error['msg'].removeprefix('should be ')}, got {safe_repr(value)}"
        case kind if kind in _BOUNDS:
            name, sign = _BOUNDS[kind]
            return f"{sign} {context[name]}, got {safe_repr(value)}"
        case kind if kind in _TYPES:
            return f"{_TYPES[kind]}, got {safe_repr(value)}"
        case _:
            return f"valid: {error['msg']}"


# The bound that a number violates, and its sign, by pydantic's error type.
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
}
# The type that a field requires, by pydantic's error type.
_TYPES: Mapping[str, str] = {
    "bool_type": "a boolean",
    "callable_type": "a function",
    "dict_type": "an object",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_type": "an integer",
    "mapping_type": "an object",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "a string",
    "tuple_type": "a list",
}


def _allowed_range(error: ErrorDetails) -> str:
    name, _ = _BOUNDS[error["type"]]
    bound = error.get("ctx", {})[name]
    match name:
        case "gt":
            return "positive" if bound == 0 else f"greater than {bound}"
        case "ge":
            return "non-negative" if bound == 0 else f"at least {bound}"
        case "lt":
            return f"less than {bound}"
        case _:
            return f"at most {bound}"


def _describe_wrong_tag(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    field, tag = context["discriminator"], context["tag"]
    if not field.startswith("'"):  # A function, whose tags are not all values of the field.
        return f"type {tag!r} is not supported"

    return f"{field.strip(chr(39))} must be one of {context['expected_tags']}, got {tag!r}"
