"""Embedding of passages: aiomlc beside ONNX Runtime, OpenVINO and llama.cpp, at equal precision.

    pip install --target PACKAGES onnx onnxruntime openvino nncf
    python -m benchmarks.embedding_peers --packages PACKAGES [--minilm all-MiniLM-L6-v2] \\
        [--llama-cpp llama.cpp/build/bin --llama-cpp-python llama_cpp_python]

Two encoders with random weights, in the shapes of all-MiniLM-L6-v2 and bge-base, embed the same
1,000 passages of 256 tokens with mean pooling, in float32, bf16 and int8. fastembed runs its models
in ONNX Runtime with the session options that are used here. Each program is in a process of its own
and keeps the fastest of several settings (`benchmarks/embedding_programs.py`); then all take turns.
Prints passages per second, passages per second of a processor, which do not depend on what else
runs, the ratio of both to the fastest peer in the same precision, and the greatest cosine loss: 1
minus the cosine of the vectors of a program and of aiomlc in float32. With `--minilm`, the first
encoder has the weights of that directory, and the passages are of this documentation. Of the
programs in PACKAGES, those are measured that are there. The export to ONNX needs torch and
transformers (`pip install --group train`).
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
from numpy.typing import NDArray

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
_OURS = ("q0f32", "q0bf16", "w8a8")
_OPENVINO = ("f32", "bf16", "int8")  #: The last one needs the package `nncf`.
_INT8 = ("int8", "q8_0", "w8a8")


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

    @property
    def kind(self) -> str:
        """What the precision is compared with."""
        return "int8" if self.precision in _INT8 else self.precision.removeprefix("q0")


class Worker:
    """A process of `benchmarks.embedding_programs`."""

    def __init__(self, program: Program, model: Path, arguments: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "benchmarks.embedding_programs", program.name, str(model)]
        command += [str(arguments.threads), program.precision, str(arguments.work)]
        self._title = program.title
        self.passages: int = arguments.passages
        self._cpu_seconds: list[float] = []  # Of each run.
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
        self._cpu_seconds.append(float(cost["cpu_seconds"]))
        return self.passages / float(cost["seconds"])

    @property
    def per_cpu_second(self) -> float:
        """Passages per second of a processor: the median of the runs."""
        return self.passages / statistics.median(self._cpu_seconds)

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
    np.save(arguments.work / "tokens.npy", _passages(arguments))
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
    parser.add_argument("--packages", type=Path, help="directory with the Python packages of peers")
    parser.add_argument("--minilm", type=Path, help="directory of all-MiniLM-L6-v2")
    parser.add_argument("--llama-cpp", type=Path, help="directory with libllama.so")
    parser.add_argument(
        "--llama-cpp-python", type=Path, help="source of llama-cpp-python, with vendor/llama.cpp"
    )
    return parser.parse_args()


def _passages(arguments: argparse.Namespace) -> NDArray[np.int64]:
    """Return token ids `[passages, tokens]`: random ones, or those of the documentation."""
    count, length = arguments.passages, arguments.tokens
    if arguments.minilm is None:
        random = np.random.default_rng(0)
        return random.integers(1000, _BERT["vocab_size"], (count, length))

    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(arguments.minilm / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    pages = [page.read_text(encoding="utf-8") for page in sorted((_ROOT / "docs").glob("**/*.md"))]
    text = tokenizer.encode("\n".join(pages), add_special_tokens=False).ids
    first, last = tokenizer.encode("").ids
    inner = np.resize(text, (count, length - 2))
    ends = [np.full((count, 1), token) for token in (first, last)]
    return np.hstack([ends[0], inner, ends[1]]).astype(np.int64)


def _has(arguments: argparse.Namespace, package: str) -> bool:
    return arguments.packages is not None and (arguments.packages / package).is_dir()


def _programs(arguments: argparse.Namespace) -> Iterator[Program]:
    for precision in arguments.ours:
        yield Program("aiomlc", precision, {})
    if arguments.llama_cpp is not None:  # Its converter writes the file.
        yield Program("aiomlc", "q8_0", {})
    packages = {"PYTHONPATH": str(arguments.packages)}
    if _has(arguments, "onnxruntime"):
        for precision in ("f32", "int8"):
            yield Program("onnxruntime", precision, packages)
    if _has(arguments, "openvino"):
        for precision in _OPENVINO[: None if _has(arguments, "nncf") else -1]:
            yield Program("openvino", precision, packages)
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


def _write_weights(directory: Path, name: str, minilm: Path | None) -> None:
    """Write a model with random weights, or those of all-MiniLM-L6-v2, unless it exists."""
    if (directory / "model.safetensors").is_file():
        return

    if name == "minilm" and minilm is not None:
        directory.mkdir(exist_ok=True)
        for file in ("config.json", "vocab.txt", "tokenizer.json", "model.safetensors"):
            (directory / file).write_bytes((minilm / file).read_bytes())
        return

    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    values = {**_BERT, **SHAPES[name]}
    BertModel(BertConfig(**values), add_pooling_layer=False).save_pretrained(directory)
    _write_tokenizer(directory)


def _make_model(directory: Path, name: str, arguments: argparse.Namespace) -> None:
    """Write the model for each program unless it exists."""
    _write_weights(directory, name, arguments.minilm)
    if arguments.packages is not None:
        _export_all(directory, arguments.packages)
    if arguments.llama_cpp is not None:
        source = arguments.llama_cpp_python / "vendor/llama.cpp"
        for kind in ("f32", "bf16", "q8_0"):
            if not (target := directory / f"{kind}.gguf").is_file():
                convert(directory, source, target, kind, "jina-v2-en")


def _export_all(directory: Path, packages: Path) -> None:
    """Write the model for ONNX Runtime and OpenVINO, as far as there are packages."""
    has = {name for name in ("onnxruntime", "openvino", "nncf") if (packages / name).is_dir()}
    _export(directory / "f32.onnx", packages=packages)
    if "onnxruntime" in has:
        _export(directory / "f32-fused.onnx", "fused", packages=packages)
        _export(directory / "int8.onnx", "dynamic", packages=packages)
    if has >= {"openvino", "nncf"}:
        _export(directory / "int8.xml", "static", packages=packages)


def _export(target: Path, *options: str, packages: Path) -> None:
    """Run `benchmarks.embedding_export` unless the file exists."""
    if target.is_file():
        return

    command = [sys.executable, "-m", "benchmarks.embedding_export", str(target), *options]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    subprocess.run(command, check=True, stdout=sys.stderr, env=environment)


def _write_tokenizer(directory: Path) -> None:
    """Write a WordPiece tokenizer of BERT's special tokens and made-up words."""
    from transformers import BertTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"word{i}" for i in range(_BERT["vocab_size"] - len(special)))]
    (directory / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    vocab = {word: index for index, word in enumerate(words)}
    BertTokenizerFast(vocab=vocab).save_pretrained(directory)


def _ratio(title: str, rates: Mapping[str, float], peers: Sequence[str]) -> str:
    return f"{rates[title] / max(rates[peer] for peer in peers):.2f}" if peers else ""


def _report(
    name: str,
    programs: Sequence[Program],
    samples: Mapping[str, Sequence[Sample]],
    workers: Mapping[str, Worker],
    work: Path,
) -> None:
    medians = {title: statistics.median(s.value for s in row) for title, row in samples.items()}
    per_cpu_second = {title: worker.per_cpu_second for title, worker in workers.items()}
    vectors = {each.title: np.load(work / f"{each.name}-{each.precision}.npy") for each in programs}
    reference = vectors[programs[0].title]
    print(f"\n{name}, {len(reference)} passages\n")
    columns = "passages/s (median) | min | max | ratio | per CPU second | ratio"
    print(f"| | {columns} | cosine loss | setting |")
    print("|---|---|---|---|---|---|---|---|---|")
    for each in programs:
        title = each.title
        peers = [p.title for p in programs if p.kind == each.kind and p.name != "aiomlc"]
        values = [sample.value for sample in samples[title]]
        cells = [title, f"{medians[title]:.1f}", f"{min(values):.1f}", f"{max(values):.1f}"]
        cells += [_ratio(title, medians, peers), f"{per_cpu_second[title]:.2f}"]
        cells += [_ratio(title, per_cpu_second, peers)]
        cells += [f"{1 - float((vectors[title] * reference).sum(axis=1).min()):.1e}"]
        print(f"| {' | '.join([*cells, workers[title].setting])} |")
    rates = {title: [[s.value, s.load] for s in row] for title, row in samples.items()}
    print("\n" + json.dumps({"shape": name, "machine": processor(), "samples": rates}))


if __name__ == "__main__":
    main()
