from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import run_chromium
from tests.e2e.playground.open_page import open_page

ROOT = Path(__file__).parents[3]


# Not of the session: Playwright's event loop must have ended when other tests start theirs.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with run_chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def origin(browser: Browser, bundled_model: Path) -> Iterator[str]:
    """Return the origin of a server of the bundled model; skipped first without a browser."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.playground.server"],
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


@pytest.fixture
def page(browser: Browser, origin: str) -> Iterator[Page]:
    with open_page(browser, origin) as page:
        yield page
