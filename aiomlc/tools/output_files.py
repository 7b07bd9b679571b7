"""Files of a tool's output directory, which appear only when all of them are complete."""

from __future__ import annotations

__all__ = ("StagedOutput", "check_conflicts", "staged_output", "write_error")

import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio import CancelScope, to_thread

from aiomlc.cache.files import (
    create_locked,
    lock_alone,
    read_sealed,
    regular_file,
    write_sealed,
)
from aiomlc.errors import BadRequestError, ModelLoadError

# In a staged directory, what is not for the output.
_STATE: Final = ".aiomlc"
_LOCK: Final = "lock"  # Locked as long as the process lives.
_PLACED: Final = "placed.json"  # The names of the files that are being moved to the output.
_REPLACED: Final = "replaced"  # What they replace.


def write_error(path: Path, error: OSError) -> ModelLoadError:
    """Return the error for a file that cannot be written."""
    return ModelLoadError(f"{path}: cannot write: {error.strerror or error}", path=path)


def check_conflicts(output: Path, names: Iterable[str], *, force: bool) -> None:
    """Require that the output is a directory or does not exist, and that it has none of the files.

    What processes that were killed have left of this output is undone first.

    Args:
        names: File names; they may be patterns.

    Raises:
        BadRequestError: If a file exists and `force` is False, or the output is a file.
        ModelLoadError: If what a killed process has left cannot be undone.
    """
    _undo_abandoned(output)
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
    lock: int  #: A descriptor that is locked as long as the process lives.

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
                (self.output / _STATE / _LOCK).unlink()
                (self.output / _STATE).rmdir()
            else:
                self._replace(last, replaced)
        except OSError as error:
            raise write_error(self.output, error) from None

    def _replace(self, last: str, replaced: Sequence[str]) -> None:
        files = sorted(path.relative_to(self.path) for path in _files(self.path))
        files.sort(key=lambda file: file.name == last)
        old = self.path / _STATE / _REPLACED
        old.mkdir()
        write_sealed(self.path / _STATE / _PLACED, [str(file) for file in files])
        try:
            for pattern in replaced:
                for path in self.output.glob(pattern):
                    path.rename(old / path.name)
            for file in files:
                target = self.output / file
                target.parent.mkdir(exist_ok=True)
                if target.exists():  # Copied, so that it is there at every moment.
                    (old / file).parent.mkdir(exist_ok=True)
                    shutil.copy2(target, old / file)
                (self.path / file).replace(target)
        except BaseException:
            _undo(self.path, self.output)
            raise

    def discard(self) -> None:
        """Remove what was not published."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)

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
        (path / _STATE).mkdir(parents=True)
        lock = create_locked(path / _STATE / _LOCK)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise write_error(path, error) from None

    return StagedOutput(path, output, lock)


def _files(staged: Path) -> list[Path]:
    """Return the files for the output."""
    state = staged / _STATE
    return [path for path in staged.rglob("*") if path.is_file() and state not in path.parents]


def _undo_abandoned(output: Path) -> None:
    """Make an output what it was before processes that were killed while they replaced files."""
    name = re.compile(rf"\.{re.escape(output.name)}\.[0-9a-f]{{8}}")
    for directory in (output, output.parent):
        try:
            staged = [path for path in directory.iterdir() if name.fullmatch(path.name)]
        except OSError:
            continue  # It does not exist, or cannot be read: other errors will say so.

        for path in staged:
            if _is_abandoned(path):
                try:
                    _undo(path, output)
                except OSError as error:
                    raise write_error(output, error) from None

                shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(staged: Path) -> bool:
    try:
        with regular_file(staged / _STATE / _LOCK) as descriptor:
            return lock_alone(descriptor)
    except OSError:
        return False


def _undo(staged: Path, output: Path) -> None:
    """Move files back that were replaced, unless all new ones are in their places."""
    old = staged / _STATE / _REPLACED
    try:
        names: list[str] = read_sealed(staged / _STATE / _PLACED)
    except (OSError, ValueError):
        return  # Nothing was moved yet.

    placed = [name for name in names if not (staged / name).exists()]
    if len(placed) == len(names):
        return

    for name in placed:
        (output / name).unlink(missing_ok=True)
    for path in [path for path in old.rglob("*") if path.is_file()]:
        target = output / path.relative_to(old)
        if not target.exists():  # Else the copy may be torn, and the file is still the old one.
            path.replace(target)


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
            await to_thread.run_sync(staged.discard)
