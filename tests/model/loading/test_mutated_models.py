"""A mutated model directory gives a typed error that names a file, or an answer.

Batches run in processes with limits of memory and time. `AIOMLC_EXAMPLES=1500` tries that many.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.model.loading.mutated_process import outcome
from tests.model.loading.mutations import BASES, write_bases

_NUM_EXAMPLES = int(os.environ.get("AIOMLC_EXAMPLES", "150"))
_FIRST_SEED = int(os.environ.get("AIOMLC_SEED", "0"))
_BATCH = 30
_SECONDS = 900  # For a batch, on a busy machine.
_MAX_MEGABYTES = 500

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 30 * _NUM_EXAMPLES)]


@pytest.fixture(scope="module")
def bases(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bases")
    write_bases(root)
    return root


def _run_batch(bases: Path, first: int, count: int) -> list[dict[str, Any]]:
    """Return the lines that the process of one batch writes."""
    command = [sys.executable, "-m", "tests.model.loading.mutated_process"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RUST_BACKTRACE": "0"}
    done = subprocess.run(
        [*command, str(bases), str(first), str(count)],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        env=environment,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"ended at {lines[-1:]}: {done.stderr[-2000:]}"
    return lines


def _batches() -> Iterator[tuple[int, int]]:
    for first in range(_FIRST_SEED, _FIRST_SEED + _NUM_EXAMPLES, _BATCH):
        yield first, min(_BATCH, _FIRST_SEED + _NUM_EXAMPLES - first)


def _is_failure(line: dict[str, Any], answer: object) -> bool:
    return bool(line.get("problem") or (line["is_harmless"] and line.get("answer") != answer))


def test_a_mutated_model_is_refused_by_name_or_answers(bases: Path) -> None:
    answers = {base: outcome(bases / base, base)["answer"] for base in BASES}
    lines = [line for batch in _batches() for line in _run_batch(bases, *batch)]
    mutations = {line["seed"]: line for line in lines if "mutation" in line}
    results = [line for line in lines if "is_harmless" in line]

    failures = [
        (mutations[line["seed"]], line)
        for line in results
        if _is_failure(line, answers[mutations[line["seed"]]["base"]])
    ]
    assert failures == []
    megabytes = max(line.get("megabytes", 0) for line in lines)
    assert megabytes < _MAX_MEGABYTES
    tally = Counter(line.get("error", "answer").split(":")[0] for line in results)
    print(dict(tally), f"{megabytes} MB")  # noqa: T201 - shown by `pytest -s`.
    assert sum(tally.values()) == _NUM_EXAMPLES
    assert tally["answer"] > _NUM_EXAMPLES // 20
    assert tally["ModelLoadError"] > _NUM_EXAMPLES // 4
