"""One completion by aiomlc, importing only what a user's program would."""

from __future__ import annotations

__all__ = ("answer_once",)

from collections.abc import Callable

from aiomlc import EngineConfig, MLCEngine
from benchmarks.suite.measured_engine import Setup

_TOKENS = 32


def answer_once(setup: Setup, on_ready: Callable[[], None]) -> None:
    """Open the model, call `on_ready` and generate one completion."""
    config = EngineConfig(quantization=setup.path_quantization, num_threads=setup.threads)
    with MLCEngine(setup.path, engine_config=config) as engine:
        on_ready()
        completion = engine.chat.completions.create(
            messages=[{"role": "user", "content": "def"}], max_tokens=_TOKENS, temperature=0
        )

    if completion.usage is None or completion.usage.completion_tokens < _TOKENS:
        raise SystemExit(f"expected {_TOKENS} completion tokens, got usage {completion.usage}")
