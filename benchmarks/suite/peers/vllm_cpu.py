"""vLLM's CPU build, with 8-bit weights and activations, or with the model's bfloat16 weights."""

from __future__ import annotations

__all__ = (
    "is_installed",
    "make_peer",
    "open_checkpoint",
    "open_engine",
    "quantize",
    "server_environment",
)

import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.suite.measured_engine import Setup, UnavailableError
from benchmarks.suite.peers.generate import Generate
from benchmarks.suite.peers.offline_peer import OfflinePeer, PeerProgram
from benchmarks.suite.peers.peer_process import has_package

_MAX_TOKENS = 16_384
_MAX_BATCH = 32
# Libraries that vLLM's documentation recommends to preload, where they exist.
_PRELOADS = ("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",)
_OPENMP = "libiomp5.so"


def is_installed(python: Path) -> bool:
    return has_package(python, "vllm")


def make_peer(setup: Setup, python: Path) -> OfflinePeer:
    """Quantize the model where the setup asks for 4 bits, and start vLLM.

    Raises:
        UnavailableError: If vllm is missing.
    """
    if not is_installed(python):
        raise UnavailableError(f"{python} does not have the package vllm")

    model, name = setup.model, "vLLM bf16"
    if setup.quantization == "q4f16_1":
        model, name = quantize(setup.model, python), "vLLM W8A8"
    return open_checkpoint(name, model, setup, python)


def open_checkpoint(name: str, model: Path, setup: Setup, python: Path) -> OfflinePeer:
    """Start vLLM with a checkpoint as it is."""
    environment = server_environment(python, setup.threads)
    return OfflinePeer(name, PeerProgram("vllm", python, model, setup.threads, environment))


def open_engine(model: Path, threads: int) -> Generate:
    """Open the model in the peer's process; the environment sets the number of threads.

    The returned function raises `RuntimeError` if an output has another length than requested.
    """
    vllm = importlib.import_module("vllm")
    engine = vllm.LLM(
        model=str(model),
        dtype="bfloat16",
        max_model_len=_MAX_TOKENS,
        max_num_seqs=_MAX_BATCH,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
        seed=0,
    )

    def generate(prompts: Sequence[Sequence[int]], tokens: int) -> None:
        sampling = vllm.SamplingParams(
            temperature=0, max_tokens=tokens, min_tokens=tokens, ignore_eos=True, detokenize=False
        )
        inputs = [{"prompt_token_ids": list(ids)} for ids in prompts]
        results = engine.generate(inputs, sampling, use_tqdm=False)
        lengths = {len(result.outputs[0].token_ids) for result in results}
        if lengths != {tokens}:
            raise RuntimeError(f"expected outputs of {tokens} tokens, got lengths {lengths}")

    return generate


def server_environment(python: Path, threads: int) -> dict[str, str]:
    """Return the environment variables of vLLM on a number of threads."""
    preloads = [path for path in _PRELOADS if Path(path).is_file()]
    openmp = python.parents[1] / "lib" / _OPENMP
    if openmp.is_file():
        preloads.append(str(openmp))

    return {
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "HF_HUB_OFFLINE": "1",
        "LD_PRELOAD": ":".join([*preloads, *filter(None, [os.environ.get("LD_PRELOAD")])]),
    }


def quantize(model: Path, python: Path) -> Path:
    """Quantize the model once, and return the directory of the result."""
    directory = model.with_name(f"{model.name}-w8a8")
    if not (directory / "model.safetensors").is_file():
        script = Path(__file__).with_name("w8a8.py")
        subprocess.run([python, script, model, directory], check=True, stdout=sys.stderr)

    return directory
