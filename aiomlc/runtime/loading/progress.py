"""The progress of opening a model."""

from __future__ import annotations

__all__ = (
    "LoadProgress",
    "OnProgress",
    "compile_progress",
    "convert_progress",
    "download_progress",
    "ignore_progress",
)

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aiomlc.compiler.job import CompileProgress
from aiomlc.sources.job import DownloadProgress

if TYPE_CHECKING:
    from aiomlc.weights import Progress


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of loading a model."""

    stage: Literal["download", "compile", "convert", "load"]
    fraction: float | None  #: Completed fraction of this stage, from 0 to 1; None if unknown.
    message: str
    file: str | None = None  #: The file that is downloaded.
    done_bytes: int | None = None  #: Bytes of all files that are already here.
    total_bytes: int | None = None  #: Bytes of all files; None if not known yet.


OnProgress = Callable[[LoadProgress], object]


def download_progress(progress: DownloadProgress) -> LoadProgress:
    """Return the progress of a download as progress of loading."""
    return LoadProgress(
        "download",
        progress.done_bytes / progress.total_bytes if progress.total_bytes else None,
        progress.message,
        file=progress.file,
        done_bytes=progress.done_bytes,
        total_bytes=progress.total_bytes,
    )


def compile_progress(progress: CompileProgress) -> LoadProgress:
    """Return the progress of a compilation as that of loading."""
    return LoadProgress("compile", progress.fraction, f"compiling the model: {progress.stage}")


def convert_progress(progress: Progress) -> LoadProgress:
    """Return the progress of packing the weights as that of loading."""
    fraction = progress.done_bytes / progress.total_bytes if progress.total_bytes else 1.0
    return LoadProgress("convert", fraction, "packing the weights")


def ignore_progress(_: LoadProgress) -> None:
    """Do nothing."""
