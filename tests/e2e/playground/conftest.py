from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import run_chromium
from tests.e2e.playground.open_page import open_page
from tests.model.tiny_vision import write_vision_model

ROOT = Path(__file__).parents[3]


# Not of the session: Playwright's event loop must have ended when other tests start theirs.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with run_chromium() as browser:
        yield browser


@contextmanager
def serve(*arguments: str) -> Iterator[str]:
    """Run a server, and yield its origin."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.playground.server", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        origin = f"http://127.0.0.1:{int(server.stdout.readline())}"
        with urlopen(f"{origin}/health", timeout=100):  # Once the model is open.
            pass

        yield origin
        server.terminate()


@pytest.fixture(scope="package")
def origin(browser: Browser, bundled_model: Path) -> Iterator[str]:
    """Return the origin of a server of the bundled model; skipped first without a browser."""
    with serve() as origin:
        yield origin


@pytest.fixture(scope="package")
def image_reader(
    browser: Browser, bundled_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the origin of a server of a tiny LLaVA."""
    with serve(str(write_vision_model(tmp_path_factory.mktemp("llava"), "llava"))) as origin:
        yield origin


@pytest.fixture
def page(browser: Browser, origin: str) -> Iterator[Page]:
    with open_page(browser, origin) as page:
        yield page
