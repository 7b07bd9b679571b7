"""A mutated model gives a typed error that names the file and the tensor, or an answer.

Batches run in processes with limits of memory and time. `AIOMLC_EXAMPLES=2000` tries that many of
each kind, and `make mutations-sanitize` does so with the native library built with sanitizers.
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

_NUM_EXAMPLES = {"directories": 60, "safetensors": 40, "gguf": 40, "gguf headers": 300}
_FIRST_SEED = int(os.environ.get("AIOMLC_SEED", "0"))
_BATCH = {"directories": 30, "safetensors": 100, "gguf": 100, "gguf headers": 300}
_SECONDS = 3600  # For a batch, with sanitizers on a busy machine.
_MAX_MEGABYTES = 500
# Where the sanitizer of addresses is loaded, no single allocation may be larger.
_ASAN_OPTIONS = "max_allocation_size_mb=300:quarantine_size_mb=16"


def _num_examples(kind: str) -> int:
    return int(os.environ.get("AIOMLC_EXAMPLES", _NUM_EXAMPLES[kind]))


pytestmark = [
    pytest.mark.sampled(kind=["gguf headers"]),
    pytest.mark.timeout(60 + 30 * max(_num_examples(k) for k in BASES)),
]


@pytest.fixture(scope="module")
def bases(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bases")
    write_bases(root)
    return root


def _run_batch(bases: Path, kind: str, first: int, count: int) -> list[dict[str, Any]]:
    """Return the lines that the process of one batch writes."""
    command = [sys.executable, "-m", "tests.model.loading.mutated_process"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "RUST_BACKTRACE": "0",
        "ASAN_OPTIONS": ":".join((os.environ.get("ASAN_OPTIONS", ""), _ASAN_OPTIONS)),
    }
    done = subprocess.run(
        [*command, str(bases), kind, str(first), str(count)],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        env=environment,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"ended at {lines[-1:]}: {done.stderr[-2000:]}"
    return lines


def _batches(kind: str) -> Iterator[tuple[int, int]]:
    end, size = _FIRST_SEED + _num_examples(kind), _BATCH[kind]
    for first in range(_FIRST_SEED, end, size):
        yield first, min(size, end - first)


def _is_failure(line: dict[str, Any], answer: object) -> bool:
    return bool(line.get("problem") or (line["is_harmless"] and line.get("answer") != answer))


@pytest.mark.parametrize("kind", BASES)
def test_a_mutated_model_is_refused_by_name_or_answers(bases: Path, kind: str) -> None:
    lines = [line for batch in _batches(kind) for line in _run_batch(bases, kind, *batch)]
    mutations = {line["seed"]: line for line in lines if "mutation" in line}
    results = [line for line in lines if "is_harmless" in line]
    changed = {mutations[line["seed"]]["base"] for line in results if line["is_harmless"]}
    answers = {base: outcome(bases / base, base, kind)["answer"] for base in changed}

    failures = [
        "\n".join(map(str, (mutations[line["seed"]], line)))
        for line in results
        if _is_failure(line, answers.get(mutations[line["seed"]]["base"]))
    ]
    assert not failures, f"{len(failures)}, of which the first:\n" + "\n".join(failures[:20])
    megabytes = max(line["megabytes"] for line in results)
    assert megabytes < _MAX_MEGABYTES
    tally = Counter(line.get("error", "answer").split(":")[0] for line in results)
    growth = max(line["growth"] for line in results)
    print(kind, dict(tally), f"{megabytes} MB, {growth} MB for a model")  # noqa: T201 - for `-s`.
    assert sum(tally.values()) == _num_examples(kind)
    assert tally["answer"] > _num_examples(kind) // 20
    assert tally["ModelLoadError"] > _num_examples(kind) // 4
