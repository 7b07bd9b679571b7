"""The same model in the weight formats of several programs, beside the peers that read the files.

    python -m benchmarks.checkpoints --work build/bench --rounds 5 \\
        [--llama-bin llama.cpp/build/bin --llama-source llama.cpp] [--vllm-python PATH] \\
        [--ik-bin ik_llama.cpp/build/bin] [--onnxruntime-python PATH]

Every program opens the same file: llama.cpp, ik_llama.cpp and aiomlc a GGUF file, vLLM and aiomlc
an AWQ checkpoint and one whose weights and activations have 8 bits. ONNX Runtime GenAI has its own
file of 4 bits. AWQ and GPTQ have 4 bits in groups of
128, and random values, on which speed does not depend. The engines take turns. Prints tokens per
second, and the ratios to aiomlc's `q4f16_1`.
"""

from __future__ import annotations

__all__ = ("main",)

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.interleaved import report, run_interleaved
from benchmarks.random_llama import LLAMA_1B, TINY, Shape, make_gguf, make_model
from benchmarks.suite.aiomlc_engine import AiomlcEngine
from benchmarks.suite.measured_engine import MeasuredEngine, Setup
from benchmarks.suite.peers import onnxruntime_genai, vllm_cpu
from benchmarks.suite.peers.ik_llamacpp import IkLlamaCppPeer
from benchmarks.suite.peers.llamacpp import LlamaCppPeer
from benchmarks.suite.plan import select

_GROUP = 128
_GGUF_TYPES = ("q4_k_m", "q8_0")
_ROWS = ("prefill-512", "decode-0", "batch-8")


def main() -> None:
    """Make the files that are missing, measure, and print a table for each row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/bench"), help="of the models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=_ROWS, help="rows of the suite")
    parser.add_argument("--tiny", action="store_true", help="try the benchmark out")
    parser.add_argument("--llama-bin", type=Path, help="directory that contains llama-bench")
    parser.add_argument("--llama-source", type=Path, help="directory of its converter")
    parser.add_argument("--ik-bin", type=Path, help="directory of ik_llama.cpp's llama-bench")
    parser.add_argument("--onnxruntime-python", type=Path, help="that has onnxruntime-genai")
    parser.add_argument("--vllm-python", type=Path, help="the Python that has vllm")
    arguments = parser.parse_args()
    shape = TINY if arguments.tiny else LLAMA_1B
    model = arguments.work / ("llama-tiny" if arguments.tiny else "llama-1b")
    arguments.work.mkdir(parents=True, exist_ok=True)
    make_model(model, shape)
    with ExitStack() as stack:
        engines: list[MeasuredEngine] = []
        for engine in _open_engines(arguments, model, shape):
            stack.callback(engine.close)
            engines.append(engine)

        engines.reverse()  # The last one is what the ratios refer to.
        for row in select(arguments.only):
            meters = {
                engine.name: partial(engine.meters()[row.kind], row.size)
                for engine in engines
                if row.kind in engine.meters()
            }
            report(row.title, row.unit, run_interleaved(meters, arguments.rounds))


def _open_engines(
    arguments: argparse.Namespace, model: Path, shape: Shape
) -> Iterator[MeasuredEngine]:
    """Open aiomlc's `q4f16_1`, which comes first, and the other formats with their peers."""
    setup = Setup(model, arguments.threads, "q4f16_1")

    def open_aiomlc(path: Path) -> AiomlcEngine:
        return AiomlcEngine(Setup(model, arguments.threads, "q4f16_1", opened=path))

    yield AiomlcEngine(setup)
    yield AiomlcEngine(Setup(model, arguments.threads, "w4a8"))
    stored = {method: _make_checkpoint(model, method, shape) for method in _QUANTIZATION}
    for path in stored.values():
        yield open_aiomlc(path)

    if arguments.llama_bin is not None:
        for kind in _GGUF_TYPES:
            gguf = make_gguf(model, arguments.llama_source, arguments.llama_bin, kind)
            yield open_aiomlc(gguf)
            yield LlamaCppPeer(setup, arguments.llama_bin, gguf, kind)
            if arguments.ik_bin is not None:
                yield IkLlamaCppPeer(setup, arguments.ik_bin, gguf, kind)

    if arguments.onnxruntime_python is not None:
        yield onnxruntime_genai.make_peer(setup, arguments.onnxruntime_python)

    if arguments.vllm_python is not None:
        yield open_aiomlc(vllm_cpu.quantize(model, arguments.vllm_python))
        yield vllm_cpu.make_peer(setup, arguments.vllm_python)
        yield vllm_cpu.open_checkpoint("vLLM AWQ", stored["awq"], setup, arguments.vllm_python)


def _make_checkpoint(model: Path, method: str, shape: Shape) -> Path:
    """Write a checkpoint of AutoAWQ or AutoGPTQ with random integers, and return its directory."""
    import ml_dtypes  # noqa: F401 - registers bfloat16 with NumPy.
    from safetensors.numpy import load_file, save_file

    directory = model.with_name(f"{model.name}-{method}")
    path = directory / "model.safetensors"
    if path.is_file():
        return directory

    directory.mkdir(exist_ok=True)
    for file in model.glob("*.json"):
        shutil.copy(file, directory)

    for file in model.glob("*.jinja"):
        shutil.copy(file, directory)

    config: dict[str, Any] = json.loads((model / "config.json").read_bytes())
    config["quantization_config"] = _QUANTIZATION[method]
    (directory / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    random = np.random.Generator(np.random.PCG64(0))
    tensors: dict[str, NDArray[Any]] = {}
    for name, weights in load_file(model / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            tensors[name] = weights
            continue

        outputs, inputs = weights.shape
        for suffix, tensor in _random_layer(random, method, outputs, inputs).items():
            tensors[f"{name.removesuffix('weight')}{suffix}"] = tensor

    # Renamed once complete, so that an interrupted run leaves no truncated file of this name.
    temporary = path.with_suffix(".part")
    save_file(tensors, temporary, metadata={"format": "pt"})
    temporary.rename(path)
    return directory


def _random_layer(
    random: np.random.Generator, method: str, outputs: int, inputs: int
) -> Mapping[str, NDArray[Any]]:
    """Return the tensors of a linear layer; each integer has eight weights or zero points."""
    groups = inputs // _GROUP

    def integers(rows: int, columns: int) -> NDArray[np.int32]:
        return random.integers(-(2**31), 2**31, (rows, columns), dtype=np.int32)

    packed = (inputs, outputs // 8) if method == "awq" else (inputs // 8, outputs)
    scales = random.uniform(0.5, 1.5, (groups, outputs)) / (8 * inputs**0.5)
    tensors: dict[str, NDArray[Any]] = {
        "qweight": integers(*packed),
        "qzeros": integers(groups, outputs // 8),
        "scales": scales.astype(np.float16),
    }
    if method == "gptq":
        tensors["g_idx"] = (np.arange(inputs) // _GROUP).astype(np.int32)

    return tensors


_QUANTIZATION: Mapping[str, Mapping[str, Any]] = {
    "awq": {
        "quant_method": "awq",
        "bits": 4,
        "group_size": _GROUP,
        "zero_point": True,
        "version": "gemm",
    },
    "gptq": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": _GROUP,
        "desc_act": False,
        "sym": False,
        "checkpoint_format": "gptq",
    },
}


if __name__ == "__main__":
    main()
