"""Tests of the exception hierarchy and of construction by native code."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aiomlc
from aiomlc import errors
from aiomlc.integrations.frameworks import framework


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
        "max_single_sequence_length if the model allows more"
    )


def test_load_errors_have_the_path_tensor_and_field() -> None:
    error = errors.CompileError("bad", path="a", tensor="b", field="c")

    assert isinstance(error, errors.ModelLoadError)
    assert (error.path, error.tensor, error.field) == ("a", "b", "c")


ERRORS = [
    errors.BadRequestError("no", param="a"),
    errors.DeadlineExceededError("r", limit="timeout", seconds=2.0),
    errors.DuplicateRequestError("r"),
    errors.EngineClosedError(),
    errors.IncompleteAnswerError("no", text="{"),
    errors.InputTooLongError(index=1, num_tokens=3, max_tokens=2),
    errors.LogitsProcessorError("r"),
    errors.MissingPackageError("openai", "pip install openai"),
    errors.ModelAccessError("no", repository="a/b", status=401),
    errors.ModelNotFoundError("no", path=Path("a"), field="b"),
    errors.PrefixTransferError("no", field="digest"),
    errors.PromptTooLongError(prompt_tokens=4, context_window=2),
    errors.RemoteServerError("no", url="http://a", status=500),
    errors.ReplicaLostError(has_output=True),
    errors.RequestAbortedError("r"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_errors_can_be_copied_and_pickled(
    duplicate: Callable[[Any], Any], error: errors.AiomlcError
) -> None:
    other = duplicate(error)

    assert type(other) is type(error)
    assert str(other) == str(error)
    assert other.args == error.args
    assert vars(other) == vars(error)
    for name in ("errno", "name"):
        assert getattr(other, name, None) == getattr(error, name, None)


def test_every_error_that_takes_more_than_a_message_is_copied() -> None:
    copied = {type(error) for error in ERRORS}
    for name in errors.__all__:
        error_type = getattr(errors, name)
        if "__init__" in vars(error_type):
            assert any(issubclass(kind, error_type) for kind in copied), name


@pytest.mark.parametrize(
    ("package", "name", "message"),
    [
        ("no_such_package", "x", "the package no_such_package is missing: pip install 'aiomlc[x]'"),
        ("json", "nothing", "the installed version of json does not fit (cannot import name"),
        ("json.nothing", "x", "the installed version of json does not fit (No module named"),
    ],
)
def test_a_framework_that_is_missing_or_too_old_is_named_with_the_command(
    package: str, name: str, message: str
) -> None:
    with pytest.raises(errors.MissingPackageError) as caught, framework(package.split(".")[0], "x"):
        exec(f"from {package} import {name}")

    assert str(caught.value).startswith(message)
    assert "'aiomlc[x]'" in str(caught.value)
    assert caught.value.name == package.split(".")[0]
