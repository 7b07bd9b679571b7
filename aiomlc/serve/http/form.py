"""Reading of forms (`multipart/form-data`) with one file, within limits of size and time."""

from __future__ import annotations

__all__ = ("Form", "read_form")

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from importlib.util import find_spec

from anyio.lowlevel import checkpoint
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.types import Receive, Scope

from aiomlc.errors import MissingPackageError
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.http.request_body import read_body
from aiomlc.serve.options import ServerOptions

_FORM = "multipart/form-data"
_MAX_FIELDS = 64
_MAX_FIELD_SIZE = 2**18  # Bytes.
_CHUNK_SIZE = 2**18  # Bytes that are parsed before others have a turn.


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form, and its file."""

    fields: dict[str, str | list[str]]  #: A list if the name ends with `[]`, which is left out.
    file: bytes | None


async def read_form(scope: Scope, receive: Receive, options: ServerOptions, file: str) -> Form:
    """Receive a form.

    Args:
        scope: The request.
        receive: Its parts.
        options: The limits.
        file: The name of the only field that may be a file.

    Raises:
        HTTPError: If the body is no form (400, 415), too large (413) or too slow (408), or has
            another file (400).
        MissingPackageError: If a package of the extra `audio` is not installed.
        ClientDisconnect: If the client disconnects.
    """
    headers = Headers(scope=scope)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise HTTPError(
            415,
            f"Content-Type: must be {_FORM}, got {headers.get('content-type')!r}",
            code="unsupported_media_type",
        )

    if find_spec("python_multipart") is None:
        raise MissingPackageError("python-multipart", "pip install 'aiomlc[audio]'")

    body = await read_body(scope, receive, options, max_size=options.max_audio_size)
    return await _parse(headers, body, file)


async def _parse(headers: Headers, body: bytes, file: str) -> Form:
    from starlette.formparsers import MultiPartException, MultiPartParser  # Needs the package.

    parser = MultiPartParser(
        headers,
        _chunks(body),
        max_files=1,
        max_fields=_MAX_FIELDS,
        max_part_size=_MAX_FIELD_SIZE,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, UnicodeDecodeError, KeyError) as error:
        reason = getattr(error, "message", None) or error
        raise HTTPError(400, f"the body is not a form: {reason}", code="invalid_form") from None

    try:
        return await _read(form, file)
    finally:
        await form.close()


async def _read(form: FormData, file: str) -> Form:
    fields: dict[str, str | list[str]] = {}
    content: bytes | None = None
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name != file:
                raise HTTPError(400, f"{name}: must not be a file", param=name)

            content = await value.read()
        elif name.endswith("[]"):
            items = fields.setdefault(name.removesuffix("[]"), [])
            if isinstance(items, list):
                items.append(value)
        else:
            fields[name] = value
    return Form(fields, content)


async def _chunks(body: bytes) -> AsyncGenerator[bytes, None]:
    for begin in range(0, len(body), _CHUNK_SIZE):
        yield body[begin : begin + _CHUNK_SIZE]
        await checkpoint()
    yield b""
