"""Without the frameworks, their tests are not collected."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.e2e.serve_process import ServerProcess, run_server

if importlib.util.find_spec("litellm") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run on asyncio only, as the frameworks do."""
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of the bundled model."""
    with run_server(tmp_path_factory.mktemp("frameworks")) as process:
        yield process
