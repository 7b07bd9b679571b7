"""Cost of a grammar per token, and its savings by forced tokens.

python -m benchmarks.constrained --model MODEL [--batch 16]

Decoding: every choice is an endless list of records, compared with unconstrained text.
Forced tokens: one completion of a schema with long keys, compared with unconstrained text.
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
    """Return the tokens per second of one request, including prefill of its short prompt."""
    start = time.perf_counter()
    completion = engine.chat.completions.create(
        messages=[{"role": "user", "content": "def"}],
        n=choices,
        max_tokens=tokens,
        temperature=1.0,
        seed=1,
        **options,
    )
    assert completion.usage is not None
    return float(completion.usage.completion_tokens / (time.perf_counter() - start))


def main() -> None:
    arguments = _parse_arguments()
    config = EngineConfig(num_threads=arguments.threads, prefix_cache_mode="disable")
    with MLCEngine(arguments.model, mode="server", engine_config=config) as engine:
        batch = partial(rate, engine, arguments.batch, arguments.tokens)
        variants = {
            "constrained": partial(batch, response_format=_RECORDS),
            "free": partial(batch, ignore_eos=True),
        }
        for measure in variants.values():
            measure()
        title = f"Decoding, {arguments.batch} choices of {arguments.tokens} tokens"
        samples = run_interleaved(variants, arguments.rounds)
        report(title, "tokens/s", samples, model=str(arguments.model))

        variants = {
            "schema of long keys": partial(rate, engine, 1, 200, response_format=_LONG_KEYS),
            "free": partial(rate, engine, 1, 40, ignore_eos=True),
        }
        samples = run_interleaved(variants, arguments.rounds)
        report("Forced tokens, one choice", "tokens/s", samples, model=str(arguments.model))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=None, help="default: the bundled model")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
