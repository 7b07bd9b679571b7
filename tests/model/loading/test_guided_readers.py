"""Readers of untrusted files read or refuse what `guided_readers` kept, and mutations of it."""

from __future__ import annotations

import os
import random

import pytest

from tests.model.loading.guided_readers import (
    TARGETS,
    Target,
    load_corpus,
    mutated,
    targets_in,
    trial,
)

_NUM_EXAMPLES = int(os.environ.get("AIOMLC_EXAMPLES", "60"))
_SEED = int(os.environ.get("AIOMLC_SEED", "0"))


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return targets_in(tmp_path_factory.mktemp("readers"))


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_files_are_refused_by_name_or_read(name: str, targets: dict[str, Target]) -> None:
    kept, rng, target = load_corpus()[name], random.Random(_SEED), targets[name]
    assert kept
    new = [mutated(rng.choice(kept), target, rng) for _ in range(_NUM_EXAMPLES)]

    target.read(target.base)
    problems = [(edits, problem) for edits in (*kept, *new) if (problem := trial(target, edits))]
    assert problems == []
