"""Between JSON text and chunks: requests are read, errors are put in a chunk's form."""

from __future__ import annotations

__all__ = (
    "asks_for_usage",
    "check_stream",
    "error_chunks",
    "new_request_id",
    "parse_json_request",
    "readable",
)

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from aiomlc.api.protocol.chat import ChatCompletionChunk, Usage
from aiomlc.api.protocol.chat_request import ChatCompletionRequest, parse_chat_request
from aiomlc.api.protocol.request import StreamOptions, with_extra_body
from aiomlc.errors import AiomlcError, BadRequestError

# Every answer ends with the usage, whatever the request says.
_WITH_USAGE = StreamOptions(include_usage=True)


def new_request_id() -> str:
    """An id for a request that has none."""
    return f"chatcmpl-{uuid.uuid4().hex}"


def parse_json_request(
    request: str | Mapping[str, Any], request_id: str | None, default_id: str
) -> ChatCompletionRequest:
    """Read a request, JSON text or its fields; its own id gives way to `request_id`.

    The result is a stream that ends with the usage. What else is asked of it is checked as in a
    chat.

    Raises:
        BadRequestError: no JSON object, or a field is refused.
    """
    fields = with_extra_body(_fields(request))
    check_stream(fields.get("stream"))
    fields["stream"] = True if fields.get("stream") is None else fields["stream"]
    fields["request_id"] = request_id or fields.get("request_id") or default_id
    return parse_chat_request(fields).model_copy(update={"stream_options": _WITH_USAGE})


def asks_for_usage(options: Mapping[str, Any]) -> bool:
    """Whether a request, which may be refused yet, has `stream_options.include_usage`."""
    extra = options.get("extra_body")
    if isinstance(extra, Mapping) and "stream_options" in extra:
        options = extra

    asked = options.get("stream_options")
    return isinstance(asked, Mapping) and asked.get("include_usage") is True


def readable(text: object) -> str:
    """A text as it is, but for halves of surrogate pairs, which are escaped: JSON has no place
    for them, and errors may tell of ids and names of files that have some."""
    return str(text).encode(errors="backslashreplace").decode()


def error_chunks(request_id: str, error: AiomlcError) -> list[ChatCompletionChunk]:
    """A chunk with the finish reason `error`, and the usage that ends every answer."""
    common = {"id": readable(request_id), "created": int(time.time()), "model": ""}
    delta = {"role": "assistant", "content": readable(error)}
    choice = {"index": 0, "delta": delta, "finish_reason": "error"}
    return [
        ChatCompletionChunk.model_validate({**common, **rest})
        for rest in (
            {"choices": [choice], "usage": None},
            {"choices": [], "usage": Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)},
        )
    ]


def check_stream(stream: object) -> None:
    """Refuse whole answers.

    Raises:
        BadRequestError: `stream` is false.
    """
    if stream is False:
        raise BadRequestError("JSONFFIEngine only support stream=True", param="stream")


def _fields(request: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(request, Mapping):
        return request

    try:
        fields = json.loads(request)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRequestError(f"the request is not JSON: {error}") from error

    if not isinstance(fields, dict):
        raise BadRequestError("the request is not a JSON object")

    return fields
