"""How a field that is wrong reads: in upstream's words where upstream has some."""

from __future__ import annotations

__all__ = ("describe_error",)

from collections.abc import Callable, Mapping

from pydantic_core import ErrorDetails

from aiomlc.validation.json_values import short_repr

_KEY = "[key]"  # Pydantic's mark for the key of an entry.
# Fields with two bounds: both are said, whichever is passed.
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
    """What is wrong with the field that pydantic names, without the name."""
    tell = _TOLD.get(error["type"])
    if tell is not None:
        return tell(error)

    return error["msg"].removeprefix("Value error, ").removeprefix("Input ")


def _out_of_range(error: ErrorDetails) -> str:
    return f"should be {_rule(error)}, not {short_repr(error['input'])}"


def _rule(error: ErrorDetails) -> str:
    for field, both in _RANGES.items():
        if field in error["loc"] and _KEY not in error["loc"]:
            return f"in range {both}"

    bounds = error.get("ctx", {})
    match error["type"]:
        case "greater_than":
            return "positive" if bounds["gt"] == 0 else f"above {bounds['gt']}"
        case "greater_than_equal":
            return "non-negative" if bounds["ge"] == 0 else f"at least {bounds['ge']}"
        case "less_than":
            return f"below {bounds['lt']}"
        case _:
            return f"at most {bounds['le']}"


def _wrong_tag(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    told = context["discriminator"]
    if not told.startswith("'"):  # A function of ours, whose tags are not all the caller's words.
        return f"type {context['tag']!r} is not supported"

    return f"{told.strip(chr(39))} is {context['tag']!r}, not one of {context['expected_tags']}"


# What a field has to be, by pydantic's name for what it is not: no word of pydantic's or Python's.
_TYPES: Mapping[str, str] = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "a text",
    "tuple_type": "a list",
}


def _wrong_type(error: ErrorDetails) -> str:
    return f"should be {_TYPES[error['type']]}, not of type {type(error['input']).__name__}"


_TOLD: Mapping[str, Callable[[ErrorDetails], str]] = {
    **dict.fromkeys(_TYPES, _wrong_type),
    "extra_forbidden": lambda error: "is not a known field",
    "greater_than": _out_of_range,
    "greater_than_equal": _out_of_range,
    "less_than": _out_of_range,
    "less_than_equal": _out_of_range,
    "string_too_short": lambda error: "cannot be empty",
    "too_short": lambda error: "cannot be empty",
    "union_tag_invalid": _wrong_tag,
}
