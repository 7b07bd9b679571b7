"""vLLM's CPU build, with the model's own bfloat16 weights, in this process."""

from __future__ import annotations

__all__ = ("answer_once", "is_installed", "make_contestant")

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence

from benchmarks.suite.contestant import Setup, UnavailableError
from benchmarks.suite.offline import Generate, OfflineContestant

_MAX_TOKENS = 8192


def is_installed() -> bool:
    return importlib.util.find_spec("vllm") is not None


def make_contestant(setup: Setup) -> OfflineContestant:
    """Raises `UnavailableError` where the package is missing."""
    if not is_installed():
        raise UnavailableError("vllm is not installed")

    return OfflineContestant("vllm", "vLLM bf16", setup, _open)


def answer_once(setup: Setup, ready: Callable[[], None]) -> None:
    """Open the model, call `ready` and answer."""
    generate = _open(setup)
    ready()
    generate([[300, 301, 302]], 32)


def _open(setup: Setup) -> Generate:
    # Read when vllm is imported.
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{setup.threads - 1}"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name, value in (
        ("VLLM_CPU_KVCACHE_SPACE", "2"),
        ("VLLM_NO_USAGE_STATS", "1"),
        ("VLLM_LOGGING_LEVEL", "WARNING"),
    ):
        os.environ.setdefault(name, value)

    vllm = importlib.import_module("vllm")
    engine = vllm.LLM(
        model=str(setup.model),
        dtype="bfloat16",
        max_model_len=_MAX_TOKENS,
        enable_prefix_caching=False,
        seed=0,
    )

    def generate(prompts: Sequence[Sequence[int]], tokens: int) -> None:
        sampling = vllm.SamplingParams(
            temperature=0, max_tokens=tokens, min_tokens=tokens, ignore_eos=True, detokenize=False
        )
        inputs = [{"prompt_token_ids": list(ids)} for ids in prompts]
        engine.generate(inputs, sampling, use_tqdm=False)

    return generate
