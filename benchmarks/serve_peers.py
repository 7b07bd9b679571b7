"""HTTP servers of one model under the same loads: aiomlc, llama.cpp and vLLM's CPU build.

    python -m benchmarks.serve_peers --model build/llama_1b --rates 0.25 0.5 1 \\
        [--llama-cpp llama.cpp/build/bin --llama-cpp-source llama.cpp] [--vllm-python PATH]

Each server is started with the same number of threads, warmed, measured and ended before the next
one starts. A load of `aiomlc bench`, in a process of its own, sends streamed chats at random
moments (Poisson) at each rate; the prompts and the moments are the same for all servers. Prints
requests per second, and p50 and p99 of the time to the first token and between tokens. The model is
made if it does not exist: `benchmarks/random_llama.py`, with 1 billion random weights. aiomlc and
llama.cpp get 4 bits, vLLM 8 bits, of which it has kernels for CPUs.
"""

from __future__ import annotations

__all__ = ("main",)

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.peer_servers import ServerSizes, add_server_options, servers
from benchmarks.server_process import running

_SIZES = ServerSizes(context=4096, sequences=32)


def main() -> None:
    """Measure the servers, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_server_options(parser)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.25, 0.5, 1.0])
    parser.add_argument("--requests", type=int, default=40, help="at each rate")
    parser.add_argument("--prompt-words", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    arguments = parser.parse_args()
    print(f"{'':12}{'rate':>6}{'requests/s':>12}{'tokens/s':>10}", end="")
    print("".join(f"{name:>14}" for name in ("first p50", "first p99", "between p50", "p99")), "ms")
    for server in servers(arguments, _SIZES):
        with running(server) as port:
            _load(port, arguments, number=4, rate=0, seed=0)  # Warms it.
            # A prefix cache must not find the prompts of the load before.
            for seed, rate in enumerate(arguments.rates, start=1):
                figures = _load(port, arguments, arguments.requests, rate, seed)
                _print_row(server.name, rate, figures)


def _load(
    port: int, arguments: argparse.Namespace, number: int, rate: float, seed: int
) -> dict[str, Any]:
    """Return the figures of a load, in which no request may fail."""
    command = [sys.executable, "-m", "aiomlc", "bench", "model", "--json", "--fixed-length"]
    command += ["--url", f"http://127.0.0.1:{port}/v1", "--number", str(number)]
    command += ["--rate", str(rate), "--prompt-words", str(arguments.prompt_words)]
    command += ["--max-tokens", str(arguments.tokens), "--seed", str(seed)]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    figures: dict[str, Any] = json.loads(result.stdout)
    return figures


def _print_row(name: str, rate: float, figures: Mapping[str, Any]) -> None:
    times = [
        figures[kind][percent]
        for kind in ("first_token_ms", "between_tokens_ms")
        for percent in ("p50", "p99")
    ]
    print(f"{name:12}{rate:6.2f}{figures['requests_per_second']:12.2f}", end="")
    print(f"{figures['completion_tokens_per_second']:10.1f}", end="")
    print("".join(f"{'-' if value is None else f'{value:.1f}':>14}" for value in times), flush=True)


if __name__ == "__main__":
    main()
