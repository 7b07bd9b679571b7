"""Tests of the exception hierarchy and of construction by native code."""

from __future__ import annotations

import pytest

import aiomlc
from aiomlc import errors


def test_every_error_is_exported_and_belongs_to_a_branch() -> None:
    branches = (
        errors.RequestError,
        errors.EngineError,
        errors.MissingPackageError,
        errors.ModelLoadError,
    )

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
def test_errors_raised_by_native_code_are_constructed_from_the_message(name: str) -> None:
    error = getattr(errors, name)("the message")

    assert str(error) == "the message"


def test_prompt_too_long_error_reports_both_lengths() -> None:
    error = errors.PromptTooLongError(prompt_tokens=40, context_window=16)

    assert str(error) == (
        "prompt has 40 tokens, context window is 16; shorten it by at least 25 tokens, or raise "
        "max_single_sequence_length up to the model's maximum"
    )


def test_load_errors_have_the_path_tensor_and_field() -> None:
    error = errors.CompileError("bad", path="a", tensor="b", field="c")

    assert isinstance(error, errors.ModelLoadError)
    assert (error.path, error.tensor, error.field) == ("a", "b", "c")
