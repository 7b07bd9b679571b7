"""Packed weights on disk: made once per model directory, mapped by every later start.

An entry is a directory that appears in one step with both of its files: `params.bin`, and
`index.json`, which says what it was made from. An entry whose sources have changed, or that is
damaged, is made again; readers that have mapped the old one keep it.
"""

from __future__ import annotations

__all__ = ("PackedWeights", "prepare_weights")

import hashlib
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

import orjson
from anyio import to_thread

from aiomlc.cache_dir import purge_stale_entries
from aiomlc.weights.convert import Progress, convert_weights
from aiomlc.weights.formats import mlc, safetensors
from aiomlc.weights.formats.source import Source, load_error
from aiomlc.weights.plan import (
    LAYOUT_VERSION,
    ConversionPlan,
    Param,
    ParamPlan,
    make_plan,
    parse_params,
)

DATA_NAME: Final = "params.bin"
INDEX_NAME: Final = "index.json"
# Files up to this size are compared by content, larger ones by size and time of change.
LARGEST_HASHED: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """A packed file that is ready to be mapped. `converted` tells whether this call made it."""

    path: Path
    nbytes: int
    params: tuple[ParamPlan, ...]
    converted: bool


async def prepare_weights(
    model: Path,
    params: Sequence[Mapping[str, Any]],
    *,
    cache: Path,
    num_threads: int,
    on_progress: Callable[[Progress], object] | None = None,
) -> PackedWeights:
    """Return the packed weights of a model directory, converting them unless `cache` has them.

    `params` is the list in the compiled library's metadata.

    Raises:
        ModelLoadError: a file is missing or broken, a tensor is missing or has the wrong shape, or
            the cache cannot be written.
    """
    source, plan, index = await to_thread.run_sync(_plan, model, parse_params(params))
    entry = cache / str(index["key"])
    if await to_thread.run_sync(_is_current, entry, index):
        return PackedWeights(entry / DATA_NAME, plan.nbytes, plan.params, converted=False)

    building = cache / f".{entry.name}.{secrets.token_hex(8)}"
    try:
        await to_thread.run_sync(_make_directory, building)
        await convert_weights(
            plan, building / DATA_NAME, num_threads=num_threads, on_progress=on_progress
        )
        await to_thread.run_sync(_publish, building, entry, source, index)
    finally:
        shutil.rmtree(building, ignore_errors=True)

    return PackedWeights(entry / DATA_NAME, plan.nbytes, plan.params, converted=True)


def _plan(model: Path, params: tuple[Param, ...]) -> tuple[Source, ConversionPlan, dict[str, Any]]:
    model = model.resolve()
    is_mlc = any((model / name).exists() for name in mlc.INDEX_NAMES)
    source = mlc.read_mlc(model) if is_mlc else safetensors.read_safetensors(model)
    plan = make_plan(params, source)
    return source, plan, _index(source, plan)


def _index(source: Source, plan: ConversionPlan) -> dict[str, Any]:
    """What `index.json` of a current entry says, as JSON gives it back."""
    identity = {
        "layout_version": LAYOUT_VERSION,
        "model": str(source.directory),
        "params": [asdict(planned.param) for planned in plan.params],
    }
    key = hashlib.sha256(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]
    index = {
        "key": key,
        **identity,
        "nbytes": plan.nbytes,
        "offsets": [[planned.offset, planned.nbytes] for planned in plan.params],
        "sources": _fingerprint(source),
    }
    return cast("dict[str, Any]", orjson.loads(orjson.dumps(index)))


def _fingerprint(source: Source) -> list[dict[str, Any]]:
    """Tell by which the files that a source was read from can be recognised."""
    prints = []
    for path in sorted({source.index, *source.files}):
        try:
            status = path.stat()
            small = status.st_size <= LARGEST_HASHED
            change = (
                {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
                if small
                else {"mtime_ns": status.st_mtime_ns}
            )
        except OSError as error:
            raise load_error(f"cannot read: {error.strerror}", path=path) from error

        prints.append({"name": path.name, "nbytes": status.st_size, **change})

    return prints


def _is_current(entry: Path, index: dict[str, Any]) -> bool:
    try:
        written = orjson.loads((entry / INDEX_NAME).read_bytes())
        return bool(written == index and (entry / DATA_NAME).stat().st_size == index["nbytes"])
    except (OSError, orjson.JSONDecodeError):
        return False


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise load_error(f"cannot create: {error.strerror}", path=path) from error

    purge_stale_entries(path.parent)


def _publish(building: Path, entry: Path, source: Source, index: dict[str, Any]) -> None:
    """Move a finished entry to its place, unless another process was faster."""
    if _fingerprint(source) != index["sources"]:
        raise load_error("files changed while they were read", path=source.directory)

    try:
        (building / INDEX_NAME).write_bytes(orjson.dumps(index))
        while not _is_current(entry, index):
            _move_aside(entry)
            if _renamed(building, entry):
                return
    except OSError as error:
        raise load_error(f"cannot write: {error.strerror}", path=entry) from error


def _renamed(building: Path, entry: Path) -> bool:
    """Rename, unless another process has put an entry there just now."""
    try:
        building.rename(entry)
    except OSError:
        if not entry.exists():
            raise

        return False

    return True


def _move_aside(entry: Path) -> None:
    """Remove an entry in one step, as others see it."""
    aside = entry.with_name(f".{entry.name}.{secrets.token_hex(8)}")
    try:
        Path(entry).rename(aside)
    except FileNotFoundError:
        return

    if aside.is_dir():
        shutil.rmtree(aside)
    else:
        aside.unlink()
