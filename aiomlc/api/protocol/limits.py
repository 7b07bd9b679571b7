"""The limits on the sizes of requests, and the validation of large ones in a worker thread."""

from __future__ import annotations

__all__ = ("MAX_MULTI_VECTOR_NUMBERS", "check_input_size", "check_sizes", "parse_off_loop")

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from types import GeneratorType
from typing import Any, Final, TypeVar

from aiomlc.errors import BadRequestError, PromptTooLongError
from aiomlc.runtime.concurrency.turns import preparation_turns
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.validation.json_values import MAX_ITEMS
from aiomlc.validation.request_shape import check_field_count

T = TypeVar("T")

#: Of all vectors of tokens in a response; 16,384 tokens of BGE M3.
MAX_MULTI_VECTOR_NUMBERS: Final = 1 << 24

_MAX_MESSAGES = 10_000
_MAX_PARTS = 10_000
_MAX_CALLS = 10_000
_MAX_STOP_LENGTH = 4096
_MAX_STOP_CHARACTERS = 65_536
_MAX_PROMPTS = 1024
_MAX_PROMPT_TOKENS = 1_000_000
_MAX_CHOICES = 1024
_MAX_INPUTS = 65_536
_MAX_JSON_VALUES = 50_000
_MAX_BIASES_OF_CHOICES = 131_072
_LISTS = (list, tuple)
_CONTAINERS = (dict, list, tuple)
# The fields that are lists or objects, the most items of each, and what these are.
_COUNTS = {
    "messages": (_MAX_MESSAGES, "messages"),
    "input": (_MAX_MESSAGES, "items"),
    "stop": (256, "strings"),
    "stop_token_ids": (4096, "token ids"),
    "logit_bias": (65_536, "token ids"),
    "logits_processors": (64, "functions"),
    "tools": (1024, "tools"),
    "metadata": (256, "entries"),
    "chat_template_kwargs": (256, "entries"),
}
# The fields with JSON values.
_JSON_FIELDS = ("tools", "tool_choice", "response_format", "text", "chat_template_kwargs")
_MAX_STRUCTURES = 1024
_RESPONSE_FORMAT_COUNTS = {
    "structures": (_MAX_STRUCTURES, "structures"),
    "triggers": (_MAX_STRUCTURES, "triggers"),
}

_ITERATORS: tuple[type, ...] = (
    GeneratorType,
    chain,
    filter,
    islice,
    map,
    zip,
    type(iter([])),
    type(iter(())),
)
# A request with more values or characters is validated in a worker thread.
_MAX_INLINE_VALUES = 300
_MAX_INLINE_CHARACTERS = 100_000


async def parse_off_loop(
    parse: Callable[[Mapping[str, Any]], T],
    fields: Mapping[str, Any],
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> T:
    """Validate the fields of a request, in a worker thread if they are many.

    Iterators are read in the thread of the event loop.

    Args:
        check: Checks the sizes of many fields before they are copied; by default `check_sizes`.

    Raises:
        BadRequestError: If a field is invalid; `param` names it.
    """
    await preparation_turns().take()
    check_field_count(fields)
    fields = {
        name: _read(name, value) if type(value) in _ITERATORS else value
        for name, value in fields.items()
    }
    if _is_small(fields):
        return parse(fields)

    return await run_in_worker(partial(_parse_large, parse, check or check_sizes, fields))


def _parse_large(
    parse: Callable[[Mapping[str, Any]], T],
    check: Callable[[Mapping[str, Any]], None],
    fields: Mapping[str, Any],
    _is_cancelled: Callable[[], bool],
) -> T:
    check(fields)
    return parse(fields)


def check_input_size(fields: Mapping[str, Any]) -> None:
    """Require that a request to an encoder has not too many inputs, or an input too many tokens.

    Raises:
        BadRequestError: If it has; `param` names the field.
    """
    values: Any = fields.get("input")
    for name in ("input", "documents", "pairs", "text_1", "text_2"):
        _check_count(name, fields.get(name), _MAX_INPUTS, "items")
    for index, value in enumerate(values if type(values) in _LISTS else ()):
        _check_count(f"input[{index}]", value, _MAX_INPUTS, "token ids")


def check_sizes(fields: Mapping[str, Any]) -> None:
    """Require that no list or object of a request has too many items.

    Args:
        fields: The fields of a request. Only lists, tuples and dicts are counted.

    Raises:
        BadRequestError: If one has; `param` names it.
        PromptTooLongError: If a prompt has too many token ids.
    """
    for name, (limit, unit) in _COUNTS.items():
        _check_count(name, fields.get(name), limit, unit)

    _check_stop(fields.get("stop"))
    _check_messages(fields.get("messages"))
    _check_prompts(fields)
    _check_biases(fields)
    for name in _JSON_FIELDS:
        _check_json(name, fields.get(name))

    response_format = fields.get("response_format")
    if type(response_format) is dict:
        for name, (limit, unit) in _RESPONSE_FORMAT_COUNTS.items():
            _check_count(f"response_format.{name}", response_format.get(name), limit, unit)


# ruff: noqa: ANN401 - values that are not validated yet.


def _check_count(name: str, value: Any, limit: int, unit: str) -> None:
    if type(value) in _CONTAINERS and len(value) > limit:
        raise BadRequestError(
            f"{name}: must have at most {limit} {unit}, got {len(value)}", param=name
        )


def _check_stop(stop: Any) -> None:
    is_list = type(stop) in _LISTS
    for index, text in enumerate(stop if is_list else [stop]):
        if type(text) is str and len(text) > _MAX_STOP_LENGTH:
            param = f"stop[{index}]" if is_list else "stop"
            raise BadRequestError(
                f"{param}: must have at most {_MAX_STOP_LENGTH} characters, got {len(text)}",
                param=param,
            )

    number = sum(len(text) for text in stop if type(text) is str) if is_list else 0
    if number > _MAX_STOP_CHARACTERS:
        raise BadRequestError(
            f"stop: all strings together must have at most {_MAX_STOP_CHARACTERS} characters, got "
            f"{number}",
            param="stop",
        )


def _check_messages(messages: Any) -> None:
    if type(messages) not in _LISTS:
        return

    for field, limit, unit in (
        ("content", _MAX_PARTS, "content parts"),
        ("tool_calls", _MAX_CALLS, "tool calls"),
    ):
        number = sum(_num_items(message, field) for message in messages)
        if number > limit:
            raise BadRequestError(
                f"messages: must have at most {limit} {unit}, got {number}", param="messages"
            )


def _num_items(message: object, field: str) -> int:
    value: Any = message.get(field) if type(message) is dict else None
    return len(value) if type(value) in _LISTS else 0


def _check_prompts(fields: Mapping[str, Any]) -> None:
    prompt: Any = fields.get("prompt")
    if type(prompt) not in _LISTS:
        return

    if prompt and type(prompt[0]) is int:
        _check_tokens(prompt)
        return

    _check_count("prompt", prompt, _MAX_PROMPTS, "prompts")
    for item in prompt:
        if type(item) in _LISTS:
            _check_tokens(item)

    for name in ("best_of", "n"):
        choices = fields.get(name)
        if type(choices) is int and choices * len(prompt) > _MAX_CHOICES:
            raise BadRequestError(
                f"{name}: all prompts together must have at most {_MAX_CHOICES} choices, got "
                f"{len(prompt)} prompts with {choices} choices",
                param=name,
            )


def _check_biases(fields: Mapping[str, Any]) -> None:
    biases, choices = fields.get("logit_bias"), fields.get("n")
    if type(biases) is not dict or type(choices) is not int:
        return

    if len(biases) * choices > _MAX_BIASES_OF_CHOICES:
        raise BadRequestError(
            f"logit_bias: all choices together must have at most {_MAX_BIASES_OF_CHOICES} biases, "
            f"got {choices} choices with {len(biases)} biases",
            param="logit_bias",
        )


def _check_tokens(prompt: Sequence[object]) -> None:
    if len(prompt) > _MAX_PROMPT_TOKENS:
        raise PromptTooLongError(
            f"prompt has {len(prompt)} tokens, at most {_MAX_PROMPT_TOKENS} are supported",
            prompt_tokens=len(prompt),
        )


def _check_json(name: str, value: object) -> None:
    if not _has_at_most(value, _MAX_JSON_VALUES):
        raise BadRequestError(
            f"{name}: must have at most {_MAX_JSON_VALUES} JSON values", param=name
        )


def _has_at_most(value: object, limit: int) -> bool:
    number = 0
    stack = [value]
    while stack:
        inner: Any = stack.pop()
        if type(inner) not in _CONTAINERS:
            continue

        number += len(inner)
        if number > limit:
            return False

        stack.extend(inner.values() if type(inner) is dict else inner)

    return True


def _read(name: str, values: Iterable[object]) -> list[object]:
    try:
        return list(islice(values, MAX_ITEMS + 1))
    except Exception as error:
        raise BadRequestError(
            f"{name}: cannot be read: it raises {type(error).__name__}", param=name
        ) from error


def _is_small(fields: Mapping[str, Any]) -> bool:
    values = characters = 0
    stack: list[object] = [fields]
    while stack:
        inner: Any = stack.pop()
        if type(inner) is str:
            characters += len(inner)
        elif type(inner) in _CONTAINERS:
            values += len(inner)

        if values > _MAX_INLINE_VALUES or characters > _MAX_INLINE_CHARACTERS:
            return False

        if type(inner) in _CONTAINERS:
            stack.extend(inner.values() if type(inner) is dict else inner)

    return True
