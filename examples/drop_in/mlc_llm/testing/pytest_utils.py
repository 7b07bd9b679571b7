"""Decorators of tests that need a model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlc_llm.support.constants import MLC_TEST_MODEL_PATH


def require_test_model(*models: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Pass the paths of models to a test, which is skipped if one of them does not exist.

    Args:
        models: Directories, below one of the paths in `MLC_LLM_TEST_MODEL_PATH`.
    """
    found = {model: _find(model) for model in models}
    missing = [model for model, path in found.items() if path is None]
    reason = f"{', '.join(missing)} not found in {', '.join(map(str, MLC_TEST_MODEL_PATH))}"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        bound = functools.partial(test, *(str(path) for path in found.values()))
        # pytest takes the remaining parameters of a partial function for fixtures.
        functools.update_wrapper(bound, test)
        del bound.__wrapped__
        return pytest.mark.skipif(bool(missing), reason=reason)(_as_function(bound, test))

    return decorate


require_test_tokenizers = require_test_model


def _as_function(bound: Callable[..., Any], test: Callable[..., Any]) -> Callable[..., Any]:
    import inspect

    if inspect.iscoroutinefunction(test):

        @functools.wraps(bound)
        async def run_async(*args: Any, **kwargs: Any) -> None:
            await bound(*args, **kwargs)

        return run_async

    @functools.wraps(bound)
    def run(*args: Any, **kwargs: Any) -> None:
        bound(*args, **kwargs)

    return run


def _find(model: str) -> Path | None:
    candidates = [*(base / model for base in MLC_TEST_MODEL_PATH), Path(model)]
    return next((path for path in candidates if (path / "mlc-chat-config.json").is_file()), None)
