"""Whichever call of the system fails: the answer or a typed error, and nothing is broken after it.

As SQLite is tested: the k-th call of a kind fails, for each k. What was interrupted is then run
again and must succeed. `AIOMLC_FAILING_CALLS=0` lets all calls fail, in minutes; another number
that many of each kind.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aiomlc import MLCEngine
from tests.model.faults.failing_process import CONFIG, SCENARIOS
from tests.model.tiny_models import write_model

_SAMPLES = os.environ.get("AIOMLC_FAILING_CALLS", "1")
_COMPILER = shutil.which("cc")
_IS_SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(_COMPILER is None or _IS_SANITIZED, reason="needs a compiler"),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a model, its cache and the library that lets calls fail."""
    root = tmp_path_factory.mktemp("faults")
    write_model(root / "model", "llama")
    source = Path(__file__).with_name("failing_calls.c")
    command = [str(_COMPILER), "-O1", "-shared", "-fPIC", str(source), "-ldl"]
    subprocess.run([*command, "-o", str(root / "failing.so")], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIOMLC_HOME", str(root / "home"))
        with MLCEngine(root / "model", engine_config=CONFIG):
            pass
    return root


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_call_that_fails_gives_the_answer_or_a_typed_error(base: Path, scenario: str) -> None:
    command = [sys.executable, "-m", "tests.model.faults.failing_process"]
    done = subprocess.run(
        [*command, str(base), scenario, _SAMPLES],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LD_PRELOAD": str(base / "failing.so"),
        },
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"ended at {lines[-1:]}: {done.stderr[-3000:]}"

    calls, outcomes = lines[::2], lines[1::2]
    failures = [
        f"{call}: {outcome}"
        for call, outcome in zip(calls, outcomes, strict=True)
        if outcome["problem"] is not None
    ]
    assert not failures, "\n".join(failures)
    assert {call["kind"] for call in calls} <= set(SCENARIOS[scenario].kinds)
    assert any(outcome["error"] for outcome in outcomes)
