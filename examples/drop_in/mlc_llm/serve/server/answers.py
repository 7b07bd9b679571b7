"""An ASGI middleware that gives answers MLC LLM's form where it differs from OpenAI's.

Chunks of chats have the role and a content, absent values are null, `suffix` is a text that
follows the completion, models are named by their paths, and an error is the JSON text of a
JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from aiomlc.serve import Application, ServerOptions
from mlc_llm.protocol.error_protocol import error_body

_COMPLETIONS = "/v1/completions"
_CHATS = "/v1/chat/completions"
_MAX_BODY = ServerOptions().max_body_size
_TOO_LONG = re.compile(r"prompt has (\d+) tokens, context window is (\d+)")


class MLCAnswers:
    """The application of aiomlc with MLC LLM's answers.

    Args:
        app: The application of aiomlc.
        model: The path of the model, which is its name.
        enable_debug: Whether `debug_config` counts.
    """

    def __init__(self, app: Application, model: str, *, enable_debug: bool) -> None:
        self._app = app
        self._model = model
        self._enable_debug = enable_debug

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as aiomlc's.
        """Reject new requests, and wait for the running ones."""
        return await self._app.drain(timeout)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path")
        if scope["type"] != "http" or path not in (_COMPLETIONS, _CHATS, "/v1/models"):
            await self._app(scope, receive, send)
            return

        fields: dict[str, Any] = {}
        if scope["method"] == "POST":
            body, has_more = await _read(receive)
            fields = {} if has_more else _object(body)
            if (problem := _problem(fields)) is not None:
                await _answer_error(send, problem)
                return

            suffix = fields.pop("suffix", None) if path == _COMPLETIONS else None
            if not self._enable_debug:
                fields.pop("debug_config", None)

            if fields:
                body = json.dumps(fields).encode()
                scope = {**scope, "headers": _with_length(scope["headers"], len(body))}
                fields["suffix"] = suffix

            receive = _replay(body, receive, has_more=has_more)

        await self._app(scope, receive, _Sender(send, self._rewrite(fields)))

    def _rewrite(self, request: Mapping[str, Any]) -> Callable[[Any], list[Any]]:
        def rewrite(answer: Any) -> list[Any]:
            if answer.get("object") == "list":
                for model in answer["data"]:
                    model.update(id=self._model, owned_by="MLC-LLM")
                return [answer]

            answer.setdefault("usage", None)
            for choice in answer.get("choices", ()):
                _complete_choice(choice)

            return _with_suffix(answer, request)

        return rewrite


def _complete_choice(choice: dict[str, Any]) -> None:
    if "delta" in choice:
        delta = choice["delta"]
        delta["role"] = "assistant"
        delta["content"] = delta.get("content") or ""
    elif "message" in choice:
        choice["message"].setdefault("tool_calls", None)


def _with_suffix(answer: dict[str, Any], request: Mapping[str, Any]) -> list[dict[str, Any]]:
    suffix = request.get("suffix")
    choices = answer.get("choices", ())
    ended = [choice for choice in choices if choice.get("finish_reason") is not None]
    if not suffix or not ended:
        return [answer]

    if not request.get("stream"):
        for choice in ended:
            choice["text"] += suffix
        return [answer]

    text = {"text": suffix, "logprobs": None}
    last = {**answer, "choices": [{**choice, **text} for choice in ended], "usage": None}
    return [answer, last]


def _problem(fields: Mapping[str, Any]) -> str | None:
    """Return why MLC LLM rejects a request that aiomlc accepts."""
    if fields.get("best_of") not in (None, 1):
        return 'Request fields "best_of" are not supported right now.'

    messages = fields.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if index and isinstance(message, dict) and message.get("role") == "system":
            return f"System prompt at position {index} in the message list is invalid."

    return None


class _Sender:
    """Sends the messages of a response with rewritten bodies."""

    def __init__(self, send: Any, rewrite: Callable[[Any], list[Any]]) -> None:
        self._send = send
        self._rewrite = rewrite
        self._start: Any = None
        self._is_stream = False
        self._body = b""

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            headers = dict(message["headers"])
            self._is_stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            if self._is_stream:
                await self._send(message)
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif self._is_stream:
            self._body += message.get("body", b"")
            *events, self._body = self._body.split(b"\n\n")
            body = b"".join(map(self._event, events))
            await self._send({**message, "body": body})
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._send_whole()

    async def _send_whole(self) -> None:
        status, body = self._start["status"], self._body
        answer = _object(body)
        if "error" in answer:
            body = error_body(status, _error_message(answer["error"]["message"]))
        elif answer:
            body = json.dumps(self._rewrite(answer)[0]).encode()

        headers = _with_length(self._start["headers"], len(body))
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _event(self, event: bytes) -> bytes:
        data = event.removeprefix(b"data: ")
        answer = _object(data) if data is not event else {}
        if not answer or "error" in answer:
            return event + b"\n\n"

        return b"".join(
            b"data: " + json.dumps(each).encode() + b"\n\n" for each in self._rewrite(answer)
        )


def _error_message(message: str) -> str:
    match = _TOO_LONG.search(message)
    if match is None:
        return message

    return (
        f"Request prompt has {match[1]} tokens in total, larger than the model input length "
        f"limit {match[2]}."
    )


async def _answer_error(send: Any, message: str) -> None:
    body = error_body(400, message)
    headers = [(b"content-type", b"application/json")]
    headers = _with_length(headers, len(body))
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _read(receive: Any) -> tuple[bytes, bool]:
    """Return a body and False, or more than aiomlc takes of a larger one and whether it goes on."""
    body, has_more = b"", True
    while has_more and len(body) <= _MAX_BODY:
        message = await receive()
        body += message.get("body", b"")
        has_more = message.get("more_body", False)

    return body, has_more


def _replay(body: bytes, receive: Any, *, has_more: bool) -> Callable[[], Any]:
    pending = [{"type": "http.request", "body": body, "more_body": has_more}]

    async def replay() -> Any:
        return pending.pop() if pending else await receive()

    return replay


def _with_length(headers: Any, length: int) -> list[Any]:
    kept = [(name, value) for name, value in headers if name.lower() != b"content-length"]
    return [*kept, (b"content-length", str(length).encode())]


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}

    return value if isinstance(value, dict) else {}
