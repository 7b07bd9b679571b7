"""The job of the downloading process and its reports, exchanged as JSON."""

from __future__ import annotations

__all__ = ("DownloadJob", "DownloadProgress", "Failure", "FailureKind")

from dataclasses import dataclass
from typing import Literal, TypeAlias

FailureKind: TypeAlias = Literal[
    "repository",  # It does not exist, or is private.
    "revision",
    "file",
    "format",  # The repository has no files that can be opened.
    "gated",
    "access",
    "rate",
    "network",  # No answer, or one that says that the hub is at fault.
    "offline",  # The hub must not be asked, and something is missing.
    "damaged",
    "disk",
    "worker",  # The downloading process failed.
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadJob:
    """The files of one model at one revision."""

    repository: str
    revision: str
    file: str | None  #: A GGUF file, or None for the files of a model directory.
    cache: str  #: The directory of the hub's cache.
    endpoint: str
    is_offline: bool  #: Whether to verify what is cached, without the hub.
    is_hasty: bool  #: Whether to give up early, because a complete snapshot is cached.


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """The progress of a download."""

    message: str
    file: str | None = None
    done_bytes: int = 0  #: Of all files, what was downloaded before included.
    total_bytes: int | None = None  #: Of all files; None if not known yet.


@dataclass(eq=False)
class Failure(Exception):  # noqa: N818 - becomes an error of the library in the parent.
    """Why a download failed."""

    kind: FailureKind
    detail: str = ""
    status: int | None = None  #: The HTTP status.
    retry_after: float | None = None  #: Seconds.
