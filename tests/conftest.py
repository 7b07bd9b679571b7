"""Fixtures of all tests; every async test runs on asyncio and trio."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

# The tests run beside each other, so that more threads of NumPy or torch only wait for processors.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from tests.interruption import WAKE_UP, notice_wake_up

pytest_plugins = ("pytester", "tests.plugins.selection", "tests.plugins.cpu_seconds")


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Make Ctrl-C work even if the tests run as a background job, which ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    before_wake_up = signal.signal(WAKE_UP, notice_wake_up)
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(WAKE_UP, before_wake_up)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend
