"""Embedded pieces of a prompt that cross the FFI: every wrong field is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.prompt import Prompt, PromptPiece
from aiomlc.runtime.native.core import EngineOptions, NativeCore
from aiomlc.runtime.native.model import NativeModel
from aiomlc.sampling_params import SequenceOptions

DIGEST = bytes(range(32))
HIDDEN = 64
ROWS = np.zeros((2, HIDDEN), np.float32)


@pytest.fixture
def core(open_tiny: Callable[..., NativeModel]) -> Iterator[NativeCore]:
    model = open_tiny("llama", "q0f32")
    core = NativeCore(model, [b"."] * model.vocab_size, EngineOptions())
    yield core
    core.close()
    core.release()


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (
            PromptPiece(1, DIGEST, np.zeros((2, 8), np.float32)),
            rf"prompt\.pieces\[0\]\.rows must have {HIDDEN} floats per position, got 8",
        ),
        (PromptPiece(1, DIGEST, ROWS, (1, 1, 2)), r"prompt\.pieces\[0\]\.grid must be absent"),
        (PromptPiece(1, DIGEST, ROWS, (0, 0, 0)), r"prompt\.pieces\[0\]\.grid must have a size"),
        (PromptPiece(1, DIGEST[1:], ROWS), r"prompt\.pieces\[0\]\.digest must have 32 bytes"),
        (PromptPiece(1, DIGEST, ROWS[0]), r"prompt\.pieces\[0\]\.rows must be a contiguous"),
        (PromptPiece(1, DIGEST, ROWS.T), r"prompt\.pieces\[0\]\.rows must be a contiguous"),
        (
            PromptPiece(1, DIGEST, np.zeros((2, 8), np.float64)),
            r"prompt\.pieces\[0\]\.rows must be a contiguous float32",
        ),
    ],
)
def test_embedded_pieces_are_refused_by_field(
    core: NativeCore, piece: PromptPiece, message: str
) -> None:
    with pytest.raises(BadRequestError, match=message):
        core.submit(Prompt([1, 0, 0], [piece]), SequenceOptions())

    assert not core.step()


def test_a_refused_prompt_does_not_change_the_next(core: NativeCore) -> None:
    def generate() -> tuple[Any, ...]:
        core.submit(Prompt([1, 0, 0]), SequenceOptions(max_tokens=4, temperature=0.0))
        while core.step():
            pass
        (record,) = core.drain()
        return tuple(record.token_ids)

    expected = generate()
    with pytest.raises(BadRequestError):
        core.submit(Prompt([1, 0, 0], [PromptPiece(2, DIGEST, ROWS)]), SequenceOptions())

    assert len(expected) == 4
    assert generate() == expected
