"""The HTTP servers that are measured beside one another, on the same model."""

from __future__ import annotations

__all__ = ("ServerSizes", "add_server_options", "servers")

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.random_llama import make_gguf, make_model
from benchmarks.server_process import Server
from benchmarks.suite.peers.vllm_cpu import is_installed, quantize, server_environment
from benchmarks.suite.process import find_tool


@dataclass(frozen=True, slots=True)
class ServerSizes:
    """What each server reserves memory for."""

    context: int  #: Tokens of a sequence.
    sequences: int  #: At once.


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `servers` reads."""
    parser.add_argument("--model", type=Path, required=True, help="directory of the model")
    parser.add_argument("--quantization", default="q4f16_1", help="of aiomlc")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-cpp", type=Path, help="directory with llama-server")
    parser.add_argument("--llama-cpp-source", type=Path, help="for its converter")
    parser.add_argument("--gguf", type=Path, help="the model for llama-server, if it exists")
    parser.add_argument("--vllm-python", type=Path, help="the Python that has vllm")


def servers(arguments: argparse.Namespace, sizes: ServerSizes) -> Iterator[Server]:
    """Yield aiomlc and the selected peers; the model is made if it does not exist."""
    if not (arguments.model / "tokenizer.json").is_file():
        make_model(arguments.model)

    yield _aiomlc(arguments, sizes)
    if arguments.llama_cpp is not None:
        yield _llama_cpp(arguments, sizes)

    if arguments.vllm_python is not None:
        yield _vllm(arguments, sizes)


def _aiomlc(arguments: argparse.Namespace, sizes: ServerSizes) -> Server:
    overrides = ";".join(
        (
            f"max_num_sequence={sizes.sequences}",
            f"max_single_sequence_length={sizes.context}",
            f"num_threads={arguments.threads}",
        )
    )
    command = [sys.executable, "-m", "aiomlc", "serve", str(arguments.model), "--port", "{port}"]
    command += ["--overrides", overrides, "--no-access-log", "--served-model-name", "model"]
    if not (arguments.model / "mlc-chat-config.json").is_file():  # These say their own.
        command += ["--quantization", arguments.quantization]

    return Server("aiomlc", tuple(command))


def _llama_cpp(arguments: argparse.Namespace, sizes: ServerSizes) -> Server:
    gguf = arguments.gguf
    if gguf is None:
        if arguments.llama_cpp_source is None:
            raise SystemExit("--llama-cpp needs --gguf, or --llama-cpp-source to make one")

        source = arguments.llama_cpp_source
        gguf = make_gguf(arguments.model, source, arguments.llama_cpp, "q4_0")

    command = (
        *(str(find_tool(arguments.llama_cpp, "llama-server")), "-m", str(gguf)),
        *("--port", "{port}", "-t", str(arguments.threads), "-tb", str(arguments.threads)),
        *(
            "-np",
            str(sizes.sequences),
            "-c",
            str(sizes.sequences * sizes.context),
            "--ignore-eos",
            "--jinja",
        ),
    )
    return Server("llama.cpp", command)


def _vllm(arguments: argparse.Namespace, sizes: ServerSizes) -> Server:
    python = arguments.vllm_python
    if not is_installed(python):
        raise SystemExit(f"{python} does not have the package vllm")

    command = (
        *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(quantize(arguments.model, python)), "--served-model-name", "model"),
        *("--port", "{port}", "--host", "127.0.0.1", "--dtype", "bfloat16"),
        *("--max-model-len", str(sizes.context), "--max-num-seqs", str(sizes.sequences)),
    )
    return Server("vLLM", command, server_environment(python, arguments.threads))
