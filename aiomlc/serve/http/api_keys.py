"""The API keys of a server."""

from __future__ import annotations

__all__ = ("ANONYMOUS", "APIKeys", "read_api_keys")

import hmac
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import final

from starlette.datastructures import Headers

from aiomlc.errors import BadRequestError
from aiomlc.serve.http.http_errors import HTTPError

ANONYMOUS = -1  #: The index of the key of every request to a server without keys.
_CHALLENGE = {"www-authenticate": "Bearer"}


@final
class APIKeys:
    """The accepted API keys, of which only the hashes are kept."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._hashes = [_hash(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def check(self, headers: Headers) -> int:
        """Return the index of the API key that a request carries.

        The time of the check depends on the number of keys, but not on the keys.

        Raises:
            HTTPError: If the key is missing or unknown (401).
        """
        if not self._hashes:
            return ANONYMOUS

        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise HTTPError(
                401,
                "an API key is required: send the header `Authorization: Bearer KEY`",
                code="missing_api_key",
                headers=_CHALLENGE,
            )

        found = ANONYMOUS
        given = _hash(key.strip().encode("latin-1"))
        for index, accepted in enumerate(self._hashes):
            if hmac.compare_digest(given, accepted):
                found = index

        if found == ANONYMOUS:
            raise HTTPError(
                401, "the API key is not valid", code="invalid_api_key", headers=_CHALLENGE
            )

        return found


def read_api_keys(
    key: str | None, path: Path | None, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the API keys of a command line and its environment, in this order.

    Args:
        path: A file with one key per line; empty lines and lines that begin with `#` are ignored.
        environment: May have `AIOMLC_API_KEY`, and `AIOMLC_API_KEYS` with keys between commas.

    Raises:
        BadRequestError: If a key is given but empty, or the file has none.
    """
    keys = [] if key is None else [key]
    if path is not None:
        in_file = _read_lines(path)
        if not in_file:
            raise BadRequestError(f"--api-key-file: {path} contains no key", param="api_key_file")

        keys += in_file

    for name in ("AIOMLC_API_KEY", "AIOMLC_API_KEYS"):
        value = environment.get(name)
        if value is not None:
            keys += (part.strip() for part in value.split(","))

    if "" in keys:
        raise BadRequestError("an API key is empty; unset it to serve without keys")

    return tuple(dict.fromkeys(keys))


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadRequestError(
            f"--api-key-file: cannot read {path}: {reason}", param="api_key_file"
        ) from error

    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _hash(key: bytes) -> bytes:
    # All hashes have one length, which a comparison reveals.
    return sha256(key).digest()
