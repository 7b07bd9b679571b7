"""The work of the downloading process: list, download, verify and record a snapshot."""

from __future__ import annotations

__all__ = ("run_job",)

import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from aiomlc.cache.files import Stamp, write_atomically
from aiomlc.sources.blobs import BlobStore
from aiomlc.sources.files import description_files, weight_files
from aiomlc.sources.hub import Hub, RemoteFile, retrying
from aiomlc.sources.job import DownloadJob, DownloadProgress, Failure
from aiomlc.sources.snapshots import (
    cached_commit,
    is_unchanged,
    record_snapshot,
    recorded_files,
    repository_folder,
    stamp_file,
)

_THREADS: Final = 4  # Files that are downloaded at once.
_REPORT_SECONDS = 0.1
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

Report = Callable[[DownloadProgress], object]


def run_job(job: DownloadJob, report: Report) -> str:
    """Complete the snapshot of a job, record it, and return its commit.

    Raises:
        Failure: If that is not possible.
        OSError: If the cache cannot be read or written.
    """
    folder = repository_folder(Path(job.cache), job.repository)
    progress = _Progress(report)
    hub = None if job.is_offline else Hub(job)
    try:
        commit, files = _list(job, hub, folder, progress)
        snapshot = _SnapshotFiles(job, hub, files, folder / "snapshots" / commit, progress)
        snapshot.provide(description_files(files, job.file))
        snapshot.provide(weight_files(files, job.file, snapshot.directory))
    except Failure as failure:
        if hub is None:
            raise Failure("offline", failure.detail) from failure

        raise

    _write_reference(folder, job.revision, commit)
    record_snapshot(snapshot.directory, job.file, snapshot.stamps, checked=hub is not None)
    return commit


class _SnapshotFiles:
    """The files of one snapshot: complete ones, and those that become complete."""

    def __init__(
        self,
        job: DownloadJob,
        hub: Hub | None,
        files: Mapping[str, RemoteFile],
        directory: Path,
        progress: _Progress,
    ) -> None:
        self.directory: Final = directory
        self.stamps: Final[dict[str, Stamp]] = {}
        self._files = files
        self._progress = progress
        self._known = recorded_files(directory, job.file)
        self._folder = directory.parents[1]
        self._blobs = BlobStore(self._folder, hub, directory.name, progress, is_hasty=job.is_hasty)

    def provide(self, names: Iterable[str]) -> None:
        """Download the files that are missing; check the hashes of those not known to be intact."""
        needed = [self._files[name] for name in names]
        self._progress.expect(needed)
        _check_space(self._folder, needed)
        threads = ThreadPoolExecutor(_THREADS)
        try:
            list(threads.map(self._provide, needed))
        finally:  # After a failure, the process ends while other files are being downloaded.
            threads.shutdown(wait=False, cancel_futures=True)

    def _provide(self, file: RemoteFile) -> None:
        pointer = self.directory / file.name
        known = self._known.get(file.name)
        if known is None or not is_unchanged(pointer, known):
            self._blobs.provide(file, pointer)
        self.stamps[file.name] = stamp_file(pointer)
        self._progress.advance(file.name, file.size)


def _list(
    job: DownloadJob, hub: Hub | None, folder: Path, progress: _Progress
) -> tuple[str, Mapping[str, RemoteFile]]:
    """Return the commit and its files; without the hub, those that are cached."""
    if hub is not None:
        return retrying(lambda: hub.list_files(job.revision), progress.say, is_hasty=job.is_hasty)

    is_commit = _COMMIT.fullmatch(job.revision)
    commit = job.revision if is_commit else cached_commit(folder, job.revision)
    directory = folder / "snapshots" / (commit or "")
    if commit is None or not directory.is_dir():
        raise Failure("offline", "it is not in the cache")

    return commit, dict(_cached_files(directory))


def _cached_files(directory: Path) -> Iterable[tuple[str, RemoteFile]]:
    """Yield the files of a snapshot; the names of their blobs are their hashes."""
    for path in directory.rglob("*"):
        if path.is_file():
            name, blob = path.relative_to(directory).as_posix(), path.resolve().name
            if path.is_symlink() and _HASH.fullmatch(blob):
                yield name, RemoteFile(name, path.stat().st_size, blob)


def _check_space(folder: Path, files: Iterable[RemoteFile]) -> None:
    """Require that the disk has room for what is missing."""
    missing = sum(file.size - _downloaded(folder / "blobs" / file.hash) for file in files)
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if missing > free:
        raise Failure("disk", f"{missing:,} bytes are needed, and {free:,} are free")


def _downloaded(blob: Path) -> int:
    """Return how much of a blob is here."""
    for path in (blob, blob.with_name(f"{blob.name}.incomplete")):
        with suppress(OSError):
            return path.stat().st_size
    return 0


def _write_reference(folder: Path, revision: str, commit: str) -> None:
    """Write which commit a branch or tag has; after its files, unlike huggingface_hub."""
    if not _COMMIT.fullmatch(revision) and cached_commit(folder, revision) != commit:
        path = folder / "refs" / revision
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, commit.encode())


class _Progress:
    """The bytes of all files, reported a few times a second."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lock = Lock()
        self._done: dict[str, int] = {}
        self._total = 0
        self._reported = 0.0

    def expect(self, files: Iterable[RemoteFile]) -> None:
        """Add files to the total."""
        self._total += sum(file.size for file in files)

    def advance(self, name: str, done: int) -> None:
        """Set the bytes of a file that are here."""
        with self._lock:
            self._done[name] = done
            now = time.monotonic()
            if now - self._reported > _REPORT_SECONDS or self._bytes() >= self._total:
                self._reported = now
                self._send(f"downloading {name}", name)

    def say(self, message: str) -> None:
        """Report what is waited for."""
        with self._lock:
            self._send(message, None)

    def _send(self, message: str, file: str | None) -> None:
        self._report(DownloadProgress(message, file, self._bytes(), self._total or None))

    def _bytes(self) -> int:
        return sum(self._done.values())
