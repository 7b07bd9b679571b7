"""What does a grammar cost per token, and what does it spare?

python -m benchmarks.constrained --model MODEL [--batch 16]

Decoding: every choice is a list of records that never ends; then text that nothing constrains.
Jumping: an answer to a schema of long keys, against as many tokens of free text, one choice each.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

from aiomlc import EngineConfig, MLCEngine
from benchmarks.interleaved import report, run_interleaved

_KEYS = ("the_name_is_known", "the_age_in_years_is_known", "was_born_in_summer", "is_married_now")
_RECORDS = {
    "type": "json_object",
    "schema": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name", "age"],
        },
        "minItems": 999,
    },
}
_LONG_KEYS = {
    "type": "json_object",
    "schema": {
        "type": "object",
        "properties": {key: {"type": "boolean"} for key in _KEYS},
        "required": list(_KEYS),
        "additionalProperties": False,
    },
}


def rate(engine: MLCEngine, choices: int, tokens: int, **options: Any) -> float:  # noqa: ANN401
    """Tokens per second of one request, its short prompt included."""
    begin = time.perf_counter()
    answer = engine.chat.completions.create(
        messages=[{"role": "user", "content": "def"}],
        n=choices,
        max_tokens=tokens,
        temperature=1.0,
        seed=1,
        **options,
    )
    assert answer.usage is not None
    return float(answer.usage.completion_tokens / (time.perf_counter() - begin))


def main() -> None:
    arguments = _arguments()
    config = EngineConfig(num_threads=arguments.threads, prefix_cache_mode="disable")
    with MLCEngine(arguments.model, mode="server", engine_config=config) as engine:
        batch = partial(rate, engine, arguments.batch, arguments.tokens)
        contestants = {
            "constrained": partial(batch, response_format=_RECORDS),
            "free": partial(batch, ignore_eos=True),
        }
        for measure in contestants.values():
            measure()
        title = f"Decoding, {arguments.batch} choices of {arguments.tokens} tokens"
        samples = run_interleaved(contestants, arguments.rounds)
        report(title, "tokens/s", samples, model=str(arguments.model))

        jumps = {
            "schema of long keys": partial(rate, engine, 1, 200, response_format=_LONG_KEYS),
            "free": partial(rate, engine, 1, 40, ignore_eos=True),
        }
        samples = run_interleaved(jumps, arguments.rounds)
        report("Forced text, one choice", "tokens/s", samples, model=str(arguments.model))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=None, help="default: the bundled model")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
