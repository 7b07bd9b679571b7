"""Lines of batch files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiomlc.batch.lines import (
    BatchRequest,
    RejectedLine,
    error_line,
    is_torn_line,
    parse_line,
    response_line,
)

REQUEST: dict[str, Any] = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"messages": []},
}


def test_a_line_is_a_request() -> None:
    parsed = parse_line(json.dumps(REQUEST).encode() + b"\n")

    assert parsed == BatchRequest("a", "/v1/chat/completions", {"messages": []})


@pytest.mark.parametrize(
    ("changes", "code", "names"),
    [
        ({"method": "GET"}, "invalid_method", "GET"),
        ({"url": "/v1/responses"}, "invalid_url", "/v1/responses"),
        ({"url": ["/v1/completions"]}, "invalid_url", "url"),
        ({"body": [1]}, "invalid_body", "body"),
    ],
)
def test_an_invalid_field_is_named_and_its_line_has_an_id(
    changes: dict[str, Any], code: str, names: str
) -> None:
    parsed = parse_line(json.dumps(REQUEST | changes).encode())

    assert isinstance(parsed, RejectedLine)
    assert (parsed.code, parsed.custom_id) == (code, "a")
    assert names in parsed.message


@pytest.mark.parametrize("name", ["method", "url", "body"])
def test_a_missing_field_is_named(name: str) -> None:
    fields = {key: value for key, value in REQUEST.items() if key != name}

    assert parse_line(json.dumps(fields).encode()) == RejectedLine(
        "missing_required_parameter", f"{name}: is missing", "a"
    )


@pytest.mark.parametrize(
    "line", [b"", b"{", b"\xff", b"[1]", b"{}", b'{"custom_id": 3}', b'{"custom_id": ""}']
)
def test_a_line_without_an_id_has_none(line: bytes) -> None:
    parsed = parse_line(line)

    assert isinstance(parsed, RejectedLine)
    assert parsed.custom_id is None


@pytest.mark.parametrize(
    "line", [response_line("\N{SNOWMAN}", 200, b"{}"), error_line("a", "code", "text")]
)
def test_every_beginning_of_a_line_counts_as_torn(line: bytes) -> None:
    assert all(is_torn_line(line[:end]) for end in range(len(line)))
    assert is_torn_line(line[:30] + b"\0" * 4096)


@pytest.mark.parametrize("text", [b"notes", b'{"id": 1', b'{"custom_id":"a"'])
def test_other_texts_do_not(text: bytes) -> None:
    assert not is_torn_line(text)
