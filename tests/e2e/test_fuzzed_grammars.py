"""Random and hostile grammars: each gives a completion or a typed error, within limits.

`AIOMLC_EXAMPLES=3000` tries that many, which takes some minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, fail_after, move_on_after

from aiomlc import AsyncMLCEngine, GrammarError

_NUM_EXAMPLES = int(os.environ.get("AIOMLC_EXAMPLES", "120"))
_MEMORY = 400 << 20  # Of which the cache of compiled grammars may take 256 MB.
_ALLOWED = {"stop", "length", "GrammarError", "RequestFailedError"}
_TOO_MANY_VALUES = "BadRequestError: response_format: must have at most"


@pytest.mark.thorough
@pytest.mark.timeout(120 + _NUM_EXAMPLES)
def test_random_grammars_are_enforced_or_refused() -> None:
    command = [sys.executable, "-m", "tests.e2e.grammar_process", "0"]
    process = subprocess.run(
        [*command, str(_NUM_EXAMPLES), str(_MEMORY)], capture_output=True, text=True, check=False
    )
    outcomes = [json.loads(line) for line in process.stdout.splitlines()]

    unexpected = [
        outcome
        for outcome in outcomes
        if outcome["outcome"] not in _ALLOWED
        and not outcome["outcome"].startswith(_TOO_MANY_VALUES)
    ]
    assert not unexpected
    assert len(outcomes) == _NUM_EXAMPLES, (outcomes[-1:], process.stderr[-2000:])
    assert {"stop", "length", "GrammarError"} <= {outcome["outcome"] for outcome in outcomes}


def _patterns(count: int) -> dict[str, Any]:
    members = [{"type": "string", "pattern": f".*{chr(97 + i % 26)}{i}.*"} for i in range(count)]
    return {"allOf": members}


_NODE = {"$ref": "#/$defs/node"}
SCHEMAS = {
    "multiple of a prime": ({"type": "integer", "multipleOf": 7_436_429}, "too complex"),
    "multiple of a day": ({"type": "integer", "multipleOf": 86_400_000}, "too complex"),
    "multiple of 999999": ({"type": "integer", "multipleOf": 999_999}, "too complex"),
    "multiple of 5e9": ({"type": "integer", "multipleOf": 5_000_000_000}, "multipleOf: must be"),
    "16 patterns": (_patterns(16), "too complex"),
    "18 patterns": (_patterns(18), "too complex"),
    "30 patterns": (_patterns(30), "too complex"),
    "itself": ({"$ref": "#"}, "is circular"),
    "a node": ({**_NODE, "$defs": {"node": _NODE}}, "is circular"),
    "a node in a property": (
        {"type": "object", "properties": {"a": _NODE}, "$defs": {"node": _NODE}},
        "is circular",
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
async def test_costly_and_circular_schemas_are_refused(name: str) -> None:
    schema, message = SCHEMAS[name]
    await _assert_refused(
        {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, message
    )


@pytest.mark.parametrize(
    ("syntax", "definition", "message"),
    [
        ("regex", "x{1000000}", "too complex"),
        ("regex", "x{100000}", "32768 bytes of text at once"),
        ("regex", "(x{1000}){1000}", "too complex"),
        ("lark", "start: start", "is circular"),
        ("lark", "start: a\na: b\nb: a", "is circular"),
        ("lark", "start: A\nA: /x/ & /y.*/", "contradicts itself"),
    ],
)
async def test_costly_and_circular_grammars_are_refused(
    syntax: str, definition: str, message: str
) -> None:
    response_format = {"type": "grammar", "syntax": syntax, "definition": definition}
    await _assert_refused(response_format, message)


async def test_10000_structural_tags_are_refused() -> None:
    structures = [
        {"begin": f"<{i}>", "schema": {"type": "integer"}, "end": f"</{i}>"} for i in range(10_000)
    ]
    triggers = [tag["begin"] for tag in structures]
    await _assert_refused(
        {"type": "structural_tag", "structures": structures, "triggers": triggers}, "must|too"
    )


async def _assert_refused(response_format: dict[str, Any], message: str) -> None:
    async with AsyncMLCEngine() as engine:
        with pytest.raises(ValueError, match=message) as caught:
            await engine.completions.create(
                prompt="The", max_tokens=4, response_format=response_format
            )

    assert "panic" not in str(caught.value)


def _num_threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


async def test_abandoned_compilations_leave_no_threads_and_delay_no_grammar() -> None:
    async with AsyncMLCEngine() as engine:
        await engine.completions.create(prompt="The", max_tokens=1)
        num_threads = _num_threads()

        async def ask_briefly(divisor: int) -> None:
            with move_on_after(0.05):
                schema = {"type": "integer", "multipleOf": divisor}
                await engine.completions.create(
                    prompt="The",
                    max_tokens=1,
                    response_format={"type": "json_object", "schema": schema},
                )

        with fail_after(60):
            async with create_task_group() as tasks:
                for i in range(100):
                    tasks.start_soon(ask_briefly, 7_436_429 + 2 * i)

            assert _num_threads() <= num_threads + 8
            with pytest.raises(GrammarError, match="circular"):
                await engine.completions.create(
                    prompt="The",
                    max_tokens=1,
                    response_format={"type": "json_object", "schema": {"$ref": "#"}},
                )
