"""Files of a tool's output directory, which appear only when all of them are complete."""

from __future__ import annotations

__all__ = ("StagedOutput", "check_conflicts", "staged_output", "write_error")

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import CancelScope, to_thread

from aiomlc.errors import BadRequestError, ModelLoadError

_REPLACED = ".replaced"


def write_error(path: Path, error: OSError) -> ModelLoadError:
    """Return the error for a file that cannot be written."""
    return ModelLoadError(f"{path}: cannot write: {error.strerror or error}", path=path)


def check_conflicts(output: Path, names: Iterable[str], *, force: bool) -> None:
    """Require that the output is a directory or does not exist, and that it has none of the files.

    Args:
        output: The output directory.
        names: File names; they may be patterns.
        force: Whether files may be replaced.

    Raises:
        BadRequestError: If a file exists and `force` is False, or the output is a file.
    """
    if output.exists() and not output.is_dir():
        raise BadRequestError(f"output must be a directory, got the file {output}", param="output")

    existing = sorted({path.name for name in names for path in output.glob(name)})
    if existing and not force:
        raise BadRequestError(
            f"{output} already contains {existing[0]}; choose another output, or pass force=True "
            "(--force) to replace it",
            param="output",
        )


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """A private directory in the output, or beside it if the output does not exist yet.

    So no file system is crossed, and nothing is written beside a directory that exists.
    """

    path: Path
    output: Path

    def publish(self, last: str, replaced: Sequence[str] = ()) -> None:
        """Move all files to the output.

        Args:
            last: The file that makes the others valid: it is moved last.
            replaced: Patterns of files to remove first, `last` among them.

        Raises:
            ModelLoadError: If a file cannot be moved; the output is then as it was.
        """
        try:
            self._sync()
            if self.path.parent != self.output:
                self.path.rename(self.output)
            else:
                self._replace(last, replaced)
        except OSError as error:
            raise write_error(self.output, error) from None

    def _replace(self, last: str, replaced: Sequence[str]) -> None:
        files = sorted(path.relative_to(self.path) for path in _files(self.path))
        old = self.path / _REPLACED
        old.mkdir()
        placed: list[Path] = []
        try:
            for pattern in replaced:
                for path in self.output.glob(pattern):
                    path.rename(old / path.name)
            for file in sorted(files, key=lambda file: file.name == last):
                target = self.output / file
                target.parent.mkdir(exist_ok=True)
                if target.exists():  # Copied, so that it is there at every moment.
                    (old / file).parent.mkdir(exist_ok=True)
                    shutil.copy2(target, old / file)
                placed.append(target)
                (self.path / file).replace(target)
        except BaseException:
            for target in placed:
                target.unlink(missing_ok=True)
            for path in _files(old):
                path.replace(self.output / path.relative_to(old))
            raise

    def _sync(self) -> None:
        """Wait until the files are on disk, so that no crash leaves a valid index of torn files."""
        for path in _files(self.path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _stage(output: Path) -> StagedOutput:
    parent = output if output.is_dir() else output.parent
    path = parent / f".{output.name}.{secrets.token_hex(4)}"
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise write_error(path, error) from None

    return StagedOutput(path, output)


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@asynccontextmanager
async def staged_output(output: Path) -> AsyncIterator[StagedOutput]:
    """Create a directory for the files of an output; what was not published is removed again.

    Raises:
        ModelLoadError: If the directory cannot be created.
    """
    staged = _stage(output)  # Synchronous: nothing can be cancelled before the next try.
    try:
        yield staged
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(lambda: shutil.rmtree(staged.path, ignore_errors=True))
