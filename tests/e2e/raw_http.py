"""A client of raw sockets, which sends any bytes and reads with h11's parser."""

from __future__ import annotations

__all__ = ("Answer", "assert_typed", "exchange", "leave_after", "read_all", "request_of")

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import h11

from tests.e2e.serve_process import ServerProcess


@dataclass
class Answer:
    """A response that may be incomplete."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes = b""
    is_complete: bool = False


@dataclass
class Answers:
    """The responses in the bytes of a connection."""

    items: list[Answer] = field(default_factory=list)
    method: str = "POST"
    _parser: h11.Connection | None = None

    @property
    def ends_connection(self) -> bool:
        """Whether the last response is complete and says that the connection will be closed."""
        last = self.items[-1] if self.items else None
        return last is not None and last.headers.get(b"connection") == b"close"

    @property
    def is_complete(self) -> bool:
        """Whether there is a response, and the last one is complete."""
        return bool(self.items) and self.items[-1].is_complete

    def add(self, data: bytes) -> None:
        """Parse further bytes; empty ones are the end of the connection.

        Raises:
            h11.RemoteProtocolError: If they are not HTTP.
        """
        if not data and (self._parser is None or self._parser.their_state is h11.SEND_RESPONSE):
            return

        if self._parser is None:
            self._start()

        assert self._parser is not None
        self._parser.receive_data(data)
        while self._parse_event():
            pass

    def _start(self, rest: bytes = b"") -> None:
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**20)
        self._parser.send(h11.Request(method=self.method, target="/", headers=[("host", "a")]))
        self._parser.send(h11.EndOfMessage())
        if rest:
            self._parser.receive_data(rest)

    def _parse_event(self) -> bool:
        assert self._parser is not None
        event = self._parser.next_event()
        if isinstance(event, h11.Response):
            self.items.append(Answer(event.status_code, dict(event.headers)))
        elif isinstance(event, h11.Data):
            self.items[-1].body += event.data
        elif isinstance(event, h11.EndOfMessage):
            self.items[-1].is_complete = True
            rest = self._parser.trailing_data[0]
            self._parser = None
            if rest:
                self._start(bytes(rest))
            return bool(rest)

        return isinstance(event, h11.Event) and not isinstance(event, h11.ConnectionClosed)


def request_of(
    fields: Any,  # noqa: ANN401 - JSON.
    path: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return the bytes of a POST request with a JSON body."""
    body = json.dumps(fields).encode()
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join((*lines, f"content-length: {len(body)}", "", "")).encode() + body


def exchange(server: ServerProcess, data: bytes, *, until_closed: bool = False) -> list[Answer]:
    """Send bytes, and return the responses.

    Reading ends with the first response after which the server keeps the connection open, unless
    `until_closed`, or when the server closes the connection.

    Raises:
        h11.RemoteProtocolError: If what the server sends is not HTTP.
        TimeoutError: If it neither answers nor closes the connection.
    """
    answers = Answers(method="HEAD" if data.lstrip().startswith(b"HEAD ") else "POST")
    with server.connect() as connection:
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                answers.add(part)
                if answers.is_complete and not (until_closed or answers.ends_connection):
                    return answers.items

        except (ConnectionResetError, BrokenPipeError):
            return answers.items

    with suppress(h11.RemoteProtocolError):  # A response may be incomplete.
        answers.add(b"")

    return answers.items


def read_all(connection: socket.socket) -> bytes:
    """Return what the server sends until it closes the connection."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass

    return b"".join(parts)


def leave_after(connection: socket.socket, number: int) -> int:
    """Read this many bytes, then reset the connection; return how many there were."""
    received = 0
    while received < number and (part := connection.recv(number - received)):
        received += len(part)

    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    return received


def assert_typed(answer: Answer, *, may_be_empty: bool = False) -> None:
    """Assert that a response is not a failure of the server, and an error has OpenAI's shape."""
    assert answer.status < 500 or answer.status in (501, 505), answer
    if answer.status < 400 or not answer.is_complete or (may_be_empty and not answer.body):
        return

    error = json.loads(answer.body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}, answer
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
