"""Messages for invalid fields, with MLC LLM's texts where its users may match them."""

from __future__ import annotations

__all__ = ("describe_error",)

from collections.abc import Callable, Mapping

from pydantic_core import ErrorDetails

from aiomlc.validation.json_values import short_repr

_KEY = "[key]"  # Pydantic's location step for the key of a dict.
# Fields with two bounds: the message gives both, whichever was violated.
_RANGES: Mapping[str, str] = {
    "frequency_penalty": "[-2, 2]",
    "logit_bias": "[-100, 100]",
    "logprobs": "[0, 20]",
    "min_p": "[0, 1]",
    "presence_penalty": "[-2, 2]",
    "top_logprobs": "[0, 20]",
    "top_p": "[0, 1]",
}


def describe_error(error: ErrorDetails) -> str:
    """Return why a field is invalid, without the name of the field."""
    describe = _DESCRIPTIONS.get(error["type"])
    if describe is not None:
        return describe(error)

    return error["msg"].removeprefix("Value error, ").removeprefix("Input ")


def _describe_out_of_range(error: ErrorDetails) -> str:
    return f"should be {_allowed_range(error)}, got {short_repr(error['input'])}"


def _allowed_range(error: ErrorDetails) -> str:
    for field, bounds_text in _RANGES.items():
        if field in error["loc"] and _KEY not in error["loc"]:
            return f"in range {bounds_text}"

    bounds = error.get("ctx", {})
    match error["type"]:
        case "greater_than":
            return "positive" if bounds["gt"] == 0 else f"greater than {bounds['gt']}"
        case "greater_than_equal":
            return "non-negative" if bounds["ge"] == 0 else f"at least {bounds['ge']}"
        case "less_than":
            return f"less than {bounds['lt']}"
        case _:
            return f"at most {bounds['le']}"


def _describe_wrong_tag(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    field, tag = context["discriminator"], context["tag"]
    if not field.startswith("'"):  # A function, whose tags are not all values of the field.
        return f"type {tag!r} is not supported"

    return f"{field.strip(chr(39))} must be one of {context['expected_tags']}, got {tag!r}"


# The JSON type that a field requires, by pydantic's error type.
_JSON_TYPES: Mapping[str, str] = {
    "bool_type": "a boolean",
    "dict_type": "an object",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_type": "an integer",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "a string",
    "tuple_type": "a list",
}


def _describe_wrong_type(error: ErrorDetails) -> str:
    return f"must be {_JSON_TYPES[error['type']]}, got {type(error['input']).__name__}"


_DESCRIPTIONS: Mapping[str, Callable[[ErrorDetails], str]] = {
    **dict.fromkeys(_JSON_TYPES, _describe_wrong_type),
    "extra_forbidden": lambda error: "unknown field",
    "greater_than": _describe_out_of_range,
    "greater_than_equal": _describe_out_of_range,
    "less_than": _describe_out_of_range,
    "less_than_equal": _describe_out_of_range,
    "string_too_short": lambda error: "cannot be empty",
    "too_short": lambda error: "cannot be empty",
    "union_tag_invalid": _describe_wrong_tag,
}
