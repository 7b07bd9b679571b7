"""The browser of the tests: Debian's chromium, driven by Playwright."""

from __future__ import annotations

__all__ = ("run_chromium",)

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

_CHROMIUM = shutil.which("chromium")


@contextmanager
def run_chromium() -> Iterator[Browser]:
    """Run the browser; without one, the test is skipped."""
    if _CHROMIUM is None:
        pytest.skip("chromium is not installed: apt install chromium")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
