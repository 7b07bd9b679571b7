"""Mixtures of experts and hybrids at full size, beside llama.cpp on the same GGUF file.

    python -m benchmarks.mixtures --work build/bench --llama-bin llama.cpp/build/bin \\
        --shapes gpt-oss-20b qwen3.6-35b-a3b --layers 24 --rounds 3

The weights are random. The engines take turns; prints tokens per second and their ratios.
"""

from __future__ import annotations

__all__ = ("main",)

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.interleaved import report, run_interleaved
from benchmarks.random_gguf import SHAPES, make_random_gguf
from benchmarks.suite.aiomlc_engine import AiomlcEngine
from benchmarks.suite.measured_engine import MeasuredEngine, Setup
from benchmarks.suite.peers.llamacpp import LlamaCppPeer
from benchmarks.suite.plan import select

_ROWS = ("prefill-512", "decode-0", "batch-8")


def main() -> None:
    """Make the files that are missing, measure each shape, and print a table for each row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/bench"), help="of the models")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES)[:-1])
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=_ROWS, help="rows of the suite")
    parser.add_argument("--llama-bin", type=Path, help="directory that contains llama-bench")
    arguments = parser.parse_args()
    for name in arguments.shapes:
        _measure(name, arguments)


def _measure(name: str, arguments: argparse.Namespace) -> None:
    shape = SHAPES[name].with_layers(arguments.layers)
    path = make_random_gguf(arguments.work / f"{name}-{shape.layers}", shape)
    setup = Setup(path.parent, arguments.threads, "", opened=path)
    with ExitStack() as stack:
        engines: list[MeasuredEngine] = []
        if arguments.llama_bin is not None:
            engines.append(LlamaCppPeer(setup, arguments.llama_bin, path, name))
        engines.append(AiomlcEngine(setup))
        for engine in engines:
            stack.callback(engine.close)
        for row in select(arguments.only):
            meters = {
                engine.name: partial(engine.meters()[row.kind], row.size) for engine in engines
            }
            samples = run_interleaved(meters, arguments.rounds)
            report(f"{name}, {shape.layers} layers: {row.title}", row.unit, samples)


if __name__ == "__main__":
    main()
