"""Fixtures of all tests; every async test runs on asyncio and trio."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

# The tests run beside each other, so that more threads of NumPy or torch only wait for processors.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Make Ctrl-C work even if the tests run as a background job, which ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run each set of other parameters on one event loop, in turn, where tests take long."""
    backends_of: dict[tuple[str, ...], dict[str, pytest.Item]] = {}
    sets_of: dict[str, list[tuple[str, ...]]] = {}
    for item in items:
        if not isinstance(item, pytest.Function) or not {"e2e", "model"} & {*item.path.parts}:
            continue

        name = item.nodeid.partition("[")[0]
        params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        backend = str(params.pop("anyio_backend", ""))
        if backend and params:
            key = (name, *item.callspec.id.replace(backend, "", 1).split("-"))
            if key not in backends_of:
                sets_of.setdefault(name, []).append(key)
            backends_of.setdefault(key, {})[backend] = item

    left_out = set()
    for keys in sets_of.values():
        for index, key in enumerate(keys):
            backends = backends_of[key]
            if len(keys) > 1 and len(backends) > 1:
                left_out.add(backends[("asyncio", "trio")[index % 2]])

    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend
