"""Files of a model directory: regular files of limited size, and one mapping of errors.

A model directory may come from anywhere, so each of its files is read here and nowhere else. Every
exception that reading or interpreting a file raises becomes a `ModelLoadError` that names the file.
"""

from __future__ import annotations

__all__ = (
    "MAX_JSON_BYTES",
    "MAX_TOKENIZER_BYTES",
    "file_size",
    "is_panic",
    "load_errors",
    "open_file",
    "read_bytes",
    "read_json",
    "read_object",
    "read_optional",
    "read_text",
)

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aiomlc.errors import AiomlcError, ModelLoadError, ModelNotFoundError
from aiomlc.validation import json_values
from aiomlc.validation.regular_files import open_regular_file, require_regular

#: The largest configuration file, weight index or chat template, in bytes.
MAX_JSON_BYTES: Final = 16 << 20
#: The largest `tokenizer.json`, in bytes. Gemma 3's, with 262,144 tokens, has 33 MB.
MAX_TOKENIZER_BYTES: Final = 128 << 20

_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_MAX_POINTER_BYTES: Final = 1024  # As in the specification of Git LFS.


@contextmanager
def open_file(path: Path) -> Iterator[io.BufferedReader]:
    """Open a regular file for reading; errors inside of the context are mapped as well.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If it is not a regular file or cannot be read.
    """
    with load_errors(path), open_regular_file(path) as file:
        if os.fstat(file.fileno()).st_size <= _MAX_POINTER_BYTES:
            _require_content(path, file)
        yield file


def file_size(path: Path) -> int:
    """Return the size of a regular file in bytes.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If it is not a regular file or cannot be accessed.
    """
    with load_errors(path):
        status = path.stat()
        require_regular(status)
        if status.st_size <= _MAX_POINTER_BYTES:
            with open_file(path):
                pass
        return status.st_size


def read_bytes(path: Path, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Return the contents of a regular file.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If it is not a regular file, has more than `max_bytes` or cannot be read.
    """
    with open_file(path) as file:
        content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ModelLoadError(f"{path}: must have at most {max_bytes:,} bytes", path=path)

        return content


def read_text(path: Path, max_bytes: int = MAX_JSON_BYTES) -> str:
    """Return the contents of a regular file that is UTF-8, without a byte order mark.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If it cannot be read as by `read_bytes`, or is not UTF-8.
    """
    content = read_bytes(path, max_bytes)
    with load_errors(path):
        return content.decode("utf-8-sig")


def read_json(path: Path) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """Return the value of a JSON file of at most `MAX_JSON_BYTES`.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If it cannot be read, is not JSON, is nested too deeply or contains an
            integer that is too long.
    """
    text = read_text(path)
    with load_errors(path):
        return json_values.read_json(text)


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If it cannot be read as by `read_json`, or is not a JSON object.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: must be a JSON object", path=path)

    return value


def read_optional(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if the file does not exist.

    Raises:
        ModelLoadError: As `read_object`.
    """
    try:
        return read_object(path)
    except ModelNotFoundError:
        return None


@contextmanager
def load_errors(path: Path) -> Iterator[None]:
    """Map every exception that a file of a model causes to an error that names the file.

    Errors of the library pass unchanged, except that a `ModelLoadError` without a path gets it.

    Args:
        path: The file that is read or interpreted, or the directory if several files are.

    Raises:
        ModelNotFoundError: For a file that does not exist.
        ModelLoadError: For every other exception that is an error, and for a panic of Rust code.
    """
    try:
        yield
    except ModelLoadError as error:
        if type(error) is not ModelLoadError or error.path is not None:
            raise

        raise ModelLoadError(f"{path}: {error}", path=path, field=error.field) from None
    except AiomlcError:
        raise
    except BaseException as error:
        if (problem := _problem(error)) is None:
            raise

        kind = ModelNotFoundError if isinstance(error, FileNotFoundError) else ModelLoadError
        # A message that was written for the reader says all; other exceptions have a history.
        is_described = isinstance(error, (OSError, MemoryError, ValueError))
        raise kind(f"{path}: {problem}", path=path) from None if is_described else error


def is_panic(error: BaseException) -> bool:
    """Return whether an exception is a panic of a Rust extension.

    Its class derives from BaseException and cannot be imported.
    """
    return type(error).__name__ == "PanicException"


def _problem(error: BaseException) -> str | None:
    """Return what is wrong with a file, or None for an exception that is not an error."""
    match error:
        case OSError():
            return f"cannot read: {error.strerror or error}"
        case MemoryError():
            return "reading it needs more memory than there is"
        case UnicodeDecodeError():
            return f"is not UTF-8: {error}"
        case ValueError():  # Of a reader, whose message is a predicate or a sentence.
            return str(error)
        case Exception():  # A file's contents can make any reader fail.
            return f"cannot be interpreted: {type(error).__name__}: {error}"
        case _:
            return f"a library failed on its contents: {error}" if is_panic(error) else None


def _require_content(path: Path, file: io.BufferedReader) -> None:
    """Require that a file is not a pointer of Git LFS, which a clone without LFS leaves."""
    if file.peek(len(_POINTER)).startswith(_POINTER):
        raise ModelLoadError(
            f"{path}: is a pointer of Git LFS and not the file itself: run `git lfs pull` in its "
            "directory, or download the model with `aiomlc pull`",
            path=path,
        )
