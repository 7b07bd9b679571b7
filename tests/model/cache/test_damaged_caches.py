"""Random damage to the cache of a tiny model, after which the model gives the same logits.

`AIOMLC_EXAMPLES=1000` damages it that often, from the seed `AIOMLC_SEED`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from benchmarks.native_model import open_native_model
from tests.model.cache.mutations import mutate

_NUM_EXAMPLES = int(os.environ.get("AIOMLC_EXAMPLES", "20"))
_SEED = int(os.environ.get("AIOMLC_SEED", "1"))


def _logits(model: Path) -> NDArray[np.float32]:
    config = EngineConfig(num_threads=1)
    opened = open_native_model(model, config, "cpu")
    opened.native.add_sequence(0)
    return opened.native.forward([(0, [1, 2, 3, 4, 5])])


def _files(home: Path) -> list[Path]:
    """Return the files below the directories of a cache."""
    return sorted(filter(_is_cached, home.glob("*/**/*")))


def _is_cached(path: Path) -> bool:
    """Return whether a path is a regular file, and not what a mutation has moved away."""
    is_link = path.is_symlink() or path.parent.is_symlink()
    is_moved = not {".copy", ".moved"}.isdisjoint({path.suffix, path.parent.suffix})
    return path.is_file() and not is_link and not is_moved


@pytest.mark.thorough
@pytest.mark.timeout(60 + 20 * _NUM_EXAMPLES)
def test_a_damaged_cache_never_changes_an_answer(
    home: Path, tiny_directory: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_directory("llama")
    expected = _logits(model)
    random = Random(_SEED)
    for example in range(_NUM_EXAMPLES):
        damages = [
            (path.name, mutate(path, random))
            for path in random.sample(_files(home), random.choice((1, 1, 2)))
            if _is_cached(path)
        ]
        caplog.clear()
        with caplog.at_level(logging.WARNING, "aiomlc"):
            logits = _logits(model)
            num_warnings = len(caplog.records)
            again = _logits(model)

        message = f"example {example} of seed {_SEED}: {damages}"
        np.testing.assert_array_equal(logits, expected, err_msg=message)
        np.testing.assert_array_equal(again, expected, err_msg=message)
        assert num_warnings <= len(damages), message
        assert len(caplog.records) == num_warnings, message
