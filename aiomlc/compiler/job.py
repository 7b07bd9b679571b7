"""The compiler's inputs and outputs, which are exchanged between processes as JSON."""

from __future__ import annotations

__all__ = (
    "CompileJob",
    "CompileProgress",
    "CompiledLibrary",
    "LibraryMetadata",
    "LibraryWriteError",
)

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from aiomlc.config import KVCacheType
from aiomlc.devices import TargetAttributes
from aiomlc.models import AnyConfig
from aiomlc.models.parameters.packed_layout import Layout

LibraryMetadata = Mapping[str, Any]


class LibraryWriteError(OSError):
    """The compiler cannot write the library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileJob:
    """A library to compile."""

    config: AnyConfig
    quantization: str
    layouts: Mapping[str, Layout] = field(default_factory=dict)  #: See `Quantization`.
    ordered: tuple[str, ...] = ()  #: The same.
    device: str = "cpu"  #: Without an index.
    target: TargetAttributes = field(default_factory=dict)  #: Attributes of a GPU that count.
    kv_cache_dtype: KVCacheType = "auto"  #: Decoders only.
    prefill_chunk_size: int = 512  #: Recorded in the metadata as the loader's default.
    max_batch_size: int = 64  #: Recorded in the metadata as the loader's default.

    def as_json(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> CompileJob:
        """Read what `as_json` returned."""
        return _reader().validate_python(values)


@cache
def _reader() -> TypeAdapter[CompileJob]:
    return TypeAdapter(CompileJob)


@dataclass(frozen=True, slots=True)
class CompileProgress:
    """The progress of a compilation."""

    stage: str  #: The current work, as a phrase.
    fraction: float  #: Completed fraction of the work, 0 to 1.


@dataclass(frozen=True, slots=True)
class CompiledLibrary:
    """A compiled library in memory."""

    path: Path  #: The file that it was read from.
    code: bytes = field(repr=False)  #: Bytecode of TVM's virtual machine.
    metadata: LibraryMetadata
    key: str  #: The digest of the job and of TVM's and aiomlc's code: see `cache.library_key`.
