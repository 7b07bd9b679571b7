"""Measure aiomlc and llama.cpp, and the other peers where they are installed.

python -m benchmarks.suite --llama-bin BUILD/bin --llama-source LLAMA.CPP --ik-bin BUILD/bin
    --openvino-python VENV/bin/python --onnxruntime-python VENV/bin/python
    --vllm-python VENV/bin/python
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import get_args

from aiomlc.compiler.quantization import QUANTIZATIONS
from aiomlc.config import KVCacheType
from benchmarks.interleaved import Sample, processor, run_interleaved
from benchmarks.random_llama import LLAMA_1B, MIXTURE, TINY, make_gguf, make_model
from benchmarks.suite.aiomlc_engine import AiomlcEngine
from benchmarks.suite.machine import MachineLimits, build_probe, measure_limits
from benchmarks.suite.measured_engine import MeasuredEngine, Setup, UnavailableError
from benchmarks.suite.peers import onnxruntime_genai, openvino_genai, vllm_cpu
from benchmarks.suite.peers.ik_llamacpp import IkLlamaCppPeer
from benchmarks.suite.peers.llamacpp import LlamaCppPeer, gguf_type
from benchmarks.suite.plan import Row, select
from benchmarks.suite.plot import check_plotting, draw
from benchmarks.suite.process import find_tool
from benchmarks.suite.results import Result, as_json, as_markdown
from benchmarks.suite.utilization import ModelCosts, fraction_of_limit, read_costs

Opener = Callable[[argparse.Namespace, Setup], MeasuredEngine]

_PYTHON_PEERS = {"openvino": openvino_genai, "onnxruntime": onnxruntime_genai, "vllm": vllm_cpu}
_PLOT = Path("docs/performance.svg")


def main() -> None:
    arguments = _parse_arguments()
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
    measured: list[tuple[Row, dict[str, list[Sample]], list[MachineLimits]]] = []
    with ExitStack() as stack:
        engines = _open_engines(arguments, model, stack)
        for row in arguments.rows:
            print(row.title, file=sys.stderr)
            limits: list[MachineLimits] = []
            meters = _meters(row, engines)
            measure = partial(_measure_limits, probe, arguments.threads, limits)
            measured.append((row, run_interleaved(meters, arguments.rounds, measure), limits))

    names = [engine.name for engine in engines]
    costs = read_costs(model, arguments.quantization, arguments.kv_cache_dtype)
    results = [
        Result(row, samples, limits, _fractions(row, samples[names[0]], costs, limits))
        for row, samples, limits in measured
    ]
    facts = {
        "machine": processor(),
        "model": model.name,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "costs": asdict(costs),
    }
    _write(arguments, results, names, as_json(results, names, facts))


def _make_model(arguments: argparse.Namespace) -> Path:
    shape, name = LLAMA_1B, "llama-1b"
    if arguments.tiny:
        shape, name = TINY, "llama-tiny"
    elif arguments.experts:
        shape, name = MIXTURE, "mixture"
    model: Path = arguments.work / name
    make_model(model, shape)
    return model


def _open_engines(
    arguments: argparse.Namespace, model: Path, stack: ExitStack
) -> list[MeasuredEngine]:
    """Open aiomlc, which comes first, and the selected peers; `stack` closes them."""
    setup = Setup(model, arguments.threads, arguments.quantization, arguments.kv_cache_dtype)
    engines: list[MeasuredEngine] = []

    def add(engine: MeasuredEngine) -> None:
        stack.callback(engine.close)
        engines.append(engine)

    add(AiomlcEngine(setup))
    for name, open_peer in _OPENERS.items():
        if name in arguments.peers:
            add(open_peer(arguments, setup))
    return engines


def _open_llamacpp(arguments: argparse.Namespace, setup: Setup) -> LlamaCppPeer:
    kind = gguf_type(setup.quantization)
    return LlamaCppPeer(setup, arguments.llama_bin, _gguf(arguments, setup, kind), kind)


def _open_ik_llamacpp(arguments: argparse.Namespace, setup: Setup) -> IkLlamaCppPeer:
    kind = gguf_type(setup.quantization)
    return IkLlamaCppPeer(setup, arguments.ik_bin, _gguf(arguments, setup, kind), kind)


def _gguf(arguments: argparse.Namespace, setup: Setup, kind: str) -> Path:
    source, binaries = arguments.llama_source, arguments.llama_bin
    if not (source / "convert_hf_to_gguf.py").is_file():
        raise UnavailableError(f"{source / 'convert_hf_to_gguf.py'} is missing")

    find_tool(binaries, "llama-quantize")
    return make_gguf(setup.model, source, binaries, kind)


def _open_python_peer(name: str, arguments: argparse.Namespace, setup: Setup) -> MeasuredEngine:
    peer: MeasuredEngine = _PYTHON_PEERS[name].make_peer(setup, _python_of(arguments, name))
    return peer


def _python_of(arguments: argparse.Namespace, name: str) -> Path:
    python: Path = getattr(arguments, f"{name}_python") or Path(sys.executable)
    return python.absolute()


_OPENERS: Mapping[str, Opener] = {
    "llama.cpp": _open_llamacpp,
    "ik_llama.cpp": _open_ik_llamacpp,
    **{name: partial(_open_python_peer, name) for name in _PYTHON_PEERS},
}


def _meters(row: Row, engines: Sequence[MeasuredEngine]) -> dict[str, Callable[[], float]]:
    return {
        engine.name: partial(meter, row.size)
        for engine in engines
        if (meter := engine.meters().get(row.kind)) is not None
    }


def _measure_limits(probe: Path, threads: int, limits: list[MachineLimits]) -> None:
    """Add the limits of this minute: the memory is slower while other guests use it."""
    limits.append(measure_limits(probe, threads))


def _fractions(
    row: Row, samples: Sequence[Sample], costs: ModelCosts, limits: Sequence[MachineLimits]
) -> list[float]:
    """Return the fraction of the limit in each round; nothing for rows without a limit."""
    fractions = [
        fraction_of_limit(row, sample.value, costs, limit)
        for sample, limit in zip(samples, limits, strict=True)
    ]
    return [fraction for fraction in fractions if fraction is not None]


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


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--llama-bin", type=Path, help="directory that contains llama-bench")
    parser.add_argument(
        "--llama-source", type=Path, help="directory that contains convert_hf_to_gguf.py"
    )
    parser.add_argument("--ik-bin", type=Path, help="directory of ik_llama.cpp's llama-bench")
    for peer in _PYTHON_PEERS:
        parser.add_argument(
            f"--{peer}-python",
            type=Path,
            help=f"interpreter that has {peer} installed (default: this one)",
        )
    parser.add_argument(
        "--work", type=Path, default=Path("build/bench"), help="directory of the models"
    )
    parser.add_argument(
        "--output", type=Path, help="directory of results.md and results.json (default: --work)"
    )
    parser.add_argument("--plot", type=Path, default=_PLOT, help=f"default: {_PLOT}")
    parser.add_argument("--no-plot", dest="plot", action="store_const", const=None)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="names or kinds of rows to measure"
    )
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=tuple(_OPENERS),
        help="default: llama.cpp and all that are installed",
    )
    parser.add_argument("--quantization", choices=tuple(QUANTIZATIONS), default="q4f16_1")
    parser.add_argument("--kv-cache-dtype", choices=get_args(KVCacheType), default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--tiny", action="store_true", help="a small model, to try the suite")
    model.add_argument(
        "--experts", action="store_true", help="a mixture of experts with 1.7 B parameters"
    )
    arguments = parser.parse_args()
    try:
        arguments.rows = select(arguments.only)
    except ValueError as error:
        parser.error(str(error))

    if arguments.peers is None:
        arguments.peers = ["llama.cpp", *_installed_peers(arguments)]
    _check_programs(arguments, parser)
    arguments.work = arguments.work.resolve()
    arguments.output = arguments.output or arguments.work
    return arguments


def _installed_peers(arguments: argparse.Namespace) -> list[str]:
    built = ["ik_llama.cpp"] if arguments.ik_bin is not None else []
    installed = (
        name
        for name, module in _PYTHON_PEERS.items()
        if module.is_installed(_python_of(arguments, name))
    )
    return [*built, *installed]


def _check_programs(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Require the options of the selected peers; both make their GGUF file with llama.cpp."""
    has_llama = None not in (arguments.llama_bin, arguments.llama_source)
    for name in ("llama.cpp", "ik_llama.cpp"):
        if name in arguments.peers and not has_llama:
            parser.error(f"{name} needs --llama-bin and --llama-source")

    if "ik_llama.cpp" in arguments.peers and arguments.ik_bin is None:
        parser.error("ik_llama.cpp needs --ik-bin")


if __name__ == "__main__":
    main()
