"""Decode rate of an engine while another process competes for a processor.

python -m benchmarks.cpu_contention --model MODEL [--llama-bin BUILD/bin --gguf FILE]

The other process spins in a separate session, as another user's program would.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aiomlc import EngineConfig, MLCEngine
from benchmarks.interleaved import report, run_interleaved
from benchmarks.suite.process import find_tool

_STARTUP_SECONDS = 0.3


@contextmanager
def spinning_process() -> Iterator[None]:
    """Run a process that never yields its processor."""
    command = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            time.sleep(_STARTUP_SECONDS)
            yield
        finally:
            process.kill()


def decode_aiomlc(engine: MLCEngine, tokens: int) -> float:
    """Return the tokens per second of one completion, from its first token to its last."""
    times = [
        time.perf_counter()
        for _ in engine.chat.completions.create(
            messages=[{"role": "user", "content": "def"}],
            stream=True,
            max_tokens=tokens,
            temperature=0,
            ignore_eos=True,
        )
    ]
    return (tokens - 1) / (times[-1] - times[0])


def decode_llamacpp(bench: Path, gguf: Path, threads: int, tokens: int) -> float:
    """Return the tokens per second that llama-bench reports after its warm-up."""
    options = ["-t", str(threads), "-r", "1", "-o", "json", "-p", "0", "-n", str(tokens)]
    command = [str(bench), "-m", str(gguf), *options]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(result.stdout)[0]["avg_ts"])


def _with_contention(measure: Callable[[], float]) -> float:
    with spinning_process():
        return measure()


def main() -> None:
    arguments = _parse_arguments()
    config = EngineConfig(num_threads=arguments.threads)
    with MLCEngine(arguments.model, mode="interactive", engine_config=config) as engine:
        decode_aiomlc(engine, 16)
        meters = {"aiomlc": partial(decode_aiomlc, engine, arguments.tokens)}
        if arguments.llama_bin is not None:
            bench = find_tool(arguments.llama_bin, "llama-bench")
            meters["llama.cpp"] = partial(
                decode_llamacpp, bench, arguments.gguf, arguments.threads, arguments.tokens
            )
        for name, measure in meters.items():
            variants = {
                f"{name} with a spinning process": partial(_with_contention, measure),
                f"{name} alone": measure,
            }
            samples = run_interleaved(variants, arguments.rounds)
            report(f"Decoding {arguments.tokens} tokens, {name}", "tokens/s", samples)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="model directory (default: the bundled model)")
    parser.add_argument("--llama-bin", type=Path, help="directory that contains llama-bench")
    parser.add_argument("--gguf", type=Path, help="the same model as GGUF, for llama.cpp")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if (arguments.llama_bin is None) != (arguments.gguf is None):
        parser.error("--llama-bin and --gguf must be given together")

    return arguments


if __name__ == "__main__":
    main()
