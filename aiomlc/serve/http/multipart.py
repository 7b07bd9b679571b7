"""Parsing of forms (`multipart/form-data`, RFC 7578) that are complete in memory."""

from __future__ import annotations

__all__ = ("FormError", "Part", "parse_multipart")

import re
from dataclasses import dataclass
from typing import Final

from aiomlc.validation.json_values import safe_repr

_MAX_PARTS: Final = 64
_MAX_HEADERS: Final = 2**13  # Bytes of a part's headers.
_SEARCHED: Final = 2**20  # Bytes at once, while no other thread runs.
_MAX_TEXT: Final = 2**18  # Bytes of a part that is no file.
_PARAMETER: Final = re.compile(
    r';[ \t]*([!#$%&\'*+.^`|~\w-]+)=("(?:[^"\\]|\\.)*"|[^;"]*)', re.ASCII
)
_BOUNDARY: Final = re.compile(r"[ -~]{0,199}[!-~]")
_LINE_END: Final = re.compile(rb"[ \t]*\r\n")


class FormError(ValueError):
    """A body is not a form, or exceeds a limit."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a form."""

    name: str
    content: bytes
    is_file: bool

    def text(self) -> str:
        """Return the value of a field that is no file.

        Raises:
            FormError: If it is not UTF-8.
        """
        return _utf8(self.content, self.name)


def parse_multipart(content_type: str, body: bytes) -> list[Part]:
    """Return the parts of a form in their order. Takes time linear in its size.

    Args:
        content_type: The header of the request.
        body: The whole body.

    Raises:
        FormError: If the header or the body is invalid, not complete, or exceeds a limit.
    """
    delimiter = b"\r\n--" + _boundary(content_type)
    # Text before the first delimiter and after the last one means nothing.
    at = -2 if body.startswith(delimiter[2:]) else _find(body, delimiter, 0)
    parts: list[Part] = []
    while at != -1:
        begin = at + len(delimiter)
        if body.startswith(b"--", begin):
            return parts

        if len(parts) == _MAX_PARTS:
            raise FormError(f"it must have at most {_MAX_PARTS} fields")

        line_end = _LINE_END.match(body, begin)
        if line_end is None:
            line = body[begin : begin + 20]
            raise FormError(f"a boundary must end with a line break, got {line!r} after it")

        headers, begin = _headers(body, line_end.end())
        at = _find(body, delimiter, begin - 2)  # A part may be empty.
        if at != -1:
            parts.append(_part(headers, body[begin:at]))
    last = safe_repr(delimiter[2:].decode() + "--")
    raise FormError(f"it must end with the line {last}, got {len(body)} bytes without it")


def _find(body: bytes, delimiter: bytes, begin: int) -> int:
    for start in range(begin, len(body), _SEARCHED):
        at = body.find(delimiter, start, start + _SEARCHED + len(delimiter) - 1)
        if at != -1:
            return at

    return -1


def _boundary(content_type: str) -> bytes:
    value = _parameters(content_type).get("boundary")
    if value is None:
        raise FormError("Content-Type must have a boundary, as in multipart/form-data; boundary=x")

    if _BOUNDARY.fullmatch(value) is None:
        raise FormError(
            f"the boundary must have 1 to 200 characters of ASCII, got {safe_repr(value)}"
        )

    _check_charset(content_type)
    return value.encode()


def _headers(body: bytes, begin: int) -> tuple[dict[str, str], int]:
    """Return the headers of a part, and where its content begins."""
    end = body.find(b"\r\n\r\n", begin, begin + _MAX_HEADERS)
    if end == -1:
        raise FormError(f"the headers of a field must end within {_MAX_HEADERS} bytes")

    headers: dict[str, str] = {}
    for line in body[begin:end].decode("latin-1").split("\r\n"):
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or name in headers:
            raise FormError(f"a header must be a name, a colon and a value, got {safe_repr(line)}")

        headers[name] = value.strip(" \t")
    return headers, end + 4


def _part(headers: dict[str, str], content: bytes) -> Part:
    disposition = headers.get("content-disposition", "")
    parameters = _parameters(disposition)
    kind = disposition.partition(";")[0].strip().lower()
    if kind != "form-data" or not parameters.get("name"):
        raise FormError(
            'each field must have the header Content-Disposition: form-data; name="...", got '
            f"{safe_repr(disposition)}"
        )

    name = _utf8(parameters["name"].encode("latin-1"), "name")
    encoding = headers.get("content-transfer-encoding", "binary").lower()
    if encoding not in ("7bit", "8bit", "binary"):
        raise FormError(
            f"{safe_repr(name)} must be sent as it is, got Content-Transfer-Encoding: "
            f"{safe_repr(encoding)}"
        )

    is_file = "filename" in parameters or "filename*" in parameters
    if not is_file:
        _check_charset(headers.get("content-type", ""))
        if len(content) > _MAX_TEXT:
            raise FormError(
                f"{safe_repr(name)} must have at most {_MAX_TEXT} bytes, got {len(content)}"
            )

    return Part(name, content, is_file)


def _parameters(header: str) -> dict[str, str]:
    """Return the parameters of a header, names in small letters."""
    parameters: dict[str, str] = {}
    for name, value in _PARAMETER.findall(header):
        if name.lower() in parameters:
            raise FormError(f"a header must name {name} once, got {safe_repr(header)}")

        is_quoted = len(value) > 1 and value[0] == '"'
        text = re.sub(r"\\(.)", r"\1", value[1:-1]) if is_quoted else value.strip()
        parameters[name.lower()] = text
    return parameters


def _check_charset(content_type: str) -> None:
    charset = _parameters(content_type).get("charset", "utf-8")
    if charset.lower() not in ("utf-8", "utf8", "us-ascii"):
        raise FormError(f"charset must be utf-8, got {safe_repr(charset)}")


def _utf8(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FormError(
            f"{safe_repr(name)} must be UTF-8, got {data[error.start : error.start + 4]!r} at byte "
            f"{error.start}"
        ) from None
