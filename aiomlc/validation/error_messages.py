"""Messages for invalid fields, with MLC LLM's texts where its users may match them."""

from __future__ import annotations

__all__ = ("describe_error", "describe_requirement", "plain_message")

from collections.abc import Callable, Collection, Mapping

from pydantic_core import ErrorDetails

from aiomlc.validation.json_values import safe_repr, short_repr
from aiomlc.validation.parameter import OUT_OF_RANGE
from aiomlc.validation.suggestions import ENGINE_SYNONYMS, suggest


def describe_error(error: ErrorDetails, known: Collection[str] = ()) -> str:
    """Return why a field of a request is invalid, without the name of the field.

    Args:
        known: The fields that the request may have, one of which may have been meant.
    """
    return _describe(error, known) + _hint(error, known)


def _describe(error: ErrorDetails, known: Collection[str]) -> str:
    describe = _DESCRIPTIONS.get(error["type"])
    if describe is not None:
        return describe(error)

    match error["type"]:
        case "extra_forbidden":
            return "unknown field" + _suggest(error["loc"], known)
        case kind if kind == OUT_OF_RANGE:
            return f"{error['msg']}, got {short_repr(error['input'])}"
        case kind if kind in _BOUNDS:
            return f"should be {_allowed_range(error)}, got {short_repr(error['input'])}"
        case kind if kind in _TYPES:
            return f"must be {_required_type(error)}, got {_describe_value(error)}"
        case "literal_error" | "string_pattern_mismatch":
            return f"{plain_message(error['msg'])}, got {safe_repr(error['input'])}"
        case _:
            return plain_message(error["msg"])


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
            return f"valid: {plain_message(error['msg'])}"


_MAX_SHOWN = 40  #: Characters of a value in a message.
_TOOL = '{"type": "function", "function": {"name": ..., "parameters": {...}}}'
_RESPONSE_FORMAT = 'an object such as {"type": "json_object"}'
_SYSTEM = '; put {"role": "system", "content": ...} first in messages'
# What to do instead of passing these fields to chat completions.
_NOT_OF_CHATS: Mapping[str, str] = {
    "instructions": _SYSTEM,
    "prompt": "; pass messages, or call completions.create",
    "system": _SYSTEM,
    "system_prompt": _SYSTEM,
}
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
    "union_tag_not_found": "an object",
}
# The same for fields that also take a shorter form, and for those that are often mistaken.
_FIELD_TYPES: Mapping[tuple[int | str, str], str] = {
    ("content", "string_type"): "a string or a list of text parts",
    ("messages", "tuple_type"): 'a list of messages: {"role": "user", "content": ...}',
    ("response_format", "model_attributes_type"): _RESPONSE_FORMAT,
    ("response_format", "union_tag_not_found"): _RESPONSE_FORMAT,
    ("stop", "tuple_type"): "a string or a list of strings",
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


def _hint(error: ErrorDetails, known: Collection[str]) -> str:
    """Return what to pass instead, if the mistake is a usual one."""
    location = error["loc"]
    is_chat = "messages" in known  # Tools of the Responses API have another form.
    is_no_tool = len(location) == 2 or location[2:] in (("type",), ("function",))
    return f"; a tool is {_TOOL}" if is_chat and location[0] == "tools" and is_no_tool else ""


def _suggest(location: tuple[int | str, ...], known: Collection[str]) -> str:
    """Return what to pass instead of an unknown field, as far as its name tells."""
    if len(location) != 1:
        return ""

    name = str(location[0])
    if "messages" in known and name in _NOT_OF_CHATS:
        return _NOT_OF_CHATS[name]

    if name in ENGINE_SYNONYMS:
        return f"; it is a setting of engines: EngineConfig({ENGINE_SYNONYMS[name]}=...)"

    return suggest(name, known)


def plain_message(message: str) -> str:
    """Return a message of pydantic's without the words that it begins with: `Value error, `."""
    for prefix in ("Value error, ", "Input ", "String "):
        message = message.removeprefix(prefix)

    return message


def _required_type(error: ErrorDetails) -> str:
    """Return the type that a field requires; of a field with several, all of them."""
    field = error["loc"][-1]
    return _FIELD_TYPES.get((field, error["type"]), _TYPES[error["type"]])


def _describe_value(error: ErrorDetails) -> str:
    """Return a short value itself, and the type of others."""
    value = error["input"]
    name = type(value).__name__
    if value is None or type(value) in (bool, int, float):
        return short_repr(value)

    if type(value) is str and len(value) <= _MAX_SHOWN:
        return repr(value)

    return name


def _describe_no_object(error: ErrorDetails) -> str:
    value = error["input"]
    if isinstance(value, type):
        return f"must be an object; pass the class {value.__name__} to chat.completions.parse"

    return f"must be {_required_type(error)}, got {_describe_value(error)}"


def _describe_no_tag(error: ErrorDetails) -> str:
    value = error["input"]
    if not isinstance(value, Mapping):
        return _describe_no_object(error)

    return f"{error.get('ctx', {})['discriminator'].strip(chr(39))} is missing"


def _describe_key(error: ErrorDetails) -> str:
    if error["loc"][0] == "logit_bias":
        return "must be a token id; see engine.tokenizer.encode"

    return "must be an integer"


def _describe_wrong_tag(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    field, tag = context["discriminator"], context["tag"]
    if not field.startswith("'"):  # A function, whose tags are not all values of the field.
        return f"type {safe_repr(tag)} is not supported"

    return f"{field.strip(chr(39))} must be one of {context['expected_tags']}, got {safe_repr(tag)}"


_DESCRIPTIONS: Mapping[str, Callable[[ErrorDetails], str]] = {
    "int_parsing": _describe_key,
    "missing": lambda _: "is missing",
    "model_attributes_type": _describe_no_object,
    "string_too_short": lambda _: "cannot be empty",
    "too_short": lambda _: "cannot be empty",
    "union_tag_invalid": _describe_wrong_tag,
    "union_tag_not_found": _describe_no_tag,
}
