from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread  # noqa: TID251 - Nothing here has an event loop.

import pytest
from playwright.sync_api import Browser

from tests.browser import run_chromium
from tests.docs.pages import ROOT


# Not of the session: Playwright's event loop must have ended when other tests start theirs.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with run_chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site; skipped first without a browser."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder


class _SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="package")
def origin(site: Path) -> Iterator[str]:
    """Serve the site."""
    handler = partial(_SilentHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
