from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from aiomlc.sampling_params import SamplingParams
from aiomlc.validation.parameter import Integer, Number
from tests.e2e.playground.open_page import answers, ask, event_stream, open_page, reply, tab

TABS = ("Sampling", "System", "Tools", "Format")
LOW_CONTRAST = (Path(__file__).parent / "low_contrast.js").read_text()


def fill_page(page: Page) -> None:
    """Bring all kinds of content onto the page."""
    ask(page, "Who are you?")
    page.get_by_label("Show the probabilities of tokens").check()
    ask(page, "Tell me a story about a fox called Rosa.")
    deltas: list[dict[str, object]] = [
        {"reasoning_content": "Hm."},
        {"content": f"A {'long' * 40} word.\n```\n{'code ' * 60}\n```\nThe end."},
        {"content": "\n# Title\n> `quoted`\n\n[link](https://example.com)\n\n|a|\n|-|\n|1|"},
        {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}]},
    ]
    reply(page, event_stream(deltas))
    ask(page, f"A {'wide' * 40} question")


def test_landmarks_and_controls_have_names(page: Page) -> None:
    fill_page(page)

    for role in ("banner", "main", "complementary", "log", "status", "tablist"):
        expect(page.get_by_role(role)).to_have_count(1)

    for name in TABS:
        tab(page, name)
        controls = page.locator("button, input, select, textarea, summary, [tabindex='0']")
        for control in controls.filter(visible=True).all():
            expect(control).to_have_accessible_name(re.compile(r"\S"))


def test_the_keyboard_is_enough(page: Page) -> None:
    page.get_by_role("link", name="Skip to the message box").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()

    page.keyboard.type("Who are you?")
    page.keyboard.press("Enter")
    expect(answers(page).get_by_role("button", name="Edit")).to_be_visible()
    expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("button", name="Attach images")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("button", name="Regenerate")).to_be_focused()

    for _ in range(4):
        page.keyboard.press("Tab")
    expect(page.get_by_role("tab", name="Sampling")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="Format")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Format")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="a JSON object")).to_be_checked()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_level_aa(browser: Browser, origin: str, scheme: str) -> None:
    with open_page(browser, origin, options={"color_scheme": scheme}) as page:
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        fill_page(page)
        for name in TABS:
            tab(page, name)
            assert page.evaluate(LOW_CONTRAST) == []


def test_the_theme_can_be_switched_and_is_remembered(page: Page) -> None:
    switch = page.get_by_role("button", name="Dark theme")
    expect(switch).to_have_attribute("aria-pressed", "false")

    switch.click()
    page.reload()

    expect(switch).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"


def test_nothing_is_wider_than_a_phone(browser: Browser, origin: str) -> None:
    phone = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
    with open_page(browser, origin, options=phone) as page:
        settings = page.get_by_role("button", name="Settings")
        settings.click()
        page.get_by_label("Show the probabilities of tokens").check()
        settings.click()
        wide = [{"content": f"{'long' * 60}\n```\n{'code ' * 60}\n```"}]
        ask(page, "Tell me a story about a fox called Rosa.")
        reply(page, event_stream(wide))
        ask(page, "wide" * 60)
        assert _overflow(page) == 0

        settings.click()
        for name in TABS:
            tab(page, name)
            assert _overflow(page) == 0

        expect(page.get_by_role("log")).to_be_hidden()
        page.keyboard.press("Escape")
        expect(settings).to_be_focused()
        expect(page.get_by_role("log")).to_be_visible()


def _overflow(page: Page) -> int:
    scripts = ("document.documentElement", "document.getElementById('scroller')")
    return sum(
        page.evaluate(f"{element}.scrollWidth - {element}.clientWidth") for element in scripts
    )


def test_fields_have_the_ranges_of_the_library(page: Page) -> None:
    hints = get_type_hints(SamplingParams, include_extras=True)
    fields = {field.get_attribute("id"): field for field in page.locator(".number input[id]").all()}

    for name in fields.keys() & hints.keys():
        assert name is not None
        [rule] = [each for each in get_args(hints[name]) if isinstance(each, Integer | Number)]
        limits = (rule.ge, rule.le, getattr(rule, "gt", None), isinstance(rule, Integer))
        assert _limits(fields[name]) == limits, name

    missing = hints.keys() - fields.keys() - {"ignore_eos", "prompt_logprobs"}
    assert missing == set()


def _limits(field: Locator) -> tuple[float | None, float | None, float | None, bool]:
    low, high, above = (
        None if text is None else float(text)
        for text in map(field.get_attribute, ("min", "max", "data-above"))
    )
    return low, high, above, field.get_attribute("data-integer") is not None
