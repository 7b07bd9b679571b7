"""Random requests that are almost HTTP, and almost requests of the API."""

from __future__ import annotations

__all__ = ("random_request",)

import json
from collections.abc import Callable
from random import Random
from typing import Any

_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize")
_MESSAGES = [{"role": "user", "content": "Who are you?"}]
_FIELDS: tuple[dict[str, Any], ...] = (
    {"messages": _MESSAGES, "max_tokens": 3},
    {"messages": _MESSAGES, "max_tokens": 3, "stream": True},
    {"prompt": "Once", "max_tokens": 3, "stream": True},
    {"input": "Who are you?", "max_output_tokens": 3, "stream": True},
    {"input": ["Who are you?"]},
    {"prompt": "Once upon a time"},
    {"tokens": [1, 2, 3]},
)
_REQUEST_LINES = (
    b"GET /health HTTP/1.1",
    b"get /health HTTP/1.1",
    b"HEAD /v1/models HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"TRACE / HTTP/1.1",
    b"CONNECT localhost:443 HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"GET http://localhost/health HTTP/1.1",
    b"GET http://[/health HTTP/1.1",
    b"GET //[/health HTTP/1.1",
    b"GET /health",
    b"GET /health HTTP/1.0",
    b"GET /health HTTP/0.9",
    b"GET /health HTTP/9.9",
    b"GET  /health  HTTP/1.1",
    b"GET /he alth HTTP/1.1",
    b"GET /health HTTP/1.1 ",
    b"GET /v1/models/%00%ff%fe%0d%0a HTTP/1.1",
    b"GET /v1/models/%f0%9f%a6%8a%ed%a0%80?%ff=%00 HTTP/1.1",
    b"GET /playground/..%2f..%2fapp.py HTTP/1.1",
    b"GET /health\x00 HTTP/1.1",
    b"GET /\xff\xfe HTTP/1.1",
    b"GET /" + b"a" * 7000 + b" HTTP/1.1",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1",
    b"GET / HTTP/1.1\r\nGET / HTTP/1.1",
    b"\r\n\r\n\r\nGET /health HTTP/1.1",
    b"\x00\x01\x02\x03",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"",
)
_HEADERS = (
    b"host: [",
    b"host: evil.example",
    b"host: localhost, localhost",
    b"host: localhost:99999999999999999999",
    b"content-length: 0",
    b"content-length: -1",
    b"content-length: +5",
    b"content-length: 0x10",
    b"content-length: 5, 5",
    b"content-length: 99999999999999999999999999",
    b"content-length: 18446744073709551616",
    b"content-length: \xb2",
    b"transfer-encoding: chunked",
    b"transfer-encoding: chunked, chunked",
    b"transfer-encoding: gzip, chunked",
    b"transfer-encoding: \x0bchunked",
    b"content-encoding: gzip",
    b"content-type: application/json; charset=utf-16",
    b"content-type: text/plain",
    b"content-type: \xff\xfe",
    b"expect: 100-continue",
    b"expect: 200-ok",
    b"connection: upgrade\r\nupgrade: websocket",
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    b"connection: keep-alive, close",
    b"authorization: Bearer \xff\xfe",
    b"authorization: Basic",
    b"authorization:",
    b"x-request-id: \xff\x80",
    b"x-request-id: " + b"a" * 3000,
    b"origin: null",
    b"range: bytes=5-1",
    b"range: bytes=-0,0-0,1-99999999999999999999",
    b"if-none-match: *",
    b"accept: \x01",
    b"x : y",
    b" folded: x",
    b": empty",
    b"no colon",
    b"null\x00: x",
    b"x: \x00",
    b"x: a\rb",
    b"x: a\nb: c",
    b"x: " + b"a" * 9000,
    b"x: " + b"a" * 300_000,
    b"x: y\r\n" * 1000,
)
_VALUES = (
    b"1e400",
    b"-1e400",
    b"1" * 400,
    b"-" + b"9" * 25,
    b"9223372036854775808",
    b"18446744073709551616",
    b"0." + b"1" * 400,
    b"1e-400",
    b"-0",
    b"NaN",
    b"Infinity",
    b"true",
    b"null",
    b'"\\u0000"',
    b'"\x00"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    b'"' + b"a" * 50_000 + b'"',
    b"[" * 200 + b"]" * 200,
    b"[" * 1000 + b"]" * 1000,
    b"[" * 100_000,
    b'{"a":' * 200 + b"1" + b"}" * 200,
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b'[{"type":"text","text":"' + b"\\u0000" * 50 + b'"}]',
    b'{"":{}}',
    b"[[]]",
    b"[null]",
    b"[1e308,1e308]",
)
_NAMES = [
    "messages",
    "model",
    "prompt",
    "input",
    "max_tokens",
    "max_output_tokens",
    "temperature",
    "top_p",
    "n",
    "seed",
    "stop",
    "stream",
    "logit_bias",
    "tools",
    "tool_choice",
    "response_format",
    "metadata",
    "user",
    "stream_options",
    "tokens",
    "text",
    "instructions",
    "reasoning",
    "chat_template_kwargs",
    "debug_config",
    "request_id",
    "priority",
    "timeout",
    "best_of",
    "top_logprobs",
    "logprobs",
    "previous_response_id",
    "dimensions",
    "encoding_format",
    "suffix",
    "echo",
    "include",
]
_CHUNKS = (
    b"%x\r\n%b\r\n0\r\n\r\n",
    b"%x;extension=\xff\r\n%b\r\n0\r\n\r\n",
    b"%x;" + b"a" * 9000 + b"\r\n%b\r\n0\r\n\r\n",
    b"0%x\r\n%b\r\n0\r\ntrailer: x\r\n\r\n",
    b"%x\r\n%b\r\n0\r\nbad trailer\r\n\r\n",
    b"%x\n%b\n0\n\n",
    b"-%x\r\n%b\r\n0\r\n\r\n",
    b"fffffffffffffffff%x\r\n%b\r\n0\r\n\r\n",
    b"%xg\r\n%b\r\n0\r\n\r\n",
    b"1%x\r\n%b\r\n0\r\n\r\n",
    b"%x\r\n%bXX\r\n0\r\n\r\n",
    b"%x\r\n%b\r\n",
)


def random_request(random: Random) -> bytes:
    """Return a valid request after one to three changes, which may leave it valid."""
    parts = _Request(random)
    for change in random.choices(_CHANGES, k=random.choice((1, 1, 2, 3))):
        change(parts, random)

    data = parts.to_bytes()
    return _flip_bytes(data, random) if random.random() < 0.15 else data


class _Request:
    def __init__(self, random: Random) -> None:
        self.line: bytes = f"POST {random.choice(_PATHS)} HTTP/1.1".encode()
        self.headers: list[bytes] = [b"host: localhost", b"connection: close"]
        self.headers.append(b"content-type: application/json")
        self.body = json.dumps(random.choice(_FIELDS)).encode()
        self.length: bytes | None = None  #: Instead of the right header.
        self.end: bytes = b"\r\n"

    def to_bytes(self) -> bytes:
        length = b"content-length: %d" % len(self.body) if self.length is None else self.length
        lines = (self.line, *self.headers, *([length] if length else []), b"", b"")
        return self.end.join(lines) + self.body


def _change_line(request: _Request, random: Random) -> None:
    request.line = random.choice(_REQUEST_LINES)
    if random.random() < 0.7:
        request.body, request.length = b"", b""


def _add_header(request: _Request, random: Random) -> None:
    request.headers.insert(random.randrange(4), random.choice(_HEADERS))


def _drop_header(request: _Request, random: Random) -> None:
    del request.headers[random.randrange(len(request.headers))]


def _change_value(request: _Request, random: Random) -> None:
    """Set a field, which another may have set before: JSON allows names to repeat."""
    field = b'"%b":%b' % (random.choice(_NAMES).encode(), random.choice(_VALUES))
    begins = random.random() < 0.5
    request.body = (
        b"{" + field + b"," + request.body[1:]
        if begins
        else (request.body[:-1] + b"," + field + b"}")
    )


def _change_body(request: _Request, random: Random) -> None:
    text = request.body.decode("latin-1")
    request.body = random.choice(
        (
            b"",
            b"{",
            b"[]",
            b"null",
            b"\xef\xbb\xbf" + request.body,
            text.encode("utf-16"),
            request.body + b"\x00",
            request.body + b"{}",
            request.body[: len(request.body) // 2],
            b" " * 10_000 + request.body,
            random.choice(_VALUES),
        )
    )


def _change_length(request: _Request, random: Random) -> None:
    number = len(request.body) + random.choice((-100, -1, 1, 2**40))
    request.length = b"content-length: %d" % number


def _use_chunks(request: _Request, random: Random) -> None:
    request.length = b"transfer-encoding: chunked"
    request.body = random.choice(_CHUNKS) % (len(request.body), request.body)


def _pipeline(request: _Request, random: Random) -> None:
    request.body = request.body + random.choice((b"\r\n", b"GET / HTTP/1.1\r\n", b"\x00" * 100))
    request.length = b"content-length: %d" % (len(request.body) // 2)


def _use_other_line_ends(request: _Request, random: Random) -> None:
    request.end = random.choice((b"\n", b"\r", b"\r\r\n", b"\n\r", b"\x00\r\n"))


_CHANGES: tuple[Callable[[_Request, Random], None], ...] = (
    _change_line,
    _add_header,
    _add_header,
    _drop_header,
    _change_value,
    _change_value,
    _change_value,
    _change_body,
    _change_length,
    _use_chunks,
    _pipeline,
    _use_other_line_ends,
)


def _flip_bytes(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 2, 10))):
        if changed:
            changed[random.randrange(len(changed))] = random.randrange(256)

    return bytes(changed)
