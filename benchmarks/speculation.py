"""Decode rate with speculative decoding, compared with plain decoding.

    python -m benchmarks.speculation
    python -m benchmarks.speculation --task story
    python -m benchmarks.speculation --mode small_draft --model target/ --draft draft/

The task `copy` repeats text of the prompt, where prompt lookup should help; `story` generates new
text, where it should cost nothing. The rate is the number of completion tokens divided by the time
of the decode steps as the core counts it, or with `--clock cpu` by the CPU time of the process.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import anyio

from aiomlc import AsyncMLCEngine, EngineConfig
from benchmarks.interleaved import report, run_interleaved

_LINE = "The fox and the crow met by the river, and Rosa gave them bread. "
_TASKS = {
    "copy": f"Repeat this text word for word: {3 * _LINE}",
    "story": "Tell me a story about a fox called Rosa.",
}


async def complete(engine: AsyncMLCEngine, arguments: argparse.Namespace, seed: int) -> None:
    """Generate one completion of the given number of tokens."""
    await engine.chat.completions.create(
        messages=[{"role": "user", "content": _TASKS[arguments.task]}],
        max_tokens=arguments.tokens,
        min_tokens=arguments.tokens,
        temperature=arguments.temperature,
        seed=seed,
    )


async def measure(arguments: argparse.Namespace, fields: dict[str, Any]) -> float:
    """Return the completion tokens per second."""
    config = EngineConfig(num_threads=arguments.threads, **fields)
    async with AsyncMLCEngine(arguments.model, engine_config=config) as engine:
        await complete(engine, arguments, 0)
        before, cpu_start = engine.statistics(), time.process_time()
        async with anyio.create_task_group() as tasks:
            for seed in range(arguments.streams):
                tasks.start_soon(complete, engine, arguments, seed)

        after, cpu_seconds = engine.statistics(), time.process_time() - cpu_start

    tokens = after.completion_tokens - before.completion_tokens
    core_seconds = after.decode_seconds - before.decode_seconds
    return tokens / (cpu_seconds if arguments.clock == "cpu" else core_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--task", choices=tuple(_TASKS), default="copy")
    parser.add_argument("--mode", choices=("prompt_lookup", "small_draft"), default="prompt_lookup")
    parser.add_argument("--model")
    parser.add_argument("--draft", help="directory of the draft model, for small_draft")
    parser.add_argument("--draft-length", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=("core", "cpu"), default="core")
    arguments = parser.parse_args()
    speculative: dict[str, Any] = {
        "speculative_mode": arguments.mode,
        "spec_draft_length": arguments.draft_length,
    }
    if arguments.draft is not None:
        speculative["additional_models"] = (arguments.draft,)

    samples = run_interleaved(
        {
            name: partial(anyio.run, partial(measure, arguments, fields))
            for name, fields in ((arguments.mode, speculative), ("plain", {}))
        },
        arguments.rounds,
    )
    report(
        f"Decode rate, task {arguments.task}, {arguments.streams} streams",
        "tokens/s",
        samples,
        **vars(arguments),
    )


if __name__ == "__main__":
    main()
