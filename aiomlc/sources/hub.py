"""Requests to the hub, through huggingface_hub's session. Imported in the downloading process only.

huggingface_hub's own download is not used: it cannot continue a file that a killed process has
begun, compares sizes but no hashes, and waits as long as a rate limit says.
"""

from __future__ import annotations

__all__ = ("Hub", "RemoteFile", "as_failure", "retrying")

import math
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar
from urllib.parse import quote

from huggingface_hub import constants, errors
from huggingface_hub.utils import get_session, get_token, hf_raise_for_status

from aiomlc._version import __version__
from aiomlc.cache.files import is_transient
from aiomlc.sources.job import DownloadJob, Failure, FailureKind
from aiomlc.validation.json_values import read_json, safe_repr

MAX_WAIT_SECONDS: Final = 30.0  # A rate limit that lasts longer is an error.
_DELAYS: Final = (0.5, 1.0, 2.0, 4.0)
_HASTY_TIMEOUT = 5.0
_MAX_LISTING_BYTES = 64 << 20  # Some 200,000 files.
_LISTING_TIMEOUTS = 6  # Of a single read: for all of the list.
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# The first class that an error has: a gated repository is also one that is not found.
_ANSWERS: Final[dict[type[Exception], FailureKind]] = {
    errors.GatedRepoError: "gated",
    errors.RepositoryNotFoundError: "repository",
    errors.RevisionNotFoundError: "revision",
    errors.EntryNotFoundError: "file",
}
_STATUSES: Final[dict[int, FailureKind]] = {401: "access", 403: "access", 404: "repository"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository. Its hash is the name of its blob, in the hub's cache as well."""

    name: str
    size: int
    hash: str  #: SHA-256 if it has 64 digits, else the SHA-1 of a git blob.


class Hub:
    """A repository of the hub."""

    def __init__(self, job: DownloadJob) -> None:
        self._job = job
        self._timeout = _HASTY_TIMEOUT if job.is_hasty else constants.HF_HUB_DOWNLOAD_TIMEOUT
        self._headers = _headers()

    def list_files(self, revision: str) -> tuple[str, dict[str, RemoteFile]]:
        """Return the commit of a revision, and its files by name.

        Raises:
            Failure: If the hub does not answer as expected.
        """
        url = f"{self._job.endpoint}/api/models/{self._job.repository}/revision/"
        with (
            _failures(),
            get_session().stream(
                "GET",
                url + quote(revision, safe=""),
                params={"blobs": "true"},
                headers=self._headers,
                timeout=self._timeout,
                follow_redirects=True,
            ) as answer,
        ):
            _raise_for_status(answer)
            try:
                listing = _read_listing(answer.iter_bytes(), _LISTING_TIMEOUTS * self._timeout)
                return _parse_listing(read_json(listing.decode()))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                detail = f"{url} does not answer as a hub does: {error!r}"
                raise Failure("network", detail, answer.status_code) from error

    @contextmanager
    def open(self, name: str, commit: str, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Yield the offset at which the hub begins to send a file, and the blocks that it sends.

        Args:
            offset: The offset to begin with; a hub that does not support it begins with 0.

        Raises:
            Failure: If the hub does not send the file, or the connection is cut.
        """
        url = f"{self._job.endpoint}/{self._job.repository}/resolve/{commit}/{quote(name)}"
        headers = {**self._headers, "Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        with (
            _failures(),
            get_session().stream(
                "GET", url, headers=headers, timeout=self._timeout, follow_redirects=True
            ) as answer,
        ):
            if answer.status_code == 416:  # The file ends before the offset.
                yield offset, iter(())
                return

            _raise_for_status(answer)
            start = offset if answer.status_code == 206 else 0
            yield start, answer.iter_bytes()


def retrying(action: Callable[[], T], waiting: Callable[[str], object], *, is_hasty: bool) -> T:
    """Return what `action` returns; call it again, a few times, if the hub or the network fails.

    Args:
        waiting: Called with the reason before each wait.
        is_hasty: Whether to give up at once.

    Raises:
        Failure: The last one, or the first one that trying again does not help.
    """
    for delay in _DELAYS:
        try:
            return action()
        except Failure as failure:
            seconds = _wait_of(failure, delay)
            if is_hasty or seconds is None:
                raise

            waiting(f"{failure.detail}; trying again in {math.ceil(seconds)} s")
            time.sleep(seconds)
    return action()


def as_failure(error: Exception) -> Failure | None:
    """Return the failure that an exception of huggingface_hub or of its HTTP client means."""
    match error:
        case Failure():
            return error
        case errors.HfHubHTTPError():
            return _of_answer(error)
        case errors.OfflineModeIsEnabled():
            return Failure("offline")
        case _ if _is_transport_error(error):
            return Failure("network", f"{type(error).__name__}: {error}".rstrip(": "))
        case OSError() if is_transient(error):
            return Failure("worker", error.strerror or str(error))
        case OSError():
            return Failure("disk", error.strerror or str(error))
        case _:
            return None


def _headers() -> dict[str, str]:
    headers = {"User-Agent": f"aiomlc/{__version__}"}
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return {**headers, "Authorization": f"Bearer {token}"} if token else headers


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        failure = as_failure(error)
        if failure is None or failure is error:
            raise

        raise failure from error


def _is_transport_error(error: Exception) -> bool:
    """Return whether an HTTP client failed; versions of huggingface_hub have different ones."""
    return any(kind.__name__ in {"TransportError", "HTTPError"} for kind in type(error).__mro__)


def _of_answer(error: errors.HfHubHTTPError) -> Failure:
    status = error.response.status_code
    detail = f"{error.response.url} answers with status {status}"
    if status == 429:
        return Failure("rate", detail, status, _retry_after(error.response.headers))

    for known, answer in _ANSWERS.items():
        if isinstance(error, known):
            return Failure(answer, detail, status)

    kind = _STATUSES.get(status, "network")
    if kind == "access" and "Authorization" not in error.response.request.headers:
        kind = "repository"  # A hub answers like this also if there is none of this name.

    return Failure(kind, detail, status)


def _retry_after(headers: Any) -> float | None:  # noqa: ANN401 - of the HTTP client in use.
    """Return the seconds in `Retry-After`, else the time to reset in `RateLimit`."""
    match = re.search(r"\bt=(\d+)", headers.get("RateLimit", ""))
    text = headers.get("Retry-After", match[1] if match else "")
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else None


def _wait_of(failure: Failure, delay: float) -> float | None:
    """Return the seconds to wait before another attempt; None if it would not help."""
    is_transient = failure.kind == "network" and (failure.status or 500) >= 408
    if failure.kind != "rate" and not is_transient:
        return None

    if failure.retry_after is None:
        return delay * random.uniform(0.75, 1.25)  # Processes that failed together come apart.

    return failure.retry_after if failure.retry_after <= MAX_WAIT_SECONDS else None


def _raise_for_status(answer: Any) -> None:  # noqa: ANN401 - of the HTTP client in use.
    """Do as `hf_raise_for_status`, which would read all of an error's body for its message."""
    if answer.is_error:
        headers = {k: v for k, v in answer.headers.items() if not k.lower().startswith("content-")}
        bare = {"headers": headers, "content": b"", "request": answer.request}
        answer = type(answer)(answer.status_code, **bare)
    hf_raise_for_status(answer)


def _read_listing(blocks: Iterator[bytes], max_seconds: float) -> bytes:
    """Return the body of an answer, whose size and time are limited."""
    listing, end = bytearray(), time.monotonic() + max_seconds
    for block in blocks:
        listing += block
        if len(listing) > _MAX_LISTING_BYTES:
            raise ValueError(f"the list of files has more than {_MAX_LISTING_BYTES:,} bytes")

        if time.monotonic() > end:
            raise ValueError(f"the list of files takes more than {max_seconds:.0f} s")

    return bytes(listing)


def _parse_listing(answer: dict[str, Any]) -> tuple[str, dict[str, RemoteFile]]:
    commit = answer["sha"]
    files = {}
    for item in answer["siblings"]:
        content = item.get("lfs") or {}
        name, size = item["rfilename"], content.get("size", item.get("size"))
        digest = content.get("sha256") or item["blobId"]
        is_file = _is_path(name) and isinstance(size, int) and size >= 0 and _HASH.fullmatch(digest)
        if not is_file:
            raise ValueError(f"the entry of {safe_repr(name)}")

        files[name] = RemoteFile(name, size, digest)
    if not _COMMIT.fullmatch(commit):
        raise ValueError("the commit")

    return commit, files


def _is_path(name: object) -> bool:
    """Return whether a name is a path within a repository."""
    if not isinstance(name, str) or "\0" in name:
        return False

    path = PurePosixPath(name)
    return str(path) == name != "." and not path.is_absolute() and ".." not in path.parts
