"""The layout of weight shards and their index, as MLC LLM writes them.

Every record of MLC LLM has the format `f32-to-bf16`: float32 tensors are stored as bfloat16, others
as they are. The records of `w4a8`, which it does not have, are `raw`.
"""

from __future__ import annotations

__all__ = (
    "INDEX_FILE",
    "REPLACED_FILES",
    "Record",
    "Shard",
    "lay_out",
    "records_of",
    "write_index",
)

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiomlc.tools.mlc_format import MLCFormat
from aiomlc.tools.output_tensor import OutputTensor
from aiomlc.weights.storage.stored_matrix import progressive_row_bytes

INDEX_FILE: Final = "tensor-cache.json"
_BF16_INDEX_FILE: Final = "tensor-cache-b16.json"
#: Patterns of the files that new weights replace.
REPLACED_FILES: Final = ("tensor-cache*.json", "ndarray-cache*.json", "params_shard_*.bin")

_SHARD_BYTES: Final = 32 << 20
_DTYPE_BYTES: Final = {
    "uint8": 1,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


@dataclass(slots=True)
class Record:
    """A stored tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    shard: int = 0
    offset: int = 0  #: In the shard, in bytes.
    is_raw: bool = False  #: Whether float32 has all of its bits in the shard.

    @property
    def nbytes(self) -> int:
        """Bytes in the shard."""
        return math.prod(self.shape) * (2 if self.is_halved else _DTYPE_BYTES[self.dtype])

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory; the shard may have half of them."""
        return self.nbytes * (2 if self.is_halved else 1)

    @property
    def is_halved(self) -> bool:
        """Whether it is float32 of which the shard has 16 bits."""
        return self.dtype == "float32" and not self.is_raw


@dataclass(slots=True)
class Shard:
    """A file of tensors."""

    name: str
    nbytes: int = 0
    records: list[Record] = field(default_factory=list)
    md5: str = ""


def records_of(tensor: OutputTensor, mlc_format: MLCFormat) -> list[Record]:
    """Return the records of a tensor: one, or values and scales."""
    if tensor.storage == "plain":
        return [Record(tensor.name, tensor.shape, tensor.dtype)]

    if tensor.storage == "raw":
        return [Record(tensor.name, tensor.shape, tensor.dtype, is_raw=True)]

    if tensor.storage == "progressive":
        *leading, columns = tensor.shape
        shape = (*leading, progressive_row_bytes(columns))
        return [Record(f"{tensor.name}.q_weight", shape, "uint8", is_raw=True)]

    if tensor.storage == "fp8":
        assert mlc_format.fp8 is not None
        records = [Record(f"{tensor.name}.q_weight", tensor.shape, mlc_format.fp8)]
        if mlc_format.has_scale:
            records.append(Record(f"{tensor.name}.q_scale", (1,), "float32"))
        if mlc_format.has_input_scale:
            records.append(Record(f"{tensor.name}.q_calibration_scale", (1,), "float32"))
        return records

    *leading, columns = tensor.shape
    values = (*leading, mlc_format.words(columns))
    scales = (*leading, mlc_format.groups(columns))
    if tensor.is_transposed:
        values, scales = values[::-1], scales[::-1]
    return [
        Record(f"{tensor.name}.q_weight", values, "uint32"),
        Record(f"{tensor.name}.q_scale", scales, tensor.dtype),
    ]


def lay_out(records: Iterable[Record]) -> list[Shard]:
    """Assign each record its shard and its offset.

    A shard has less than 32 MiB. A tensor that does not fit into the current one begins the next,
    or is alone in a shard if it has 16 MiB or more; the current one then stays open.
    """
    shards: list[Shard] = []
    pending: list[Record] = []
    size = 0

    def commit(committed: list[Record]) -> None:
        shard = Shard(f"params_shard_{len(shards)}.bin", records=committed)
        for record in committed:
            record.shard, record.offset = len(shards), shard.nbytes
            shard.nbytes += record.nbytes
        shards.append(shard)

    for record in records:
        if size + record.nbytes >= _SHARD_BYTES:
            if 2 * record.nbytes >= _SHARD_BYTES:
                commit([record])
                continue

            commit(pending)
            pending, size = [], 0
        pending.append(record)
        size += record.nbytes
    if pending:
        commit(pending)
    return shards


def write_index(directory: Path, shards: Sequence[Shard], num_parameters: int) -> float:
    """Write the index of complete shards; return the bits per parameter.

    Raises:
        OSError: If a file cannot be written.
    """
    records = [record for shard in shards for record in shard.records]
    nbytes = float(sum(record.memory_bytes for record in records))
    bits = nbytes * 8.0 / num_parameters
    metadata = {"ParamSize": len(records), "ParamBytes": nbytes, "BitsPerParam": bits}
    if any(record.is_halved for record in records):
        _write(directory / _BF16_INDEX_FILE, metadata, [_shard_json(s, True) for s in shards])
    _write(directory / INDEX_FILE, metadata, [_shard_json(s, False) for s in shards])
    return bits


def _write(path: Path, metadata: Mapping[str, Any], shards: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"metadata": metadata, "records": shards}, indent=4), "utf-8")


def _shard_json(shard: Shard, as_bf16: bool) -> dict[str, Any]:
    return {
        "dataPath": shard.name,
        "format": "raw-shard",
        "nbytes": shard.nbytes,
        "records": [_record_json(record, as_bf16) for record in shard.records],
        "md5sum": shard.md5,
    }


def _record_json(record: Record, as_bf16: bool) -> dict[str, Any]:
    is_changed = as_bf16 and record.is_halved
    return {
        "name": record.name,
        "shape": list(record.shape),
        "dtype": "bfloat16" if is_changed else record.dtype,
        "format": "raw" if is_changed or record.is_raw else "f32-to-bf16",
        "nbytes": record.nbytes,
        "byteOffset": record.offset,
    }
