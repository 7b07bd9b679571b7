"""Programs that embed passages of equal length, each opened in a process of its own.

`benchmarks/embedding_peers.py` starts this module as `python -m benchmarks.embedding_programs
PROGRAM MODEL THREADS PRECISION TOKENS WORK`. It opens the program, tries each of its settings on a
few passages, and keeps the fastest. For each line on stdin it embeds the passages of
`WORK/tokens.npy`, writes `WORK/PROGRAM-PRECISION.npy` and prints the seconds, and those of the
processors. The process has only the packages of its program, so no other's threads spin beside it.
"""

from __future__ import annotations

__all__ = ("PROGRAMS", "Setting")

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Embed = Callable[[NDArray[np.int64]], NDArray[np.float32]]
_TRIAL = 32  # At most so many passages choose the fastest setting.


class Setting(NamedTuple):
    """A program with one of its settings."""

    name: str
    embed: Embed  #: From token ids `[passages, tokens]` to unit vectors `[passages, hidden]`.


def aiomlc_settings(model: Path, threads: int, precision: str, tokens: int) -> Iterator[Setting]:
    """Yield aiomlc's `embeddings.create`, which forms the batches itself."""
    import base64

    from aiomlc import EngineConfig, MLCEngine

    del tokens
    file = model / f"{precision}.gguf"
    quantization = None if file.is_file() else precision
    config = EngineConfig(quantization=quantization, num_threads=threads)
    engine = MLCEngine(file if file.is_file() else model, engine_config=config)

    def embed(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        response = engine.embeddings.create(input=ids.tolist(), encoding_format="base64")
        data = b"".join(base64.b64decode(str(item.embedding)) for item in response.data)
        return np.frombuffer(data, "<f4").reshape(len(ids), -1)

    yield Setting("", embed)


def onnxruntime_settings(
    model: Path, threads: int, precision: str, tokens: int
) -> Iterator[Setting]:
    """Yield ONNX Runtime with fastembed's session options, and batches up to its default of 256."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    for file in sorted(model.glob(f"{precision}*.onnx")):
        session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )

        def run(batch: Mapping[str, Any], session: Any = session) -> NDArray[np.float32]:  # noqa: ANN401
            states: NDArray[np.float32] = session.run(None, batch)[0]
            return states

        for size in (4, 16, 256):
            yield Setting(f"{file.stem}, batches of {size}", _batched(run, size))


def openvino_settings(model: Path, threads: int, precision: str, tokens: int) -> Iterator[Setting]:
    """Yield OpenVINO with one stream of all threads, and with a stream for each thread."""
    import openvino

    core = openvino.Core()
    file = "int8.xml" if precision == "int8" else "f32.onnx"
    for hint, streams in (("LATENCY", 1), ("THROUGHPUT", threads)):
        properties = {
            "PERFORMANCE_HINT": hint,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": streams,
            "INFERENCE_PRECISION_HINT": "f32" if precision == "int8" else precision,
        }
        for size in (1, 16):
            network = core.read_model(model / file)
            network.reshape({name: [size, tokens] for name in _input_names(network)})
            compiled = core.compile_model(network, "CPU", properties)
            yield Setting(f"{streams} streams, batches of {size}", _queue(compiled, streams, size))


def _input_names(network: Any) -> list[str]:  # noqa: ANN401 - openvino is untyped.
    return [port.get_any_name() for port in network.inputs]


def _queue(compiled: Any, streams: int, size: int) -> Embed:  # noqa: ANN401 - openvino is untyped.
    import openvino

    def embed(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        vectors = np.zeros((len(ids), 0), np.float32)

        def keep(request: Any, start: int) -> None:  # noqa: ANN401
            nonlocal vectors
            pooled = _pool(request.get_output_tensor(0).data)
            if vectors.shape[1] == 0:
                vectors = np.zeros((len(ids), pooled.shape[1]), np.float32)
            end = min(start + size, len(ids))
            vectors[start:end] = pooled[: end - start]

        queue = openvino.AsyncInferQueue(compiled, streams)
        queue.set_callback(keep)
        for start in range(0, len(ids), size):
            batch = ids[start : start + size]
            padding = np.repeat(batch[-1:], size - len(batch), axis=0)
            queue.start_async(_inputs(np.concatenate([batch, padding])), start)
        queue.wait_all()
        return vectors

    return embed


def llama_cpp_settings(model: Path, threads: int, precision: str, tokens: int) -> Iterator[Setting]:
    """Yield llama.cpp with several sizes of a batch, with and without flash attention."""
    import llama_cpp

    llama_cpp.llama_backend_init()
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    path = str(model / f"{precision}.gguf").encode()
    loaded = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
    for passages in (1, 8):
        for flash in (0, 1):
            parameters = llama_cpp.llama_context_default_params()
            parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = passages * tokens
            parameters.n_seq_max = passages
            parameters.n_threads = parameters.n_threads_batch = threads
            parameters.embeddings = True
            parameters.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_MEAN
            parameters.flash_attn_type = flash
            context = llama_cpp.llama_init_from_model(loaded, parameters)
            name = f"batches of {passages}, flash attention {'on' if flash else 'off'}"
            yield Setting(name, _LlamaContext(loaded, context, passages, silent).embed)


class _LlamaContext:
    def __init__(self, model: Any, context: Any, passages: int, *keep: object) -> None:  # noqa: ANN401
        self._context = context
        self._passages = passages
        self._keep = (model, *keep)

    def embed(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        parts = range(0, len(ids), self._passages)
        return np.concatenate([self._embed(ids[i : i + self._passages]) for i in parts])

    def _embed(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        import llama_cpp

        count, length = ids.shape
        batch = llama_cpp.llama_batch_init(ids.size, 0, count)
        batch.n_tokens = ids.size
        for index, token in enumerate(ids.ravel().tolist()):
            batch.token[index] = token
            batch.pos[index] = index % length
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = index // length
            batch.logits[index] = True
        if llama_cpp.llama_encode(self._context, batch):
            raise RuntimeError("llama.cpp could not encode the batch")

        size = llama_cpp.llama_model_n_embd(self._keep[0])
        rows = [llama_cpp.llama_get_embeddings_seq(self._context, i) for i in range(count)]
        vectors = np.stack([np.ctypeslib.as_array(row, (size,)).copy() for row in rows])
        llama_cpp.llama_batch_free(batch)
        return _unit(vectors)


PROGRAMS: Mapping[str, Callable[[Path, int, str, int], Iterator[Setting]]] = {
    "aiomlc": aiomlc_settings,
    "onnxruntime": onnxruntime_settings,
    "openvino": openvino_settings,
    "llama_cpp": llama_cpp_settings,
}


def _batched(run: Callable[[Mapping[str, Any]], NDArray[np.float32]], size: int) -> Embed:
    def embed(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        parts = range(0, len(ids), size)
        return np.concatenate([_pool(run(_inputs(ids[i : i + size]))) for i in parts])

    return embed


def _inputs(ids: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    zeros = np.zeros_like(ids)
    return {"input_ids": ids, "attention_mask": zeros + 1, "token_type_ids": zeros}


def _pool(states: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the unit vector of the mean of hidden states `[passages, tokens, hidden]`."""
    return _unit(states.mean(axis=1))


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


class Cost(NamedTuple):
    """What a run has taken."""

    seconds: float
    cpu_seconds: float  #: Of all threads of the process, which other processes change less.


def _measure(embed: Embed, ids: NDArray[np.int64]) -> tuple[Cost, NDArray[np.float32]]:
    start, cpu_start = time.perf_counter(), time.process_time()
    vectors = embed(ids)
    return Cost(time.perf_counter() - start, time.process_time() - cpu_start), vectors


def _fastest(settings: Iterator[Setting], ids: NDArray[np.int64]) -> Setting:
    """Return the setting that embeds the passages in the least time, after a call to warm it."""

    def measured(setting: Setting) -> float:
        setting.embed(ids[:4])
        seconds = _measure(setting.embed, ids)[0].seconds
        print(f"{setting.name}: {seconds:.3f} s", file=sys.stderr)
        return seconds

    # Only the fastest one is kept, since each has memory of its own.
    best, fastest = None, float("inf")
    for setting in settings:
        if (seconds := measured(setting)) < fastest:
            best, fastest = setting, seconds
    assert best is not None, "a program has a setting"
    return best


def main() -> None:
    """Serve one program."""
    # Libraries print to stdout, so move it to stderr and keep the pipe for the protocol.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    program, model, threads, precision, work = sys.argv[1:]
    ids = np.load(Path(work) / "tokens.npy")
    settings = PROGRAMS[program](Path(model), int(threads), precision, ids.shape[1])
    setting = _fastest(settings, ids[: min(_TRIAL, max(8, len(ids) // 8))])
    print(json.dumps({"setting": setting.name}), file=pipe, flush=True)
    for _ in sys.stdin:
        cost, vectors = _measure(setting.embed, ids)
        np.save(Path(work) / f"{program}-{precision}.npy", vectors)
        print(json.dumps(cost._asdict()), file=pipe, flush=True)


if __name__ == "__main__":
    main()
