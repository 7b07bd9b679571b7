"""aiomlc in a fresh process: nothing is imported that a user's program would not."""

from __future__ import annotations

__all__ = ("answer_once",)

from collections.abc import Callable

from aiomlc import EngineConfig, MLCEngine
from benchmarks.suite.contestant import Setup

_TOKENS = 32


def answer_once(setup: Setup, ready: Callable[[], None]) -> None:
    """Open the model, call `ready` and answer."""
    config = EngineConfig(quantization=setup.quantization, num_threads=setup.threads)
    with MLCEngine(setup.model, engine_config=config) as engine:
        ready()
        answer = engine.chat.completions.create(
            messages=[{"role": "user", "content": "def"}], max_tokens=_TOKENS, temperature=0
        )

    if answer.usage is None or answer.usage.completion_tokens < _TOKENS:
        raise SystemExit(f"the answer ended early: {answer.usage}")
