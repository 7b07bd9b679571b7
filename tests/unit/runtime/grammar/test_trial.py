"""Tests of `Trial`: grammars that may be costly are compiled in a limited process."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from anyio import create_task_group, fail_after, to_thread
from anyio.lowlevel import checkpoint

from aiomlc.errors import GrammarError, RequestFailedError
from aiomlc.runtime.grammar import trial as trial_module
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar, lark_json
from aiomlc.runtime.grammar.trial import Trial, may_be_costly

pytestmark = pytest.mark.timeout(60)
PATTERNS = {"allOf": [{"type": "string", "pattern": f".*{i}x.*"} for i in range(30)]}
CHEAP = [
    json_grammar({"type": "object", "properties": {"name": {"type": "string"}}}),
    json_grammar({"type": "string", "pattern": "[a-z]{1,100}", "maxLength": 100}),
    json_grammar({"description": "Größe & Preis ~ 3"}),
    Grammar("regex", "[0-9]{3}-[0-9]{4}|&~"),
    Grammar("lark", f'start: "a" {lark_json({"type": "object", "description": "Größe"})}'),
]
COSTLY = [
    json_grammar({"type": "integer", "multipleOf": 2}),
    json_grammar({"properties": {"a": {"allOf": [{}]}}}),
    json_grammar({"patternProperties": {"a": {}}}),
    json_grammar({"properties": {str(i): {"pattern": "a"} for i in range(4)}}),
    json_grammar({"enum": ["x" * 9_000]}),
    json_grammar({"anyOf": [{"anyOf": [{}]}] * 51}),
    Grammar("regex", "x{20000}"),
    Grammar("regex", "(x{200}){200}"),
    Grammar("regex", "x{99999999999999999999}"),
    Grammar("lark", "start: A\nA: /a/ & /b/"),
    Grammar("lark", "start: A\nA: ~/a/"),
    Grammar("lark", 'start: %json {"all\\u004ff": []}'),
]


@pytest.mark.parametrize("grammar", CHEAP)
def test_a_cheap_grammar_needs_no_process(
    grammar: Grammar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(subprocess, "Popen")

    assert not may_be_costly(grammar)
    assert Trial(grammar).run() > 0


@pytest.mark.parametrize("grammar", COSTLY)
def test_a_grammar_that_may_be_costly_needs_a_trial(grammar: Grammar) -> None:
    assert Trial(grammar).is_needed


@pytest.mark.parametrize("grammar", [*COSTLY[:5], *COSTLY[7:]])
def test_the_trial_passes_if_the_compilation_is_quick(grammar: Grammar) -> None:
    assert 0 < Trial(grammar).run() < 64 << 20


@pytest.mark.parametrize(
    "source", ["not JSON &", "{", "\ud800 &", "&" * 100_000, "{" * 100_000, "\0 & \0"]
)
@pytest.mark.parametrize("kind", ["json_schema", "regex", "lark", "llguidance"])
def test_the_trial_of_an_invalid_grammar_passes(kind: Any, source: str) -> None:  # noqa: ANN401
    Trial(Grammar(kind, source)).run()


@pytest.mark.parametrize("kind", ["json_schema", "lark"])
def test_a_compilation_beyond_the_limits_is_refused(kind: str) -> None:
    lark = Grammar("lark", f"start: {lark_json(PATTERNS)}")
    grammar = lark if kind == "lark" else json_grammar(PATTERNS)

    with pytest.raises(
        GrammarError, match="too complex: compiling it takes more than 1 s or 64 MB"
    ):
        Trial(grammar).run()


async def test_cancelling_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "CPU_SECONDS", 1000.0)
    monkeypatch.setattr(trial_module, "MEMORY_BYTES", 1 << 33)
    processes: list[subprocess.Popen[bytes]] = []
    trial = Trial(json_grammar({"type": "integer", "multipleOf": 7_436_429}))
    start = subprocess.Popen

    def record(*args: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
        processes.append(start(*args, **options))
        return processes[-1]

    async def run() -> None:
        with pytest.raises(RequestFailedError, match="cancelled"):
            await to_thread.run_sync(trial.run)

    monkeypatch.setattr(subprocess, "Popen", record)
    with fail_after(30):
        async with create_task_group() as tasks:
            tasks.start_soon(run)
            while not processes:
                await checkpoint()
            trial.cancel()

    assert processes[0].returncode is not None


def test_a_cancelled_trial_does_not_start() -> None:
    trial = Trial(json_grammar(PATTERNS))
    trial.cancel()

    with pytest.raises(RequestFailedError, match="cancelled"):
        trial.run()


@pytest.mark.parametrize("executable", ["/missing", "/bin/true"])
def test_a_process_that_cannot_start_is_no_fault_of_the_grammar(
    executable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", executable)

    with pytest.raises(RequestFailedError, match="cannot start"):
        Trial(json_grammar(json.loads('{"multipleOf": 3}'))).run()
