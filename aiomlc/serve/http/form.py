"""Reading of forms (`multipart/form-data`) with one file, within limits of size and time."""

from __future__ import annotations

__all__ = ("Form", "read_form")

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.http.multipart import FormError, Part, parse_multipart
from aiomlc.serve.http.request_body import read_body
from aiomlc.serve.options import ServerOptions
from aiomlc.validation.json_values import safe_repr, short_name

_FORM = "multipart/form-data"


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
        file: The name of the only field that is a file.

    Raises:
        HTTPError: If the body is no form (400, 415), too large (413) or too slow (408), or has
            another file or a field twice (400).
        ClientDisconnect: If the client disconnects.
    """
    content_type = Headers(scope=scope).get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != _FORM:
        raise HTTPError(
            415,
            f"Content-Type: must be {_FORM}, got {safe_repr(content_type)}",
            code="unsupported_media_type",
        )

    body = await read_body(scope, receive, options, max_size=options.max_audio_size)
    return await run_in_worker(lambda _: _parse(content_type, body, file))


def _parse(content_type: str, body: bytes, file: str) -> Form:
    try:
        return _to_form(parse_multipart(content_type, body), file)
    except FormError as error:
        raise HTTPError(400, f"the body is not a form: {error}", code="invalid_form") from None


def _to_form(parts: list[Part], file: str) -> Form:
    fields: dict[str, str | list[str]] = {}
    content: bytes | None = None
    for part in parts:
        name = part.name.removesuffix("[]")
        if part.is_file != (part.name == file):
            wrong = "must not be a file" if part.is_file else "must be a file, with a filename"
            raise _invalid(name, wrong)

        known = fields.get(name)
        if part.name != name and isinstance(known, list):
            known.append(part.text())
        elif name in fields or (part.is_file and content is not None):
            raise _invalid(name, "must be given once; only names that end with [] repeat")
        elif part.is_file:
            content = part.content
        else:
            fields[name] = part.text() if part.name == name else [part.text()]
    return Form(fields, content)


def _invalid(name: str, problem: str) -> HTTPError:
    shown = short_name(name)
    return HTTPError(400, f"{shown}: {problem}", param=shown)
