"""The cache of packed weights: converted once per content of the weight files, then mapped.

Two directories with the same files share an entry, and a changed file leads to a new one.
"""

from __future__ import annotations

__all__ = ("PackedWeights", "prepare_weights")

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from anyio import from_thread, to_thread

from aiomlc import cache
from aiomlc.errors import ModelLoadError
from aiomlc.models.parameters.packed_layout import LAYOUT_VERSION
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.weights.convert import Progress, convert_weights
from aiomlc.weights.formats.source import Source, load_error
from aiomlc.weights.plan import ConversionPlan, ParameterPlan, make_plan
from aiomlc.weights.source_digests import SourceDigests, digest_sources, is_unchanged

(DATA_NAME,) = cache.WEIGHTS.files
_KEY_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """A packed file that is ready to be mapped."""

    path: Path
    nbytes: int
    params: tuple[ParameterPlan, ...]
    converted: bool  #: Whether this call converted the weights.
    lease: cache.Lease  #: Keeps the file in the cache until it is mapped.


async def prepare_weights(
    source: Source,
    params: Sequence[Mapping[str, Any]],
    *,
    quantization: str,
    num_threads: int,
    on_progress: Callable[[Progress], object] | None = None,
    shard: int = 0,
) -> PackedWeights:
    """Return the packed weights of a model, converting them unless they are cached.

    Args:
        source: The tensors of the model.
        params: The parameters in the compiled library's metadata.
        quantization: The name of the quantization, for the list of entries.
        num_threads: Threads of the conversion.
        on_progress: Called about 20 times a second during the conversion, and once at its end.
        shard: The shard whose parts of the parameters are packed.

    Raises:
        ModelLoadError: If a file is missing or invalid, a tensor is missing or has the wrong shape,
            or the cache cannot be written.
        BadRequestError: If a setting of the cache is invalid.
    """
    parameters = tuple(PackedParameter.from_json(values).of_shard(shard) for values in params)
    known = await digest_sources(source, num_threads)
    # The digests must be those of the files whose headers were read.
    if any(source.stamps.get(name) != stamp for name, stamp in known.stamps.items()):
        raise _changed(source)

    plan = await to_thread.run_sync(make_plan, parameters, source)
    key = _key(parameters, source, known)
    entry = await to_thread.run_sync(_find, key)
    converted = entry is None
    if entry is None:
        info = _info(source, plan, quantization)
        async with cache.staged_entry(cache.WEIGHTS, plan.nbytes) as staged:
            await convert_weights(
                plan, staged.path / DATA_NAME, num_threads=num_threads, on_progress=on_progress
            )
            entry = await to_thread.run_sync(_publish, staged, key, info, source, known)

    path = entry.path / DATA_NAME
    return PackedWeights(path, plan.nbytes, plan.params, converted, entry.lease)


def _key(parameters: tuple[PackedParameter, ...], source: Source, known: SourceDigests) -> str:
    identity = {
        "layout_version": LAYOUT_VERSION,
        "params": [parameter.as_json() for parameter in parameters],
        "quantization": source.quantization and asdict(source.quantization),
        "sources": known.digests,
    }
    data = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(data).hexdigest()[:_KEY_DIGITS]


def _info(source: Source, plan: ConversionPlan, quantization: str) -> dict[str, Any]:
    return {
        "model": str(source.directory),
        "quantization": quantization,
        "params": [planned.parameter.as_json() for planned in plan.params],
        "offsets": [[planned.offset, planned.nbytes] for planned in plan.params],
    }


def _find(key: str) -> cache.Entry | None:
    return cache.find(cache.WEIGHTS, key, from_thread.check_cancelled)


def _publish(
    staged: cache.Staged, key: str, info: dict[str, Any], source: Source, known: SourceDigests
) -> cache.Entry:
    """Publish the converted weights, unless the sources changed while they were read."""
    if not is_unchanged(source, known):
        raise _changed(source)

    return cache.publish(staged, key, info, from_thread.check_cancelled)


def _changed(source: Source) -> ModelLoadError:
    return load_error("files changed while they were read", path=source.directory)
