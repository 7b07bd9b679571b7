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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.random_llama import make_gguf, make_model
from benchmarks.server_process import Server, running
from benchmarks.suite.process import find_tool
from benchmarks.suite.vllm_cpu import is_installed, quantize, server_environment

_CONTEXT = 4096  # Tokens of a sequence.
_BATCH = 32  # Sequences at once.


def main() -> None:
    """Measure the servers, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="directory of the model")
    parser.add_argument("--quantization", default="q4f16_1", help="of aiomlc")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.25, 0.5, 1.0])
    parser.add_argument("--requests", type=int, default=40, help="at each rate")
    parser.add_argument("--prompt-words", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    parser.add_argument("--llama-cpp", type=Path, help="directory with llama-server")
    parser.add_argument("--llama-cpp-source", type=Path, help="for its converter")
    parser.add_argument("--gguf", type=Path, help="the model for llama-server, if it exists")
    parser.add_argument("--vllm-python", type=Path, help="the Python that has vllm")
    arguments = parser.parse_args()
    if not (arguments.model / "tokenizer.json").is_file():
        make_model(arguments.model)

    print(f"{'':12}{'rate':>6}{'requests/s':>12}{'tokens/s':>10}", end="")
    print("".join(f"{name:>14}" for name in ("first p50", "first p99", "between p50", "p99")), "ms")
    for server in _servers(arguments):
        with running(server) as port:
            _load(port, arguments, number=4, rate=0, seed=0)  # Warms it.
            # A prefix cache must not find the prompts of the load before.
            for seed, rate in enumerate(arguments.rates, start=1):
                figures = _load(port, arguments, arguments.requests, rate, seed)
                _print_row(server.name, rate, figures)


def _servers(arguments: argparse.Namespace) -> Iterator[Server]:
    yield _aiomlc(arguments)
    if arguments.llama_cpp is not None:
        yield _llama_cpp(arguments)

    if arguments.vllm_python is not None:
        yield _vllm(arguments)


def _aiomlc(arguments: argparse.Namespace) -> Server:
    overrides = f"max_num_sequence={_BATCH};num_threads={arguments.threads}"
    command = [sys.executable, "-m", "aiomlc", "serve", str(arguments.model), "--port", "{port}"]
    command += ["--overrides", overrides, "--no-access-log", "--served-model-name", "model"]
    if not (arguments.model / "mlc-chat-config.json").is_file():  # These say their own.
        command += ["--quantization", arguments.quantization]

    return Server("aiomlc", tuple(command))


def _llama_cpp(arguments: argparse.Namespace) -> Server:
    gguf = arguments.gguf
    if gguf is None:
        if arguments.llama_cpp_source is None:
            raise SystemExit("--llama-cpp needs --gguf, or --llama-cpp-source to make one")

        source = arguments.llama_cpp_source
        gguf = make_gguf(arguments.model, source, arguments.llama_cpp, "q4_0")

    command = (
        *(str(find_tool(arguments.llama_cpp, "llama-server")), "-m", str(gguf)),
        *("--port", "{port}", "-t", str(arguments.threads), "-tb", str(arguments.threads)),
        *("-np", str(_BATCH), "-c", str(_BATCH * _CONTEXT), "--ignore-eos", "--jinja"),
    )
    return Server("llama.cpp", command)


def _vllm(arguments: argparse.Namespace) -> Server:
    python = arguments.vllm_python
    if not is_installed(python):
        raise SystemExit(f"{python} does not have the package vllm")

    command = (
        *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(quantize(arguments.model, python)), "--served-model-name", "model"),
        *("--port", "{port}", "--host", "127.0.0.1", "--dtype", "bfloat16"),
        *("--max-model-len", str(_CONTEXT), "--max-num-seqs", str(_BATCH)),
    )
    return Server("vLLM", command, server_environment(python, arguments.threads))


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
