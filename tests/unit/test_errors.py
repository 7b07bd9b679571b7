"""The error tree, and how native code builds its members."""

from __future__ import annotations

import pytest

import aiomlc
from aiomlc import errors


def test_every_error_is_exported_and_in_one_of_three_branches() -> None:
    branches = (errors.RequestError, errors.EngineError, errors.ModelLoadError)

    for name in set(errors.__all__) - {"AiomlcError"}:
        assert issubclass(getattr(errors, name), branches)
        assert getattr(aiomlc, name) is getattr(errors, name)


@pytest.mark.parametrize(
    "name",
    [
        "BadRequestError",
        "PromptTooLongError",
        "EngineClosedError",
        "EngineDeadError",
        "ModelLoadError",
    ],
)
def test_what_native_code_raises_is_built_from_its_message(name: str) -> None:
    error = getattr(errors, name)("the message")

    assert str(error) == "the message"


def test_a_long_prompt_says_both_counts() -> None:
    error = errors.PromptTooLongError(prompt_tokens=40, context_window=16)

    assert str(error) == "prompt has 40 tokens, context window is 16"


def test_load_errors_carry_what_is_at_fault() -> None:
    error = errors.CompileError("bad", path="a", tensor="b", field="c")

    assert isinstance(error, errors.ModelLoadError)
    assert (error.path, error.tensor, error.field) == ("a", "b", "c")
