"""Measure aiomlc beside llama.cpp, and beside OpenVINO GenAI and vLLM where they are installed.

python -m benchmarks.suite --llama-bin BUILD/bin --llama-source LLAMA.CPP
    --openvino-python VENV/bin/python --vllm-python VENV/bin/python
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import get_args

from aiomlc.compiler.quantization import QUANTIZATIONS
from aiomlc.config import KVCacheType
from benchmarks.interleaved import Sample, processor, run_interleaved
from benchmarks.random_llama import LLAMA_1B, MIXTURE, TINY, make_gguf, make_model
from benchmarks.suite import openvino_genai, vllm_cpu
from benchmarks.suite.aiomlc_engine import AiomlcContestant
from benchmarks.suite.contestant import Contestant, Setup, UnavailableError
from benchmarks.suite.llamacpp import LlamaCppContestant, gguf_type
from benchmarks.suite.machine import MachineLimits, best_limits, build_probe, measure_limits
from benchmarks.suite.plan import Row, select
from benchmarks.suite.plot import check_plotting, draw
from benchmarks.suite.process import find_tool
from benchmarks.suite.results import Result, as_json, as_markdown
from benchmarks.suite.shares import read_costs, share_of_limit

_RIVALS = ("llama.cpp", "openvino", "vllm")
_PLOT = Path("docs/performance.svg")


def main() -> None:
    arguments = _arguments()
    try:
        if arguments.plot is not None:
            check_plotting()
        _measure(arguments)
    except UnavailableError as error:
        raise SystemExit(f"error: {error}") from error


def _measure(arguments: argparse.Namespace) -> None:
    arguments.work.mkdir(parents=True, exist_ok=True)
    probe = build_probe(arguments.work)
    model = _make_model(arguments)
    limits: list[MachineLimits] = []
    measured: list[tuple[Row, dict[str, list[Sample]]]] = []
    with ExitStack() as stack:
        contestants = _open_contestants(arguments, model, stack)
        for row in arguments.rows:
            print(row.title, file=sys.stderr)
            limits.append(measure_limits(probe, arguments.threads))
            measured.append((row, _samples(row, contestants, arguments.rounds)))

    names = [contestant.name for contestant in contestants]
    costs = read_costs(model, arguments.quantization, arguments.kv_cache_dtype)
    machine = best_limits(limits)
    results = [
        Result(row, samples, share_of_limit(row, _median(samples[names[0]]), costs, machine))
        for row, samples in measured
    ]
    facts = {
        "machine": processor(),
        "model": model.name,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "costs": asdict(costs),
    }
    _write(arguments, results, names, as_json(results, names, limits, facts))


def _make_model(arguments: argparse.Namespace) -> Path:
    shape, name = LLAMA_1B, "llama-1b"
    if arguments.tiny:
        shape, name = TINY, "llama-tiny"
    elif arguments.experts:
        shape, name = MIXTURE, "mixture"
    model: Path = arguments.work / name
    make_model(model, shape)
    return model


def _open_contestants(
    arguments: argparse.Namespace, model: Path, stack: ExitStack
) -> list[Contestant]:
    """Ours first. A rival in Python takes part where it is installed, or when it was named."""
    setup = Setup(model, arguments.threads, arguments.quantization, arguments.kv_cache_dtype)
    wanted = arguments.contestants
    contestants: list[Contestant] = []

    def add(contestant: Contestant) -> None:
        stack.callback(contestant.close)
        contestants.append(contestant)

    add(AiomlcContestant(setup))
    if "llama.cpp" in wanted:
        add(_open_llamacpp(arguments, setup))
    if "openvino" in wanted:
        add(openvino_genai.make_contestant(setup, arguments.openvino_python))
    if "vllm" in wanted:
        add(vllm_cpu.make_contestant(setup, arguments.vllm_python))
    return contestants


def _open_llamacpp(arguments: argparse.Namespace, setup: Setup) -> LlamaCppContestant:
    source, binaries = arguments.llama_source, arguments.llama_bin
    if not (source / "convert_hf_to_gguf.py").is_file():
        raise UnavailableError(f"{source / 'convert_hf_to_gguf.py'} is missing")

    find_tool(binaries, "llama-quantize")
    gguf = make_gguf(setup.model, source, binaries, gguf_type(setup.quantization))
    return LlamaCppContestant(setup, binaries, gguf)


def _samples(row: Row, contestants: Sequence[Contestant], rounds: int) -> dict[str, list[Sample]]:
    meters = {
        contestant.name: partial(meter, row.size)
        for contestant in contestants
        if (meter := contestant.meters().get(row.kind)) is not None
    }
    return run_interleaved(meters, rounds)


def _median(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.value for sample in samples)


def _write(
    arguments: argparse.Namespace,
    results: Sequence[Result],
    names: Sequence[str],
    record: dict[str, object],
) -> None:
    table = as_markdown(results, names)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "results.md").write_text(table, encoding="utf-8")
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (arguments.output / "results.json").write_text(text, encoding="utf-8")
    if arguments.plot is not None:
        draw(results, names, arguments.plot)
    print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--llama-bin", type=Path, help="the folder of llama-bench")
    parser.add_argument("--llama-source", type=Path, help="where convert_hf_to_gguf.py is")
    for rival in ("openvino", "vllm"):
        parser.add_argument(f"--{rival}-python", type=Path, help="where it is installed; else here")
    parser.add_argument("--work", type=Path, default=Path("build/bench"), help="what is made")
    parser.add_argument("--output", type=Path, help="for results.md and .json; --work otherwise")
    parser.add_argument("--plot", type=Path, default=_PLOT, help=f"{_PLOT} otherwise")
    parser.add_argument("--no-plot", dest="plot", action="store_const", const=None)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of measures")
    parser.add_argument("--contestants", nargs="*", choices=_RIVALS, help="beside aiomlc")
    parser.add_argument("--quantization", choices=tuple(QUANTIZATIONS), default="q4f16_1")
    parser.add_argument("--kv-cache-dtype", choices=get_args(KVCacheType), default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--tiny", action="store_true", help="a small model, to try the suite")
    model.add_argument("--experts", action="store_true", help="a mixture of experts of 1.7 B")
    arguments = parser.parse_args()
    try:
        arguments.rows = select(arguments.only)
    except ValueError as error:
        parser.error(str(error))

    here = Path(sys.executable)
    arguments.openvino_python = (arguments.openvino_python or here).absolute()
    arguments.vllm_python = (arguments.vllm_python or here).absolute()
    if arguments.contestants is None:
        arguments.contestants = ["llama.cpp", *_installed(arguments)]
    needs_llama = "llama.cpp" in arguments.contestants
    if needs_llama and None in (arguments.llama_bin, arguments.llama_source):
        parser.error("llama.cpp needs --llama-bin and --llama-source")

    arguments.work = arguments.work.resolve()
    arguments.output = arguments.output or arguments.work
    return arguments


def _installed(arguments: argparse.Namespace) -> list[str]:
    rivals = {
        "openvino": openvino_genai.is_installed(arguments.openvino_python),
        "vllm": vllm_cpu.is_installed(arguments.vllm_python),
    }
    return [name for name, is_installed in rivals.items() if is_installed]


if __name__ == "__main__":
    main()
