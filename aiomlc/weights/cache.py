"""The cache of packed weights: converted once per model directory, then mapped at every start.

An entry is a directory with `params.bin` and `index.json`, which records what the weights were
converted from. It is published by a single rename. An entry that is damaged, or whose sources have
changed, is replaced; processes that have mapped the old file keep it.
"""

from __future__ import annotations

__all__ = ("PackedWeights", "prepare_weights")

import hashlib
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import orjson
from anyio import to_thread

from aiomlc.cache_dir import purge_stale_entries
from aiomlc.models.parameters.packed_layout import LAYOUT_VERSION
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.weights.convert import Progress, convert_weights
from aiomlc.weights.formats.directory import read_source
from aiomlc.weights.formats.source import Source, load_error
from aiomlc.weights.plan import ConversionPlan, ParameterPlan, make_plan

DATA_NAME: Final = "params.bin"
INDEX_NAME: Final = "index.json"
# Files up to this size are compared by content, larger ones by size and modification time.
MAX_HASHED_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """A packed file that is ready to be mapped."""

    path: Path
    nbytes: int
    params: tuple[ParameterPlan, ...]
    converted: bool  #: Whether this call converted the weights.


async def prepare_weights(
    model: Path,
    params: Sequence[Mapping[str, Any]],
    *,
    cache: Path,
    num_threads: int,
    on_progress: Callable[[Progress], object] | None = None,
) -> PackedWeights:
    """Return the packed weights of a model directory, converting them unless `cache` has them.

    Args:
        model: The model directory.
        params: The parameters in the compiled library's metadata.
        cache: The cache directory.
        num_threads: Threads of the conversion.
        on_progress: Called about 20 times a second during the conversion, and once at its end.

    Raises:
        ModelLoadError: If a file is missing or invalid, a tensor is missing or has the wrong shape,
            or the cache cannot be written.
    """
    parameters = tuple(map(PackedParameter.from_json, params))
    source, plan, index = await to_thread.run_sync(_plan, model, parameters)
    entry = cache / str(index["key"])
    if await to_thread.run_sync(_is_current, entry, index):
        return PackedWeights(entry / DATA_NAME, plan.nbytes, plan.params, converted=False)

    staged = cache / f".{entry.name}.{secrets.token_hex(8)}"
    try:
        await to_thread.run_sync(_make_directory, staged)
        await convert_weights(
            plan, staged / DATA_NAME, num_threads=num_threads, on_progress=on_progress
        )
        await to_thread.run_sync(_publish, staged, entry, source, index)
    finally:
        shutil.rmtree(staged, ignore_errors=True)

    return PackedWeights(entry / DATA_NAME, plan.nbytes, plan.params, converted=True)


def _plan(
    model: Path, parameters: tuple[PackedParameter, ...]
) -> tuple[Source, ConversionPlan, dict[str, Any]]:
    source = read_source(model.resolve())
    plan = make_plan(parameters, source)
    return source, plan, _index(source, plan)


def _index(source: Source, plan: ConversionPlan) -> dict[str, Any]:
    """Return the content of `index.json` for a current entry, as parsed JSON."""
    identity = {
        "layout_version": LAYOUT_VERSION,
        "model": str(source.directory),
        "params": [planned.parameter.as_json() for planned in plan.params],
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
    """Return the names, sizes and hashes (or times) by which changed source files are detected."""
    fingerprints = []
    for path in sorted({source.index, *source.files}):
        try:
            status = path.stat()
            state = (
                {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
                if status.st_size <= MAX_HASHED_BYTES
                else {"mtime_ns": status.st_mtime_ns}
            )
        except OSError as error:
            raise load_error(f"cannot read: {error.strerror}", path=path) from error

        fingerprints.append({"name": path.name, "nbytes": status.st_size, **state})

    return fingerprints


def _is_current(entry: Path, index: dict[str, Any]) -> bool:
    try:
        stored = orjson.loads((entry / INDEX_NAME).read_bytes())
        return bool(stored == index and (entry / DATA_NAME).stat().st_size == index["nbytes"])
    except (OSError, orjson.JSONDecodeError):
        return False


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise load_error(f"cannot create: {error.strerror}", path=path) from error

    purge_stale_entries(path.parent)


def _publish(staged: Path, entry: Path, source: Source, index: dict[str, Any]) -> None:
    """Rename a staged entry, unless another process has published a current one."""
    if _fingerprint(source) != index["sources"]:
        raise load_error("files changed while they were read", path=source.directory)

    try:
        (staged / INDEX_NAME).write_bytes(orjson.dumps(index))
        while not _is_current(entry, index):
            _move_aside(entry)
            if _rename(staged, entry):
                return
    except OSError as error:
        raise load_error(f"cannot write: {error.strerror}", path=entry) from error


def _rename(staged: Path, entry: Path) -> bool:
    """Rename a staged entry; return False if another process has just published one."""
    try:
        staged.rename(entry)
    except OSError:
        if not entry.exists():
            raise

        return False

    return True


def _move_aside(entry: Path) -> None:
    """Remove an entry atomically: other processes see all of it or nothing."""
    aside = entry.with_name(f".{entry.name}.{secrets.token_hex(8)}")
    try:
        Path(entry).rename(aside)
    except FileNotFoundError:
        return

    if aside.is_dir():
        shutil.rmtree(aside)
    else:
        aside.unlink()
