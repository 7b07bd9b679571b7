"""Parsing of JSON requests, and conversion of errors to chunks."""

from __future__ import annotations

__all__ = (
    "asks_for_usage",
    "check_stream",
    "error_chunks",
    "escape_surrogates",
    "new_request_id",
    "parse_json_request",
    "with_required_fields",
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

# Every stream ends with the usage, even if the request does not ask for it.
_WITH_USAGE = StreamOptions(include_usage=True)


def new_request_id() -> str:
    """Return a new id for a request without one."""
    return f"chatcmpl-{uuid.uuid4().hex}"


def parse_json_request(
    request: str | Mapping[str, Any], request_id: str | None, default_id: str
) -> ChatCompletionRequest:
    """Parse and validate a streaming chat request, whose stream always ends with the usage.

    Args:
        request_id: Overrides the request's `request_id`, if not None.
        default_id: The request id if neither specifies one.

    Raises:
        BadRequestError: If the request is not a JSON object, or a field is invalid.
    """
    fields = with_extra_body(_fields(request))
    check_stream(fields.get("stream"))
    fields["stream"] = True if fields.get("stream") is None else fields["stream"]
    fields["request_id"] = request_id or fields.get("request_id") or default_id
    return parse_chat_request(fields).model_copy(update={"stream_options": _WITH_USAGE})


def asks_for_usage(options: Mapping[str, Any]) -> bool:
    """Return whether an unvalidated request sets `stream_options.include_usage`."""
    extra = options.get("extra_body")
    if isinstance(extra, Mapping) and "stream_options" in extra:
        options = extra

    stream_options = options.get("stream_options")
    return isinstance(stream_options, Mapping) and stream_options.get("include_usage") is True


def escape_surrogates(text: object) -> str:
    """Return the text with lone surrogates escaped, which UTF-8 cannot encode.

    Error messages may quote request ids or file names that contain lone surrogates.
    """
    return str(text).encode(errors="backslashreplace").decode()


def error_chunks(request_id: str, error: AiomlcError) -> list[ChatCompletionChunk]:
    """Return a chunk with the finish reason "error" and the message, and a chunk with usage 0."""
    common = {"id": escape_surrogates(request_id), "created": int(time.time()), "model": ""}
    delta = {"role": "assistant", "content": escape_surrogates(error)}
    choice = {"index": 0, "delta": delta, "finish_reason": "error"}
    return [
        ChatCompletionChunk.model_validate({**common, **fields})
        for fields in (
            {"choices": [choice], "usage": None},
            {"choices": [], "usage": Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)},
        )
    ]


def with_required_fields(chunk: ChatCompletionChunk) -> ChatCompletionChunk:
    """Return the chunk with the fields that MLC LLM's clients of other languages require.

    They reject a `system_fingerprint` that is null and a delta without a role, which OpenAI's
    chunks have only at the start of a choice.
    """
    choices = [
        choice.model_copy(update={"delta": choice.delta.model_copy(update={"role": "assistant"})})
        for choice in chunk.choices
    ]
    return chunk.model_copy(update={"choices": choices, "system_fingerprint": ""})


def check_stream(stream: object) -> None:
    """Reject requests for a non-streamed completion.

    Raises:
        BadRequestError: If `stream` is false.
    """
    if stream is False:
        raise BadRequestError("JSONFFIEngine only support stream=True", param="stream")


def _fields(request: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(request, Mapping):
        return request

    try:
        fields = json.loads(request)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRequestError(f"the request is not JSON: {error}") from None

    if not isinstance(fields, dict):
        raise BadRequestError("the request is not a JSON object")

    return fields
