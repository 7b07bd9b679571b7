"""The site in a browser: on a phone, without a network, and opened as files."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, Response, ViewportSize, expect

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]
TIMEOUT = 60_000  # Milliseconds, for a machine that is busy.
PHONE: ViewportSize = {"width": 390, "height": 844}
DESKTOP: ViewportSize = {"width": 1280, "height": 900}
PROBLEMS = (Path(__file__).parent / "page_problems.js").read_text(encoding="utf-8")
SIGNATURE = r'<div class="doc-signature[^"]*">(.*?)</div>'
#: What a newcomer looks for, and the page that should come first.
SEARCHES = {
    "install": "install.html",
    "get a model": "get_a_model.html",
    "choose a format": "choose_a_format.html",
    "serve": "serve.html",
    "langchain": "clients.html",
    "pydantic-ai": "clients.html",
    "catch errors": "errors.html",
    "tune": "tune.html",
    "deploy": "deploy.html",
    "ollama": "coming_from.html",
    "vllm": "coming_from.html",
    "embeddings": "embeddings.html",
    "grammar": "structured_output.html",
    "temperature": "parameters.html",
    "reasoning": "reasoning.html",
    "call functions": "call_functions.html",
    "prometheus": "dashboards.html",
    "cancel": "tutorial.html",
}


@contextmanager
def _open(browser: Browser, origin: str, size: ViewportSize) -> Iterator[tuple[Page, list[str]]]:
    """Open a tab, and list the requests that leave the site or fail, and what scripts report."""
    problems: list[str] = []

    def add_request(request: Request) -> None:
        if not request.url.startswith((f"{origin}/", "data:")):
            problems.append(f"asks {request.url}")

    def add_response(response: Response) -> None:
        if response.status >= 400:
            problems.append(f"{response.status} {response.url}")

    context = browser.new_context(viewport=size)
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    page.on("request", add_request)
    page.on("response", add_response)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text))
    yield page, problems
    context.close()


def test_pages_fit_a_phone_and_ask_no_other_server(
    browser: Browser, site: Path, origin: str
) -> None:
    found: dict[str, list[str]] = {}
    with _open(browser, origin, PHONE) as (page, problems):
        for path in sorted(site.rglob("*.html")):
            name = path.relative_to(site).as_posix()
            if name.startswith("repository/"):  # Files of the repository, as one block of code.
                continue

            page.goto(f"{origin}/{name}")
            if here := [*page.evaluate(PROBLEMS), *problems]:
                found[name] = here
            problems.clear()

    assert found == {}


@pytest.mark.parametrize("opened_as", ["files", "served pages"])
def test_the_search_finds_pages(
    browser: Browser, site: Path, request: pytest.FixtureRequest, opened_as: str
) -> None:
    origin = site.as_uri() if opened_as == "files" else request.getfixturevalue("origin")
    with _open(browser, origin, DESKTOP) as (page, problems):
        page.goto(f"{origin}/reference/errors.html")
        box = page.get_by_role("textbox", name="Search")
        found = page.locator(".md-search-result__meta")
        box.click()
        for words, name in SEARCHES.items():
            expect(found).to_have_text("Type to start searching")
            if "-" in words:
                # Pasted: while it is typed, the theme's search reports `pydantic-` as an invalid
                # query, unless it is still busy with the letters before.
                page.keyboard.insert_text(words)
                page.keyboard.press("End")
            else:
                page.keyboard.type(words)

            expect(found).to_contain_text("matching document")
            # Waits for the words that were typed last.
            link = page.locator(".md-search-result__item a").first
            expect(link).to_have_attribute("href", re.compile(f"/{re.escape(name)}([?#]|$)"))
            page.keyboard.press("Control+A")
            page.keyboard.press("Backspace")

    assert problems == []


def test_the_reference_shows_no_values_that_only_the_source_explains(site: Path) -> None:
    signatures = [
        html.unescape(re.sub(r"<[^>]+>", "", found)).strip()
        for path in sorted((site / "reference").glob("*.html"))
        for found in re.findall(SIGNATURE, path.read_text(encoding="utf-8"), re.S)
    ]
    assert len(signatures) > 100
    explained = re.compile(r"(\w+)(?:: .+)? = (?:\1|Field\(.*|.*\bself\b.*)", re.S)
    assert [text for text in signatures if explained.fullmatch(text)] == []
