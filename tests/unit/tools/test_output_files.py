"""Outputs of tools: all files or none, also in a directory that is a mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.tools.output_files import staged_output


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
