"""The cache of packed weights: reuse, keys and concurrency."""

from __future__ import annotations

import shutil
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


async def test_changed_weights_get_another_entry(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))
    first = await prepare(model, make_params("q4"))
    old = map_all(first)[0].copy()
    mapped = map_all(first)[0]
    changed = make_weights("bf16", seed=1)
    write_safetensors(model / "model.safetensors", changed)

    second = await prepare(model, make_params("q4"))

    assert second.converted
    assert [array.tobytes() for array in map_all(second)] == expected(changed, "q4")
    assert len(entries(model)) == 2
    assert (mapped == old).all()


async def test_directories_with_the_same_files_share_an_entry(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))
    first = await prepare(model, make_params("q4"))
    copy = model.with_name("copy")
    shutil.copytree(model, copy)
    (copy / "other_file.txt").write_text("not a weight file")

    second = await prepare(copy, make_params("q4"))

    assert not second.converted
    assert second.path == first.path


async def test_a_moved_directory_keeps_its_entry(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))
    await prepare(model, make_params("q4"))

    shutil.move(model, model.with_name("moved"))

    assert not (await prepare(model.with_name("moved"), make_params("q4"))).converted


async def test_each_quantization_has_its_own_entry(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))

    first = await prepare(model, make_params("q4"))
    second = await prepare(model, make_params("bf16"))

    assert first.path != second.path
    assert len(entries(model)) == 2


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
    (model.parent / "home").write_text("a file instead of a directory")

    with pytest.raises(
        ModelLoadError, match=r"cannot write the cache: .*; set AIOMLC_HOME"
    ) as caught:
        await prepare(model, make_params("q4"))

    assert caught.value.field == "AIOMLC_HOME"
