"""The forms in which a chat template may expect messages.

OpenAI's messages leave choices that templates make differently: a content is a text or a list of
parts, or null beside tool calls; the arguments of a call are an object or JSON text. A template
gets the messages as they are, as in transformers, unless it fails on them or writes something else
than their text, such as Python's form of a list.
"""

from __future__ import annotations

__all__ = (
    "Messages",
    "content_text",
    "content_texts",
    "image_text",
    "is_image",
    "render_in_a_form",
    "texts_in",
)

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from aiomlc.errors import BadRequestError
from aiomlc.runtime.templates.render_budget import TemplateLimitError

Messages = Sequence[Mapping[str, Any]]
_Change = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_READ_ROLES = ("system", "developer", "user")


def content_texts(content: object) -> list[str]:
    """Return the string itself, or the texts of the parts; no texts for null."""
    if isinstance(content, str):
        return [content]

    parts = content if isinstance(content, (list, tuple)) else ()
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]


def content_text(content: object, image: str = "") -> str:
    """Return the text of a content; empty for null.

    Args:
        image: The text of an image.
    """
    if not image or isinstance(content, str):
        return "".join(content_texts(content))

    parts = content if isinstance(content, (list, tuple)) else ()
    return "".join(image if is_image(part) else "".join(content_texts([part])) for part in parts)


def is_image(part: Mapping[str, Any]) -> bool:
    """Whether a part of a content stands for an image."""
    return part.get("type") == "image"


def image_text(placeholder: str) -> str:
    """Return what stands for an image where the content is a text: MLC LLM's form."""
    return f"{placeholder}\n" if placeholder else ""


def texts_in(prompt: str, messages: Messages) -> list[bool]:
    """Return for each message whether the prompt has its texts, but for space around them.

    Only those of users and instructions count: a template may well leave out or rewrite others.
    """
    found: list[bool] = []
    position = 0  # The messages follow each other, so that most searches are short.
    for message in messages:
        end: int | None = position
        if message.get("role") in _READ_ROLES:
            end = _find_all(content_texts(message.get("content")), prompt, position)

        found.append(end is not None)
        position = position if end is None else end

    return found


def _find_all(texts: Sequence[str], prompt: str, position: int) -> int | None:
    """Return where the last of the texts ends; None if one of them is missing."""
    for text in map(str.strip, texts):
        start = prompt.find(text, position)
        start = prompt.find(text) if start < 0 else start
        if start < 0:
            return None

        position = start + len(text)

    return position


def render_in_a_form(
    write: Callable[[Messages], str], messages: Messages, image_placeholder: str = ""
) -> str:
    """Return the prompt of the first form of the messages that the template reads.

    If there is none, the prompt is that of the first form that the template accepts. Templates that
    read images write a placeholder for each; for others it is put into the text.

    Args:
        messages: The messages with the arguments of tool calls as objects.
        image_placeholder: The text that stands for an image in a prompt.

    Raises:
        BadRequestError: If the template rejects the messages in every form.
        TemplateLimitError: If the template exceeds its budget.
    """
    accepted: str | None = None
    rejection: BadRequestError | None = None
    for form in _forms(messages, image_text(image_placeholder)):
        try:
            prompt = _write_no_null(write, form)
        except TemplateLimitError:
            if accepted is None:
                raise

            break
        except BadRequestError as error:
            rejection = rejection or error
            continue

        if _is_read(form, prompt) and _has_images(messages, prompt, image_placeholder):
            return prompt

        accepted = prompt if accepted is None else accepted

    if accepted is None:
        assert rejection is not None, "there is at least one form"
        raise rejection

    return accepted


def _write_no_null(write: Callable[[Messages], str], messages: Messages) -> str:
    """Return the prompt; with empty texts for null if the template would write `None`."""
    prompt = write(messages)
    if "None" not in prompt or not any(map(_has_null, messages)):
        return prompt

    try:
        filled = write(list(map(_fill_null, messages)))
    except BadRequestError:
        return prompt

    return filled if filled.count("None") < prompt.count("None") else prompt


def _forms(messages: Messages, image: str) -> Iterator[Messages]:
    """Yield the messages as they are, then in every other form."""
    forms: list[Messages] = []
    for (change_users, change_others), *changes in itertools.product(
        _content_changes(image), (_unchanged, _fill_null), (_unchanged, _write_arguments)
    ):
        form = messages
        for change in changes:
            form = [change(message) for message in form]

        form = [
            (change_users if message.get("role") == "user" else change_others)(message)
            for message in form
        ]
        if form not in forms:
            forms.append(form)
            yield form


def _unchanged(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return message


def _join_parts(message: Mapping[str, Any], image: str) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message

    return {**message, "content": content_text(content, image)}


def _split_text(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, str):
        return message

    return {**message, "content": [{"type": "text", "text": content}]}


def _content_changes(image: str) -> tuple[tuple[_Change, _Change], ...]:
    """Return what happens to the contents of users and to all others.

    Templates that read the parts of users may concatenate the text of others.
    """
    join_parts = partial(_join_parts, image=image)
    return (
        (_unchanged, _unchanged),
        (join_parts, join_parts),
        (_split_text, _split_text),
        (_split_text, join_parts),
        (join_parts, _split_text),
    )


def _has_null(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant" and message.get("content") is None


def _fill_null(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**message, "content": ""} if _has_null(message) else message


def _write_arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if not _objects(message):
        return message

    return {**message, "tool_calls": [_with_text(call) for call in message["tool_calls"]]}


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    if not isinstance(function.get("arguments"), Mapping):
        return dict(call)

    text = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": text}}


def _objects(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the arguments of a message's calls that are objects."""
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    values = [function.get("arguments") for function in functions]
    return [value for value in values if isinstance(value, Mapping)]


def _has_images(messages: Messages, prompt: str, placeholder: str) -> bool:
    """Whether the prompt has a placeholder for each image."""
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return not placeholder or prompt.count(placeholder) >= sum(map(is_image, parts))


def _is_read(messages: Messages, prompt: str) -> bool:
    """Whether the prompt has the texts that it should, and no Python form of other values."""
    contents = [message.get("content") for message in messages]
    values = [part for parts in contents if isinstance(parts, list) for part in parts]
    values += [value for message in messages for value in _objects(message)]
    has_python = any(value and str(value) in prompt for value in values)
    return not has_python and all(texts_in(prompt, messages))
