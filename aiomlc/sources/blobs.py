"""Downloads into the blobs of the hub's cache: continued, hashed, then published by a rename.

Imported in the downloading process only.
"""

from __future__ import annotations

__all__ = ("BlobStore", "is_intact")

import hashlib
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from filelock import FileLock, Timeout
from huggingface_hub import constants

from aiomlc.sources.hub import Hub, RemoteFile, retrying
from aiomlc.sources.job import Failure

_BLOCK_BYTES: Final = 1 << 20
_ATTEMPTS: Final = 2  # At a file whose hash or length is wrong.
_LOCK_SECONDS = 0.2  # Until it is reported that another process downloads the file.


class Reporter(Protocol):
    """Receives the progress of a download."""

    def advance(self, name: str, done: int) -> None:
        """Set the bytes of a file that are here."""
        ...

    def say(self, message: str) -> None:
        """Report what is waited for."""
        ...


class BlobStore:
    """The blobs of one repository.

    Args:
        hub: The repository; None if the hub must not be asked.
        is_hasty: Whether to give up at the first error.
    """

    def __init__(
        self, folder: Path, hub: Hub | None, commit: str, report: Reporter, *, is_hasty: bool
    ) -> None:
        self._folder = folder
        self._hub = hub
        self._commit = commit
        self._report = report
        self._is_hasty = is_hasty

    def provide(self, file: RemoteFile, pointer: Path) -> None:
        """Make `pointer` lead to the intact contents of a file, which is downloaded if needed.

        Raises:
            Failure: If that is not possible.
        """
        if pointer.is_file() and is_intact(pointer, file):
            return

        if self._hub is None:
            problem = "is damaged" if pointer.exists() else "is missing"
            raise Failure("offline", f"{file.name} {problem} in the cache")

        blob = self._folder / "blobs" / file.hash
        blob.parent.mkdir(parents=True, exist_ok=True)
        with self._locked(file):
            if not blob.is_file() or not is_intact(blob, file):
                self._download(self._hub, file, blob)
            _link(blob, pointer)

    def _download(self, hub: Hub, file: RemoteFile, blob: Path) -> None:
        partial = blob.with_name(f"{blob.name}.incomplete")
        problem: str | None = None
        for _ in range(_ATTEMPTS):
            problem = self._complete(hub, file, partial)
            if problem is None:
                partial.replace(blob)
                return

            partial.unlink()
            self._report.advance(file.name, 0)
        raise Failure("damaged", f"{file.name} {problem}")

    def _complete(self, hub: Hub, file: RemoteFile, partial: Path) -> str | None:
        """Download what is missing of a file; return what is wrong with it, if anything."""
        with partial.open("a+b") as target:
            digest = _Digest(file)
            target.seek(0)
            while block := target.read(_BLOCK_BYTES):
                digest.update(block)

            most = -1
            while most < digest.nbytes < file.size:
                most = digest.nbytes
                self._continue(hub, file, target, digest)
            target.flush()
            os.fsync(target.fileno())

        if digest.nbytes != file.size:
            comparison = "more" if digest.nbytes > file.size else "fewer"
            return f"has {comparison} than its {file.size} bytes"

        return None if digest.hexdigest() == file.hash else "does not match its hash"

    def _continue(
        self, hub: Hub, file: RemoteFile, target: io.BufferedRandom, digest: _Digest
    ) -> None:
        """Append what the hub sends, until it ends or a connection that sent something is cut."""
        most = digest.nbytes

        def receive() -> None:
            try:
                self._receive(hub, file, target, digest)
            except Failure as failure:
                if failure.kind != "network" or digest.nbytes <= most:
                    raise

        retrying(receive, self._report.say, is_hasty=self._is_hasty)

    def _receive(
        self, hub: Hub, file: RemoteFile, target: io.BufferedRandom, digest: _Digest
    ) -> None:
        with hub.open(file.name, self._commit, digest.nbytes) as (start, blocks):
            if start != digest.nbytes:  # The hub does not continue files.
                target.truncate(0)
                digest.reset()
            for block in blocks:
                target.write(block)
                digest.update(block)
                self._report.advance(file.name, min(digest.nbytes, file.size))
                if digest.nbytes > file.size:
                    return

    @contextmanager
    def _locked(self, file: RemoteFile) -> Iterator[None]:
        """Hold the lock with which huggingface_hub protects the download of a file."""
        path = self._folder.parent / ".locks" / self._folder.name / f"{file.hash}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, mode=0o664)  # Of a group that shares the cache.
        try:
            lock.acquire(timeout=_LOCK_SECONDS)
        except Timeout:
            self._report.say(f"another process downloads {file.name}")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def is_intact(path: Path, file: RemoteFile) -> bool:
    """Return whether a file has the size and the hash that it should have. Reads all of it."""
    if path.stat().st_size != file.size:
        return False

    digest = _Digest(file)
    with path.open("rb", buffering=0) as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest() == file.hash


class _Digest:
    """The hash and the size of what was received of a file."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self.reset()

    def reset(self) -> None:
        self.nbytes = 0
        if len(self._file.hash) == 64:
            self._hash = hashlib.sha256()
        else:
            self._hash = hashlib.sha1(b"blob %d\0" % self._file.size, usedforsecurity=False)

    def update(self, block: bytes) -> None:
        self.nbytes += len(block)
        self._hash.update(block)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _link(blob: Path, pointer: Path) -> None:
    """Make `pointer` a link to a blob, or the blob itself if there are no symbolic links."""
    pointer.parent.mkdir(parents=True, exist_ok=True)
    link = pointer.with_name(f".{pointer.name}.{secrets.token_hex(4)}")
    try:
        if constants.HF_HUB_DISABLE_SYMLINKS:
            blob.replace(pointer)
            return

        link.symlink_to(os.path.relpath(blob, pointer.parent))
        link.replace(pointer)
    except PermissionError:  # The file system has no symbolic links.
        blob.replace(pointer)
