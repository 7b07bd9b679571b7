"""A compiled library with its parameters and its KV cache, as typed Python."""

from __future__ import annotations

__all__ = ("ModelShape", "NativeModel", "OtherShards")

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, final

import numpy as np

from aiomlc.runtime.native.device import HostDevice, NativeDevice
from aiomlc.runtime.native.library import ffi_shape, native_function, open_library
from aiomlc.runtime.native.records import native_record
from aiomlc.runtime.native.recurrent_slots import CHECKPOINT_INTERVAL, slots_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aiomlc.compiler.job import CompiledLibrary
    from aiomlc.runtime.native.faults import Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a model and of its KV cache."""

    vocab_size: int
    context_window: int  #: Tokens of one sequence.
    max_batch_size: int  #: Sequences of a forward pass.
    prefill_chunk_size: int  #: Tokens of a forward pass.
    max_total_tokens: int  #: Tokens that the KV cache holds.
    num_layers: int
    num_query_heads: int
    num_kv_heads: int
    kv_row_size: int  #: Of one head at one position: elements (int4: pairs) and bytes of a scale.
    kv_dtype: str  #: The dtype by which TVM knows a stored element.
    #: Floats of the state of each recurrent layer; empty if there is none.
    recurrent_sizes: tuple[int, ...] = ()
    num_slots: int = 0  #: Recurrent states of sequences and checkpoints.
    checkpoint_interval: int = CHECKPOINT_INTERVAL  #: Tokens between checkpoints.
    embedded_row_size: int = 0  #: Floats of a row of an embedded piece; 0 if there are none.
    needs_whole_pieces: bool = False  #: Whether one pass must have all positions of a piece.
    num_piece_layers: int = 0  #: The first layers, after which a part of a row is added.
    rope_axes: tuple[int, ...] = ()  #: See `RopeConfig.axes`.

    @classmethod
    def of(
        cls,
        metadata: Mapping[str, Any],
        *,
        context_window: int,
        max_batch_size: int,
        prefill_chunk_size: int,
        max_total_tokens: int,
        num_slots: int | None = None,
    ) -> Self:
        """Return the sizes of a compiled library, by its metadata, with the given limits.

        The default of `num_slots` is enough for `max_batch_size` sequences.
        """
        recurrent_sizes = tuple(metadata["recurrent_sizes"])
        if num_slots is None:
            num_slots = max_batch_size * slots_of(context_window) if recurrent_sizes else 0
        return cls(
            vocab_size=metadata["vocab_size"],
            context_window=context_window,
            max_batch_size=max_batch_size,
            prefill_chunk_size=prefill_chunk_size,
            max_total_tokens=max_total_tokens,
            num_layers=metadata["num_hidden_layers"],
            num_query_heads=metadata["num_attention_heads"],
            num_kv_heads=metadata["num_key_value_heads"],
            kv_row_size=metadata["kv_row_size"],
            kv_dtype=metadata["kv_storage_dtype"],
            recurrent_sizes=recurrent_sizes,
            num_slots=num_slots,
            embedded_row_size=metadata["embedded_row_size"],
            needs_whole_pieces=metadata["needs_whole_pieces"],
            num_piece_layers=metadata["num_piece_layers"],
            rope_axes=tuple(metadata["rope_axes"]),
        )


class OtherShards(Protocol):
    """The processes of a model's shards but the first."""

    def join(self, model: Any) -> None:  # noqa: ANN401 - an FFI object.
        """Wait until all are open, and let a native model, the first shard, lead them."""
        ...

    def close(self) -> None:
        """End the processes. Idempotent."""
        ...


@final
class NativeModel:
    """A compiled library with its parameters and its KV cache.

    An engine drives the model. The methods run single forward passes, to get logits. Not
    thread-safe.
    """

    def __init__(
        self,
        library: CompiledLibrary,
        params: Sequence[object],
        shape: ModelShape,
        num_threads: int,
        faults: Faults | None = None,
        device: NativeDevice | None = None,
    ) -> None:
        """Load the library, copy the parameters to a device and allocate the KV cache. Blocks.

        Args:
            params: FFI tensors in the order of the library's metadata.
            device: As `prepare` returned it for the library; None is the processor.
            faults: Faults to inject when an engine drives it.

        Raises:
            ModelLoadError: If the library cannot be loaded or lacks a function.
            MemoryError: If the parameters or the KV cache cannot be allocated.
        """
        placed = HostDevice() if device is None else device
        self.shards: OtherShards | None = None  #: Those after the first, which this is then.
        self.vocab_size: int = shape.vocab_size
        self.shape: ModelShape = shape
        with placed.opening(), open_library(library) as module:
            placed.load_kernels(module)
            self.handle: Any = native_function("aiomlc.model_open")(
                module,
                list(params),
                native_record("aiomlc.ModelShape", _shape_fields(shape)),
                num_threads,
                None if faults is None else _as_record(faults),
                *placed.dlpack,
            )

    def lead(self, shards: OtherShards) -> None:
        """Wait until the other shards are open, and lead them from now on.

        Raises:
            ModelLoadError: If one cannot be opened.
            MemoryError: If its memory cannot be allocated.
        """
        shards.join(self.handle)
        self.shards = shards

    def add_sequence(self, sequence_id: int) -> None:
        """Add an empty sequence."""
        native_function("aiomlc.model_add_sequence")(self.handle, sequence_id)

    def fork_sequence(self, source_id: int, sequence_id: int, num_tokens: int) -> None:
        """Add a sequence with the first tokens of another, at least one."""
        native_function("aiomlc.model_fork_sequence")(
            self.handle, source_id, sequence_id, num_tokens
        )

    def remove_sequence(self, sequence_id: int) -> None:
        """Remove a sequence and free its pages."""
        native_function("aiomlc.model_remove_sequence")(self.handle, sequence_id)

    def free_pages(self) -> int:
        """Return the number of pages of the KV cache that no sequence holds."""
        return int(native_function("aiomlc.model_free_pages")(self.handle))

    def export_tokens(self, sequence_id: int, start: int, stop: int) -> bytes:
        """Return the keys and values of tokens `start` to `stop` of a sequence."""
        export = native_function("aiomlc.model_export_tokens")
        return bytes(export(self.handle, sequence_id, start, stop))

    def import_tokens(self, sequence_id: int, rows: bytes) -> None:
        """Append the tokens whose keys and values `export_tokens` returned to a sequence."""
        native_function("aiomlc.model_import_tokens")(self.handle, sequence_id, rows)

    def forward(self, rows: Sequence[tuple[int, Sequence[int]]]) -> NDArray[np.float32]:
        """Append token ids to sequences in one forward pass.

        Args:
            rows: Pairs of a sequence id and the token ids to append, at least one each.

        Returns:
            The logits after each row's last token, `[len(rows), vocab_size]`.
        """
        logits = native_function("aiomlc.model_forward")(
            self.handle,
            ffi_shape(sequence_id for sequence_id, _ in rows),
            ffi_shape(len(ids) for _, ids in rows),
            ffi_shape(token for _, ids in rows for token in ids),
        )
        array: NDArray[np.float32] = np.array(np.from_dlpack(logits), dtype=np.float32)
        return array


def _shape_fields(shape: ModelShape) -> dict[str, object]:
    shapes = {
        "recurrent_sizes": ffi_shape(shape.recurrent_sizes),
        "rope_axes": ffi_shape(shape.rope_axes),
    }
    return asdict(shape) | shapes


def _as_record(faults: Faults) -> object:
    fields = asdict(faults)
    del fields["draft"]  # The draft model has separate faults.
    return native_record("aiomlc.Faults", fields)
