"""Pages of the playground in a browser, and what the tests do on them."""

from __future__ import annotations

__all__ = ("answers", "ask", "event_stream", "open_page", "reply", "send", "sent", "tab")

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

TIMEOUT = 60_000  # Milliseconds, for a machine that is busy.
expect.set_options(timeout=TIMEOUT)


@contextmanager
def open_page(
    browser: Browser, origin: str, path: str = "/", options: Mapping[str, Any] | None = None
) -> Iterator[Page]:
    """Open the playground with options of a browser context.

    At the end, check that no script failed, that the content security policy was kept, and that
    no request left the origin.
    """
    problems: list[str] = []
    context = browser.new_context(base_url=origin, **(options or {}))
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.extend(_problem(message.type, message.text)))
    page.on("request", lambda request: problems.extend(_outside(request, origin)))
    page.goto(path)
    expect(page.get_by_role("combobox", name="Model")).to_be_enabled()
    yield page
    context.close()
    assert problems == [], problems


def _problem(kind: str, text: str) -> list[str]:
    # A test that makes a request fail expects the browser's note of it.
    is_expected = text.startswith("Failed to load resource")
    return [text] if kind in {"error", "warning"} and not is_expected else []


def _outside(request: Request, origin: str) -> list[str]:
    return [] if request.url.startswith(f"{origin}/") else [request.url]


def tab(page: Page, name: str) -> Locator:
    """Select a tab of the settings, and return its panel."""
    page.get_by_role("tab", name=name).click()
    return page.get_by_role("tabpanel", name=name)


def send(page: Page, text: str) -> dict[str, Any]:
    """Send a message, and return the request."""
    with page.expect_request("**/v1/chat/completions") as request:
        page.get_by_role("textbox", name="Message", exact=True).fill(text)
        page.keyboard.press("Enter")

    return sent(request.value)


def sent(request: Request) -> dict[str, Any]:
    """Return the fields of a request."""
    fields = request.post_data_json
    assert isinstance(fields, dict)
    return fields


def ask(page: Page, text: str) -> str:
    """Send a message, and return the text of the answer."""
    send(page, text)
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    return answers(page).last.locator(".body").inner_text()


def answers(page: Page) -> Locator:
    """Return the answers of the model."""
    return page.get_by_role("article", name="Model")


def event_stream(deltas: Sequence[Mapping[str, object]]) -> str:
    """Return the events of a chat completion with these deltas."""
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events = [*map(json.dumps, chunks), "[DONE]"]
    return ": ping\n\n" + "".join(f"data: {event}\n\n" for event in events)


def reply(page: Page, body: str, *, status: int = 200, headers: Mapping[str, str] = {}) -> None:
    """Answer the next chats of a page with a fixed body."""
    kind = "text/event-stream" if status == 200 else "application/json"

    def fulfill(route: Route) -> None:
        route.fulfill(status=status, body=body, headers={"content-type": kind, **headers})

    page.route("**/v1/chat/completions", fulfill)
