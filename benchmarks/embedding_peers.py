"""Embedding of passages: aiomlc beside ONNX Runtime, OpenVINO and llama.cpp, at equal precision.

    python -m benchmarks.embedding_peers --work build/embedding \\
        [--onnxruntime DIRECTORY] [--openvino DIRECTORY [--nncf DIRECTORY]] \\
        [--llama-cpp llama.cpp/build/bin --llama-cpp-python llama_cpp_python]

Two encoders with random weights, in the shapes of all-MiniLM-L6-v2 and bge-base, embed the same
random passages with mean pooling. fastembed runs its models in ONNX Runtime with the session
options that are used here. Each program is in a process of its own and keeps the fastest of several
settings (`benchmarks/embedding_programs.py`); then all take turns. Prints passages per second, the
ratio to the fastest peer, passages per second of a processor, which do not depend on what else
runs, and the smallest cosine between the vectors of a program and those of
aiomlc in float32. A DIRECTORY has a package, as `pip install --target DIRECTORY onnxruntime` writes
it; the export to ONNX needs the package `onnx` there, and torch and transformers (`pip install
--group train`).
"""

from __future__ import annotations

__all__ = ("SHAPES", "main")

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.interleaved import Sample, processor, run_interleaved
from benchmarks.random_llama import convert

_ROOT = Path(__file__).parents[1]
_BERT: dict[str, Any] = {"model_type": "bert", "vocab_size": 30_522, "max_position_embeddings": 512}
SHAPES: Mapping[str, Mapping[str, int]] = {
    "minilm": {
        "num_hidden_layers": 6,
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_attention_heads": 12,
    },
    "bge-base": {
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
    },
}
_OURS = ("q0f32", "q0bf16")
_OPENVINO = ("f32", "bf16", "int8")  #: The last one needs the package `nncf`.


@dataclass(frozen=True, slots=True)
class Program:
    """A program to measure."""

    name: str  #: Of `embedding_programs.PROGRAMS`.
    precision: str
    environment: Mapping[str, str]

    @property
    def title(self) -> str:
        """The program and its precision."""
        return f"{self.name} {self.precision}"


class Worker:
    """A process of `benchmarks.embedding_programs`."""

    def __init__(self, program: Program, model: Path, arguments: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "benchmarks.embedding_programs", program.name, str(model)]
        command += [str(arguments.threads), program.precision, str(arguments.work)]
        self._title = program.title
        self.passages: int = arguments.passages
        self.cpu_seconds: list[float] = []  #: Of each run.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **program.environment},
            text=True,
        )
        self.setting = self._read()["setting"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def measure(self) -> float:
        """Return the passages per second of one run over all passages."""
        assert self._process.stdin is not None, "stdin is a pipe"
        print(file=self._process.stdin, flush=True)
        cost = self._read()
        self.cpu_seconds.append(float(cost["cpu_seconds"]))
        return self.passages / float(cost["seconds"])

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "stdout is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._title} exited with {self._process.wait()}")

        message: dict[str, Any] = json.loads(line)
        return message


def main() -> None:
    """Make the models, measure the programs in turns and print a table of each shape."""
    arguments = _parse_arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    shape = (arguments.passages, arguments.tokens)
    np.save(arguments.work / "tokens.npy", random.integers(1000, _BERT["vocab_size"], shape))
    programs = list(_programs(arguments))
    for name in arguments.shapes:
        model = arguments.work / name
        _make_model(model, name, arguments)
        with ExitStack() as stack:
            workers = {
                each.title: stack.enter_context(Worker(each, model, arguments)) for each in programs
            }
            variants = {title: worker.measure for title, worker in workers.items()}
            samples = run_interleaved(variants, arguments.rounds)
        _report(name, programs, samples, workers, arguments.work)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/embedding"), help="for the models")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--passages", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=256, help="of a passage")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", nargs="+", default=_OURS, help="quantizations of aiomlc")
    parser.add_argument("--onnxruntime", type=Path, help="directory with the package")
    parser.add_argument("--openvino", type=Path, help="directory with the package")
    parser.add_argument("--nncf", type=Path, help="directory with the package, for OpenVINO's int8")
    parser.add_argument("--llama-cpp", type=Path, help="directory with libllama.so")
    parser.add_argument(
        "--llama-cpp-python", type=Path, help="source of llama-cpp-python, with vendor/llama.cpp"
    )
    return parser.parse_args()


def _programs(arguments: argparse.Namespace) -> Iterator[Program]:
    for precision in arguments.ours:
        yield Program("aiomlc", precision, {})
    if arguments.llama_cpp is not None:  # Its converter writes the file.
        yield Program("aiomlc", "q8_0", {})
    if arguments.onnxruntime is not None:
        for precision in ("f32", "int8"):
            yield Program("onnxruntime", precision, {"PYTHONPATH": str(arguments.onnxruntime)})
    if arguments.openvino is not None:
        for precision in _OPENVINO[: None if arguments.nncf is not None else -1]:
            yield Program("openvino", precision, {"PYTHONPATH": str(arguments.openvino)})
    if arguments.llama_cpp is not None:
        yield from _llama_programs(arguments)


def _llama_programs(arguments: argparse.Namespace) -> Iterator[Program]:
    environment = {
        "PYTHONPATH": os.pathsep.join(
            (str(arguments.llama_cpp_python), os.environ.get("PYTHONPATH", ""))
        ),
        "LLAMA_CPP_LIB_PATH": str(arguments.llama_cpp),
    }
    for precision in ("f32", "bf16", "q8_0"):
        yield Program("llama_cpp", precision, environment)


def _make_model(directory: Path, name: str, arguments: argparse.Namespace) -> None:
    """Write the model for each program unless it exists."""
    if not (directory / "model.safetensors").is_file():
        import torch
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        values = {**_BERT, **SHAPES[name]}
        BertModel(BertConfig(**values), add_pooling_layer=False).save_pretrained(directory)
        _write_tokenizer(directory)
    if arguments.onnxruntime is not None or arguments.openvino is not None:
        path = os.pathsep.join(str(p) for p in (arguments.onnxruntime, arguments.openvino) if p)
        _export(directory / "f32.onnx", packages=path)
    if arguments.onnxruntime is not None:
        _export(directory / "f32-fused.onnx", "fused", packages=str(arguments.onnxruntime))
        _export(directory / "int8.onnx", "dynamic", packages=str(arguments.onnxruntime))
    if arguments.openvino is not None and arguments.nncf is not None:
        path = os.pathsep.join((str(arguments.nncf), str(arguments.openvino)))
        _export(directory / "int8.xml", "static", packages=path)
    if arguments.llama_cpp is not None:
        source = arguments.llama_cpp_python / "vendor/llama.cpp"
        for kind in ("f32", "bf16", "q8_0"):
            if not (target := directory / f"{kind}.gguf").is_file():
                convert(directory, source, target, kind, "jina-v2-en")


def _export(target: Path, *options: str, packages: str) -> None:
    """Run `benchmarks.embedding_export` unless the file exists."""
    if target.is_file():
        return

    command = [sys.executable, "-m", "benchmarks.embedding_export", str(target), *options]
    environment = {**os.environ, "PYTHONPATH": packages}
    subprocess.run(command, check=True, stdout=sys.stderr, env=environment)


def _write_tokenizer(directory: Path) -> None:
    """Write a WordPiece tokenizer of BERT's special tokens and made-up words."""
    from transformers import BertTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"word{i}" for i in range(_BERT["vocab_size"] - len(special)))]
    (directory / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    vocab = {word: index for index, word in enumerate(words)}
    BertTokenizerFast(vocab=vocab).save_pretrained(directory)


def _report(
    name: str,
    programs: Sequence[Program],
    samples: Mapping[str, Sequence[Sample]],
    workers: Mapping[str, Worker],
    work: Path,
) -> None:
    medians = {title: statistics.median(s.value for s in row) for title, row in samples.items()}
    vectors = {each.title: np.load(work / f"{each.name}-{each.precision}.npy") for each in programs}
    reference = vectors[programs[0].title]
    peers = [each.title for each in programs if each.name != "aiomlc" and each.precision == "f32"]
    fastest = max((medians[title] for title in peers), default=0.0)
    print(f"\n{name}, {len(reference)} passages\n")
    columns = "passages/s (median) | min | max | to the fastest peer in float32 | per CPU second"
    print(f"| | {columns} | cosine | setting |")
    print("|---|---|---|---|---|---|---|---|")
    for title, row in samples.items():
        values = [sample.value for sample in row]
        ratio = f"{medians[title] / fastest:.2f}" if fastest else ""
        cosine = float((vectors[title] * reference).sum(axis=1).min())
        print(f"| {title} | {medians[title]:.1f} | {min(values):.1f} | {max(values):.1f} ", end="")
        worker = workers[title]
        per_cpu_second = worker.passages / statistics.median(worker.cpu_seconds)
        print(f"| {ratio} | {per_cpu_second:.1f} | {cosine:.6f} | {worker.setting} |")
    rates = {title: [[s.value, s.load] for s in row] for title, row in samples.items()}
    print("\n" + json.dumps({"shape": name, "machine": processor(), "samples": rates}))


if __name__ == "__main__":
    main()
