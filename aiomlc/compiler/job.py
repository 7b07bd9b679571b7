"""What the compiler is asked, and what it answers: records that cross the process border."""

from __future__ import annotations

__all__ = ("CompileJob", "CompileProgress", "CompiledLibrary", "LibraryMetadata")

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from aiomlc.config import KVCacheType
from aiomlc.models import DecoderConfig, EncoderConfig, ExpertsConfig, ModelConfig, RopeConfig

LibraryMetadata = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileJob:
    """One library to compile."""

    config: ModelConfig
    quantization: str
    device: str = "cpu"
    kv_cache_dtype: KVCacheType = "auto"  #: Of a decoder.
    prefill_chunk_size: int = 512  #: Only a default that the library tells its loader.
    max_batch_size: int = 64  #: The same.

    def as_json(self) -> dict[str, Any]:
        """The job as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `as_json` made."""
        return cls(**{**values, "config": _config(values["config"])})


def _config(values: Mapping[str, Any]) -> ModelConfig:
    if "rope" not in values:
        return EncoderConfig(**values)

    experts = values["experts"]
    typed = {
        "rope": RopeConfig(**_typed(values["rope"])),
        "layer_ropes": tuple(rope and RopeConfig(**_typed(rope)) for rope in values["layer_ropes"]),
        "experts": None if experts is None else ExpertsConfig(**_typed(experts)),
    }
    return DecoderConfig(**{**_typed(values), **typed})


def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples, and configs have no lists."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


@dataclass(frozen=True, slots=True)
class CompileProgress:
    """How far the compiler is: what it does now, and the share of its work behind it."""

    stage: str
    fraction: float  #: 0 to 1.


@dataclass(frozen=True, slots=True)
class CompiledLibrary:
    """A compiled library on disk."""

    path: Path  #: Bytecode of TVM's virtual machine.
    metadata: LibraryMetadata
