from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT
from tests.e2e.serve_process import ServerProcess, run_server


@pytest.fixture(autouse=True, scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a temporary cache directory."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AIOMLC_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of the bundled model."""
    with run_server(tmp_path_factory.mktemp("server")) as process:
        yield process


@pytest.fixture(autouse=True)
def without_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write plain text, in lines of the usual width."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
