"""Outputs of tools: all files or none, also in a directory that is a mount."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.tools import output_files
from aiomlc.tools.output_files import check_conflicts, staged_output


async def write(output: Path, *, replaced: tuple[str, ...] = ()) -> None:
    async with staged_output(output) as staged:
        (staged.path / "weights.bin").write_text("new")
        (staged.path / "pooling").mkdir()
        (staged.path / "pooling" / "config.json").write_text("new")
        (staged.path / "index.json").write_text("new")
        staged.publish("index.json", replaced)


def contents(output: Path) -> dict[str, str]:
    files = (path for path in output.rglob("*") if path.is_file())
    return {path.relative_to(output).as_posix(): path.read_text() for path in files}


NEW = {"weights.bin": "new", "pooling/config.json": "new", "index.json": "new"}


async def test_an_output_is_made_with_its_parents(tmp_path: Path) -> None:
    await write(tmp_path / "a" / "out")

    assert contents(tmp_path / "a") == {f"out/{name}": text for name, text in NEW.items()}


async def test_files_are_replaced_and_others_stay(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "old.bin").write_text("old")
        (tmp_path / "notes.txt").write_text("mine")
        await write(tmp_path, replaced=("*.bin",))

        assert contents(tmp_path) == {**NEW, "notes.txt": "mine"}


async def test_nothing_is_written_beside_an_output_that_exists(tmp_path: Path) -> None:
    output = tmp_path / "volume"
    output.mkdir()
    async with staged_output(output) as staged:
        assert staged.path.parent == output


@pytest.mark.parametrize("failing", [*NEW])
async def test_an_output_is_as_it_was_if_a_file_cannot_be_moved(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old.bin").write_text("old")
    (tmp_path / "index.json").write_text("old")
    (tmp_path / "pooling").mkdir()
    (tmp_path / "pooling" / "config.json").write_text("old")
    before = contents(tmp_path)
    replace = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if target == tmp_path / failing and self.read_text() == "new":
            raise OSError(28, "No space left on device")

        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ModelLoadError, match="No space left"):
        await write(tmp_path, replaced=("*.bin",))

    assert contents(tmp_path) == before


class Killed(BaseException):
    """The end of the process."""


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    """End the process at the given change of a directory; nothing is cleaned up."""
    changes = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            nonlocal changes
            changes += 1
            if changes == number and function is shutil.copy2:
                Path(args[1]).write_text("torn")
            if changes >= number:
                raise Killed

            return function(*args, **kwargs)

        return change

    with pytest.MonkeyPatch.context() as patch:
        for name in ("mkdir", "rename", "replace"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        patch.setattr(shutil, "copy2", counted(shutil.copy2))
        patch.setattr(output_files, "_undo", lambda *_: None)
        yield


@pytest.mark.parametrize("exists", [False, True])
def test_what_a_killed_process_leaves_is_undone(exists: bool, tmp_path: Path) -> None:
    number = 0
    while True:
        number += 1
        output = tmp_path / str(number)
        if exists:
            (output / "pooling").mkdir(parents=True)
            for name in ("old.bin", "index.json", "pooling/config.json", "notes.txt"):
                (output / name).write_text("old")
        before = contents(output)
        staged = output_files._stage(output)
        for name, text in NEW.items():
            (staged.path / name).parent.mkdir(exist_ok=True)
            (staged.path / name).write_text(text)
        try:
            with killed_at(number):
                staged.publish("index.json", ("*.bin",))
            break
        except Killed:
            os.close(staged.lock)

        after = contents(output)
        check_conflicts(output, [*NEW, "*.bin"], force=True)
        found = contents(output)
        assert found == before or (after.items() >= found.items() >= NEW.items())
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        if not exists:
            check_conflicts(output, NEW, force=False)

    assert number > (10 if exists else 1)
    staged.discard()
    assert contents(output).items() >= NEW.items()


async def test_what_a_running_process_writes_stays(tmp_path: Path) -> None:
    async with staged_output(tmp_path / "out") as staged:
        check_conflicts(tmp_path / "out", NEW, force=False)
        assert staged.path.is_dir()
        (staged.path / "index.json").write_text("new")
        staged.publish("index.json")

    with pytest.raises(BadRequestError, match="already contains index"):
        check_conflicts(tmp_path / "out", NEW, force=False)
