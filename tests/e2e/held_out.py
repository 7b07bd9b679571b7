"""Accuracy of the bundled model on held-out prompts.

`python -m tests.e2e.held_out [CASES]` prints the fraction of exact answers per skill, with the
shipped quantization and at temperature 0. A story is correct if it ends by itself and names its
characters.
"""

from __future__ import annotations

__all__ = ("Case", "read_cases", "score")

import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from anyio import CapacityLimiter, create_task_group

from aiomlc.config import EngineConfig
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.open_decoder import load_model
from aiomlc.sampling_params import SequenceOptions
from tests.e2e.programs import ROOT

Case = Mapping[str, Any]

_FILE = ROOT / "training" / "heldout" / "heldout.jsonl.gz"
_MAX_TOKENS = 480


def read_cases(per_skill: int) -> dict[str, list[Case]]:
    """Return the first `per_skill` cases of every skill."""
    cases: dict[str, list[Case]] = defaultdict(list)
    for line in gzip.decompress(_FILE.read_bytes()).decode().splitlines():
        case = json.loads(line)
        if len(cases[case["skill"]]) < per_skill:
            cases[case["skill"]].append(case)
    return cases


async def score(
    cases: Mapping[str, Sequence[Case]], config: EngineConfig | None = None
) -> dict[str, float]:
    """Return the fraction of correct answers per skill, from 0 to 1."""
    model = await load_model(
        None,
        device="auto",
        mode="local",
        engine_config=config or EngineConfig(),
        on_progress=None,
    )
    num_correct: dict[str, int] = dict.fromkeys(cases, 0)
    limiter = CapacityLimiter(64)

    async def run_case(engine: EngineClient, skill: str, case: Case) -> None:
        async with limiter:
            text, finish_reason = await _complete(engine, model, case)
        num_correct[skill] += _is_correct(case, text, finish_reason)

    async with EngineClient(model.core) as engine, create_task_group() as tasks:
        for skill, skill_cases in cases.items():
            for case in skill_cases:
                tasks.start_soon(run_case, engine, skill, case)
    return {skill: num_correct[skill] / len(skill_cases) for skill, skill_cases in cases.items()}


async def _complete(engine: EngineClient, model: LoadedModel, case: Case) -> tuple[str, str | None]:
    # Bypass the chat API, which parses tool calls out of the text.
    assert model.chat_template is not None
    prompt = model.chat_template.render(case["messages"], tools=case.get("tools"))
    options = SequenceOptions(
        max_tokens=_MAX_TOKENS, temperature=0, stop_token_ids=model.stop_token_ids
    )
    text = ""
    finish_reason = None
    async with engine.open_stream(Prompt(model.tokenizer.encode(prompt)), options) as stream:
        async for delta in stream:
            text += delta.text
            finish_reason = delta.finish_reason
    return text, finish_reason


def _is_correct(case: Case, text: str, finish_reason: str | None) -> bool:
    if finish_reason != "stop":
        return False

    if "characters" in case:
        return all(name in text for name in case["characters"])

    return text in case["accept"]


def main() -> None:
    cases = read_cases(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    for skill, fraction in sorted(anyio.run(score, cases).items()):
        sys.stdout.write(f"{skill:12s} {100 * fraction:5.1f} %\n")


if __name__ == "__main__":
    main()
