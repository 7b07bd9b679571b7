"""The cache of packed weights: reuse, replacement, concurrency and leftovers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.weights import PackedWeights, Progress
from tests.model.weight_files import write_safetensors
from tests.model.weights.params import (
    entries,
    expected,
    make_params,
    make_weights,
    map_all,
    prepare,
)

pytestmark = pytest.mark.anyio


async def test_cached_weights_are_not_converted_again(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))
    first = await prepare(model, make_params("q4"))
    status = first.path.stat()

    second = await prepare(model, make_params("q4"))

    assert first.converted
    assert not second.converted
    assert second.path.stat().st_ino == status.st_ino
    assert len(entries(model)) == 1


async def test_changed_weights_replace_the_cache_entry(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))
    first = await prepare(model, make_params("q4"))
    old = map_all(first)[0].copy()
    mapped = map_all(first)[0]
    changed = make_weights("bf16", seed=1)
    write_safetensors(model / "model.safetensors", changed)

    second = await prepare(model, make_params("q4"))

    assert second.converted
    assert [array.tobytes() for array in map_all(second)] == expected(changed, "q4")
    assert len(entries(model)) == 1
    assert (mapped == old).all()


async def test_each_quantization_has_its_own_entry(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))

    first = await prepare(model, make_params("q4"))
    second = await prepare(model, make_params("bf16"))

    assert first.path != second.path
    assert len(entries(model)) == 2


def truncate_data(entry: Path) -> None:
    os.truncate(entry / "params.bin", 100)


def remove_data(entry: Path) -> None:
    (entry / "params.bin").unlink()


def corrupt_index(entry: Path) -> None:
    (entry / "index.json").write_text('{"key": ')


def set_old_layout_version(entry: Path) -> None:
    index = json.loads((entry / "index.json").read_text())
    (entry / "index.json").write_text(json.dumps({**index, "layout_version": 0}))


def replace_by_file(entry: Path) -> None:
    for item in entry.iterdir():
        item.unlink()

    entry.rmdir()
    entry.write_text("not a directory")


@pytest.mark.parametrize(
    "damage",
    [truncate_data, remove_data, corrupt_index, set_old_layout_version, replace_by_file],
)
async def test_a_damaged_entry_is_replaced(model: Path, damage: Callable[[Path], None]) -> None:
    tensors = make_weights("f32")
    write_safetensors(model / "model.safetensors", tensors)
    first = await prepare(model, make_params("q4"))
    damage(first.path.parent)

    second = await prepare(model, make_params("q4"))

    assert second.converted
    assert [array.tobytes() for array in map_all(second)] == expected(tensors, "q4")
    assert len(entries(model)) == 1


async def test_concurrent_conversions_publish_one_entry(model: Path) -> None:
    tensors = make_weights("bf16")
    write_safetensors(model / "model.safetensors", tensors)
    results: list[PackedWeights] = []

    async def convert() -> None:
        results.append(await prepare(model, make_params("q4"), num_threads=1))

    async with anyio.create_task_group() as tg:
        for _ in range(4):
            tg.start_soon(convert)

    for weights in results:
        assert [array.tobytes() for array in map_all(weights)] == expected(tensors, "q4")

    assert len(entries(model)) == 1


async def test_leftovers_of_killed_processes_are_removed_after_a_day(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))
    cache = model.parent / "cache"
    for name in (".old", ".new"):
        (cache / name).mkdir(parents=True)
        (cache / name / "params.bin").write_bytes(b"unfinished")

    os.utime(cache / ".old", (0, 0))

    weights = await prepare(model, make_params("q4"))

    assert entries(model) == [".new", weights.path.parent.name]


async def test_sources_that_change_during_the_conversion_are_rejected(model: Path) -> None:
    path = model / "model.safetensors"
    write_safetensors(path, make_weights("bf16"))

    def append_at_the_end(progress: Progress) -> None:
        if progress.done_bytes == progress.total_bytes:
            path.write_bytes(path.read_bytes() + b"more")

    with pytest.raises(ModelLoadError, match="files changed while they were read"):
        await prepare(model, make_params("q4"), on_progress=append_at_the_end)

    assert entries(model) == []


async def test_a_cache_directory_that_cannot_be_written_is_reported(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))
    (model.parent / "cache").write_text("a file instead of a directory")

    with pytest.raises(ModelLoadError, match="cannot create: Not a directory"):
        await prepare(model, make_params("q4"))
