"""Make the pictures of the documentation, by hand: the commands for servers print a port.

    python -m tests.e2e.playground.server
    python -m tests.e2e.playground.pictures http://127.0.0.1:PORT docs/images

On a machine that does nothing else, as the pictures show how fast the model is. Those with images
are of a model that is trained for them:

    python -m tests.e2e.playground.shapes build/shapes
    python -m tests.e2e.playground.server build/shapes
    python -m tests.e2e.playground.pictures http://127.0.0.1:PORT docs/images images
"""

from __future__ import annotations

__all__ = ()

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, FilePayload, Page, expect

from tests.browser import run_chromium
from tests.e2e.playground.open_page import ask, open_page, send, tab
from tests.e2e.playground.server import STALLING
from tests.e2e.playground.shapes import Shape, draw_shape

_DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
_DARK: dict[str, Any] = {**_DESKTOP, "color_scheme": "dark"}
_PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 1.5}
_UNSURE = re.compile(r" [34]\d\.\d %; instead of")
_QUESTION = "What is in this picture?"
_STORY = "Tell me a story about a fox called Rosa."


def _main() -> None:
    origin, directory, *parts = sys.argv[1:]
    with run_chromium() as browser:
        take = _take_images if parts == ["images"] else _take_texts
        take(browser, origin, Path(directory))


def _take_images(browser: Browser, origin: str, directory: Path) -> None:
    shape = Shape("red", "circle", "left")
    with open_page(browser, origin, options=_DESKTOP) as page:
        page.get_by_role("spinbutton", name="Temperature").fill("0")
        _attach(page, shape)
        ask(page, _QUESTION)
        _attach(page, Shape("blue", "triangle", "middle"))
        page.get_by_role("textbox", name="Message", exact=True).fill(_QUESTION)
        page.wait_for_timeout(2500)  # Two looks at the figures of the server.
        page.screenshot(path=directory / "playground-images.png")


def _attach(page: Page, shape: Shape) -> None:
    file = BytesIO()
    draw_shape(shape, 240).save(file, "PNG")
    content: FilePayload = {"name": "a.png", "mimeType": "image/png", "buffer": file.getvalue()}
    page.get_by_label("Image files").set_input_files(content)
    expect(
        page.get_by_role("list", name="Images of the message").get_by_role("img").last
    ).to_be_visible()


def _take_texts(browser: Browser, origin: str, directory: Path) -> None:
    @contextmanager
    def picture(name: str, options: dict[str, Any]) -> Iterator[Page]:
        with _warm_page(browser, origin, options) as page:
            yield page
            page.screenshot(path=directory / f"{name}.png")

    with picture("playground", _DESKTOP) as page:
        page.get_by_label("Show the probabilities of tokens").check()
        ask(page, "Who are you?")
        ask(page, _STORY)
        _show_alternatives(page)
    with picture("playground-dark", _DARK) as page:
        page.get_by_role("spinbutton", name="Temperature").fill("0")
        ask(page, "What is 25 plus 17?")
        ask(page, "What is the capital of Italy?")
        ask(page, _STORY)
    with picture("playground-phone", _PHONE) as page:
        ask(page, "Who are you?")
        ask(page, "What is the capital of France?")
    with picture("playground-tools", _DESKTOP) as page:
        tab(page, "Tools").get_by_role("button", name="Insert an example").click()
        send(page, "What is the weather in Rome?")
        expect(page.get_by_role("button", name="Send result")).to_be_visible()
    # The model is faster than a picture is taken: here, the text stops in the middle.
    with open_page(browser, origin, f"{STALLING}/", _DESKTOP) as page:
        send(page, _STORY)
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
        page.wait_for_timeout(1200)
        page.screenshot(path=directory / "playground-streaming.png")


@contextmanager
def _warm_page(browser: Browser, origin: str, options: dict[str, Any]) -> Iterator[Page]:
    """Open a page on which a first answer has been read and removed."""
    with open_page(browser, origin, options=options) as page:
        ask(page, "Hello!")
        page.get_by_role("button", name="New chat").click()
        page.wait_for_timeout(2500)  # Two looks at the figures of the server.
        yield page
        page.wait_for_timeout(1200)


def _show_alternatives(page: Page) -> None:
    """Focus a token of the last answer of which the model was not sure."""
    tokens = page.get_by_role("toolbar", name="Tokens of the answer").last
    tokens.get_by_role("button", name=_UNSURE).first.focus()


if __name__ == "__main__":
    _main()
