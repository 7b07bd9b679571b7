"""`python -m aiomlc.tools.activations_process PARENT JOB`: measure the activations of a model.

It replaces the kernels of linear layers in the FFI's registry by functions that record the inputs
and call the kernel; nothing else runs in the process.
"""

from __future__ import annotations

__all__ = ()

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import numpy as np
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.errors import AiomlcError
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.prepare import prepare_model
from aiomlc.runtime.loading.progress import ignore_progress
from aiomlc.runtime.native.library import load_native, native_function
from aiomlc.runtime.native.model import ModelShape, NativeModel
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.weights import map_weights
from aiomlc.workers.parent import end_with_parent, write_message

# Float weights, whose products are calls of these kernels; other formats are fused with norms.
_QUANTIZATION: Final = "q0f16"
_KERNELS: Final = ("aiomlc.cpu.linear", "aiomlc.cpu.linear_bias")
_SMALLEST: Final = 1e-6  # Of a column that no token of the text uses.
_CHUNK: Final = 512  # Tokens of a forward pass, which begins a sequence.


class _Recorder:
    """Sums of the squared inputs of every matrix, by the address of its weights."""

    def __init__(self) -> None:
        self.sums: dict[int, NDArray[np.float64]] = {}

    def wrap(self, name: str) -> None:
        """Replace a kernel by one that records."""
        import tvm_ffi

        kernel = native_function(name)

        def record(x: Any, packed: Any, *others: Any) -> None:  # noqa: ANN401 - FFI tensors.
            values = np.from_dlpack(x).astype(np.float64)
            values = values.reshape(-1, values.shape[-1])
            total = np.square(values, out=values).sum(axis=0)
            address = _address(packed)
            self.sums[address] = total + self.sums.get(address, 0.0)
            kernel(x, packed, *others)

        tvm_ffi.register_global_func(name, record, override=True)


def _chunks(tokenizer: Tokenizer, text: str) -> Iterator[list[int]]:
    """Yield the tokens of the text in pieces of at most `_CHUNK`."""
    for line in text.splitlines():
        tokens = tokenizer.encode(line, add_special_tokens=True) if line.strip() else []
        for begin in range(0, len(tokens), _CHUNK):
            yield tokens[begin : begin + _CHUNK]


def _measure(directory: Path, text: str) -> dict[str, NDArray[np.float32]]:
    model = find_model(directory)
    config = EngineConfig(quantization=_QUANTIZATION)
    facts = ModelFacts(model, _QUANTIZATION)
    prepared = anyio.run(prepare_model, facts, "cpu", config, ignore_progress)
    recorder = _Recorder()
    for name in _KERNELS:
        recorder.wrap(name)
    weights, library = prepared.weights, prepared.library
    params = map_weights(weights.path, weights.nbytes, weights.params)
    shape = ModelShape.of(
        library.metadata,
        context_window=_CHUNK,
        max_batch_size=1,
        prefill_chunk_size=_CHUNK,
        max_total_tokens=_CHUNK,
    )
    native = NativeModel(library, params, shape, prepared.num_threads)
    for chunk in _chunks(Tokenizer(model.path / "tokenizer.json"), text):
        native.add_sequence(0)
        native.forward([(0, chunk)])
        native.remove_sequence(0)
    return {
        plan.parameter.name: _normalized(recorder.sums[address])
        for array, plan in zip(params, weights.params, strict=True)
        if (address := _address(array)) in recorder.sums
    }


def _address(tensor: Any) -> int:  # noqa: ANN401 - an FFI tensor.
    return int(np.from_dlpack(tensor).ctypes.data)


def _normalized(sums: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the sums divided by their mean; only ratios matter, and these are not too small."""
    mean = sums.mean()
    scaled = sums / mean if mean > 0 else np.ones_like(sums)
    return np.maximum(scaled, _SMALLEST).astype(np.float32)


def main() -> int:
    """Run the job of the command line."""
    end_with_parent(int(sys.argv[1]), lambda: None)
    load_native()
    job = json.loads(Path(sys.argv[2]).read_text("utf-8"))
    try:
        arrays: dict[str, Any] = _measure(Path(job["model"]), job["text"])
        np.savez(job["output"], **arrays)
    except AiomlcError as error:
        write_message(error=str(error))
        return 1

    return 0


if __name__ == "__main__":
    sys.exit(main())
