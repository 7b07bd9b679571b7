"""Files of a model directory are regular, limited in size, and every error names them."""

from __future__ import annotations

import ast
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tokenizers

import aiomlc
from aiomlc import BadRequestError, ModelLoadError, ModelNotFoundError
from aiomlc.validation import model_files

# Modules that read other files than those of a model.
OTHER_FILES = (
    "control_groups.py",
    "memory_budget.py",
    "registry.py",
    "trial_process.py",
    "model_files.py",
    "regular_files.py",
)
ROOMS = (
    "models",
    "validation",
    "weights/formats",
    *(f"runtime/{room}" for room in ("embedding", "loading", "templates", "tokenization")),
)
_errors = model_files.load_errors


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize("read", [model_files.read_bytes, model_files.file_size])
def test_a_pointer_of_git_lfs_is_named(tmp_path: Path, read: Callable[[Path], object]) -> None:
    (tmp_path / "a").write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 9\n"
    )

    with pytest.raises(ModelLoadError, match=r"a: is a pointer of Git LFS .* run `git lfs pull`"):
        read(tmp_path / "a")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (_fifo, "a FIFO"),
        (_link_to_a_device, "a character device"),
        (Path.mkdir, "a directory"),
        (_socket, "cannot read"),
    ],
)
@pytest.mark.parametrize("read", [model_files.read_bytes, model_files.file_size])
def test_only_regular_files_are_read(
    tmp_path: Path, make: Callable[[Path], None], kind: str, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "x"
    make(path)

    with pytest.raises(ModelLoadError, match=f"{path}: .*({kind}|a socket)") as caught:
        read(path)

    assert caught.value.path == path


def test_a_missing_file_is_not_found_and_optional(tmp_path: Path) -> None:
    path = tmp_path / "config.json"

    with pytest.raises(ModelNotFoundError, match="No such file"):
        model_files.read_object(path)

    assert model_files.read_optional(path) is None


def test_a_file_has_a_limited_size(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b" " * 11)

    assert model_files.read_bytes(path, 11) == b" " * 11
    with pytest.raises(ModelLoadError, match=r"config.json: must have at most 10 bytes"):
        model_files.read_bytes(path, 10)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "is not JSON"),
        (b"", "is not JSON"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b"[1]", "must be a JSON object"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested deeper"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "JSON: Exceeds the limit"),
        (b'{"a": ' + b"9" * 4_000 + b"}", "integer of more than 10000 bits"),
        (b'{"a": "\\ud800"}', "surrogate"),
    ],
)
def test_contents_that_no_reader_can_take_are_refused(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)

    with pytest.raises(ModelLoadError, match=problem) as caught:
        model_files.read_object(path)

    assert caught.value.path == path


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes('\ufeff{"ä": 1}'.encode())

    assert model_files.read_object(path) == {"ä": 1}


@pytest.mark.parametrize(
    "error",
    [
        RecursionError("deep"),
        TypeError("type"),
        OverflowError("large"),
        KeyError("key"),
        MemoryError(),
        ValueError("embedded null byte"),
        OSError(36, "File name too long"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    ],
)
def test_every_exception_becomes_an_error_that_names_the_file(error: Exception) -> None:
    path = Path("model/config.json")

    with pytest.raises(ModelLoadError, match=r"model/config.json: ") as caught, _errors(path):
        raise error

    is_unexpected = isinstance(error, (RecursionError, TypeError, OverflowError, KeyError))
    assert caught.value.path == path
    assert caught.value.__cause__ is (error if is_unexpected else None)


def test_a_panic_becomes_an_error() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    backend.normalizer = tokenizers.normalizers.Replace("", "b")
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()

    with pytest.raises(ModelLoadError, match="x: a library failed"), _errors(Path("x")):
        backend.encode("aaaa")


def test_errors_of_the_library_pass_and_get_a_path_if_they_have_none() -> None:
    inner, outer = Path("inner"), Path("outer")
    with pytest.raises(ModelLoadError, match=r"^bad$"), _errors(outer):
        raise ModelLoadError("bad", path=inner)

    with pytest.raises(ModelLoadError, match=r"^outer: bad$") as caught, _errors(outer):
        raise ModelLoadError("bad", field="x")

    assert (caught.value.path, caught.value.field) == (outer, "x")
    with pytest.raises(BadRequestError, match=r"^bad$"), _errors(outer):
        raise BadRequestError("bad")


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, SystemExit])
def test_an_exception_that_is_not_an_error_passes(error: type[BaseException]) -> None:
    with pytest.raises(error), _errors(Path("x")):
        raise error


def _calls(name: str) -> Iterator[str]:
    """Yield the modules that call a method of this name, in the rooms that read models."""
    for room in ROOMS:
        for path in Path(aiomlc.__file__).parent.joinpath(room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr == name:
                    yield f"{path.name}: {ast.unparse(node)}"


@pytest.mark.parametrize("method", ["open", "read_text", "read_bytes"])
def test_files_of_a_model_are_opened_in_one_place(method: str) -> None:
    calls = [call for call in _calls(method) if not call.startswith(OTHER_FILES)]

    assert calls == []
