from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Page, expect

from tests.e2e.playground.open_page import (
    answers,
    ask,
    event_stream,
    open_page,
    reply,
    send,
    sent,
    tab,
)
from tests.e2e.playground.server import PREFIX, STALLING

FIGURES = re.compile(r"\d+ tokens · [\d.,]+ tokens/s · first after .* prompt tokens cached")


def never_end(page: Page) -> None:
    """Have the next answers go on to the end of the context."""
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Continue when the model ends its turn").check()


@contextmanager
def busy_server(origin: str) -> Iterator[None]:
    """Have the server answer one request after the other: the page looks once a second."""
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "ignore_eos": True}
    request = Request(f"{origin}{PREFIX}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    is_over = Event()

    def ask_again() -> None:
        while not is_over.is_set():
            with urlopen(request, timeout=100) as response:
                response.read()

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask_again)
        try:
            yield
        finally:
            is_over.set()
            asking.result()


def test_an_answer_appears_with_its_figures(page: Page) -> None:
    answer = ask(page, "Who are you?")

    assert "Pebble" in answer
    expect(answers(page).get_by_text(FIGURES)).to_be_visible()
    expect(page.get_by_role("status")).to_have_text(f"The model answered: {answer}")


def test_the_page_works_under_a_prefix(browser: Browser, origin: str) -> None:
    with open_page(browser, origin, f"{PREFIX}/") as page:
        assert "Pebble" in ask(page, "Who are you?")


def test_text_appears_while_it_is_generated_and_stays_when_it_is_stopped(
    browser: Browser, origin: str
) -> None:
    with open_page(browser, origin, f"{STALLING}/") as page:
        never_end(page)

        send(page, "Tell me a story.")
        expect(answers(page).locator(".body .text")).to_have_text(re.compile(r"\w+ \w+ \w+"))
        page.keyboard.press("Escape")

        expect(answers(page).get_by_text("Stopped")).to_be_visible()
        text = answers(page).locator(".body .text").inner_text()
        assert len(text.split()) >= 3
        expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
        answer = send(page, "Go on.")["messages"][1]
        # A line may just have begun, which the page does not show.
        assert answer | {"content": answer["content"].rstrip()} == {
            "role": "assistant",
            "content": text,
        }
        page.get_by_role("button", name="Stop").click()
        expect(answers(page).get_by_text("Stopped")).to_have_count(2)


def test_regenerating_replaces_the_last_answer(page: Page) -> None:
    ask(page, "Who are you?")
    ask(page, "What is the capital of Italy?")

    with page.expect_request("**/v1/chat/completions") as request:
        page.get_by_role("button", name="Regenerate").click()

    roles = [message["role"] for message in sent(request.value)["messages"]]
    assert roles == ["user", "assistant", "user"]
    expect(answers(page)).to_have_count(2)


def test_editing_a_question_continues_from_there(page: Page) -> None:
    ask(page, "What is the capital of Italy?")
    ask(page, "Who are you?")

    page.get_by_role("article", name="You").first.get_by_role("button", name="Edit").click()
    page.get_by_label("Edited message").fill("What is the capital of France?")
    with page.expect_request("**/v1/chat/completions") as request:
        page.keyboard.press("Enter")

    assert sent(request.value)["messages"] == [
        {"role": "user", "content": "What is the capital of France?"}
    ]
    expect(answers(page)).to_have_text(re.compile("Paris"))


def test_an_edited_answer_is_part_of_the_conversation(page: Page) -> None:
    ask(page, "Who are you?")

    answers(page).get_by_role("button", name="Edit").click()
    page.get_by_label("Edited message").fill("I am Rosa.")
    page.get_by_role("button", name="Save", exact=True).click()

    expect(answers(page).locator(".body .text")).to_have_text("I am Rosa.")
    assert send(page, "Why?")["messages"][1] == {"role": "assistant", "content": "I am Rosa."}


def test_cancelling_an_edit_changes_nothing(page: Page) -> None:
    ask(page, "Who are you?")

    page.get_by_role("article", name="You").get_by_role("button", name="Edit").click()
    page.get_by_label("Edited message").fill("?")
    page.keyboard.press("Escape")

    expect(page.get_by_role("article", name="You").locator(".body")).to_have_text("Who are you?")
    expect(answers(page)).to_have_count(1)


def test_a_tool_is_called_and_its_result_answered(page: Page) -> None:
    panel = tab(page, "Tools")
    panel.get_by_role("button", name="Insert an example").click()
    # It is shown from its beginning.
    expect(panel.get_by_label("Tools, as JSON")).to_have_js_property("selectionStart", 0)
    send(page, "What is the weather in Rome?")

    result = page.get_by_label("Result of call 1")
    expect(result).to_be_focused()
    assert "get_weather" in answers(page).inner_text()
    result.fill('{"weather": "sunny"}')
    with page.expect_request("**/v1/chat/completions") as request:
        page.get_by_role("button", name="Send result").click()

    call, answer = sent(request.value)["messages"][1:]
    assert call["tool_calls"][0]["function"]["name"] == "get_weather"
    assert answer == {
        "role": "tool",
        "content": '{"weather": "sunny"}',
        "tool_call_id": call["tool_calls"][0]["id"],
    }
    expect(answers(page).last).to_have_text(re.compile("sunny"))
    expect(page.get_by_role("button", name="Send result")).to_be_hidden()


def test_an_answer_follows_the_schema(page: Page) -> None:
    panel = tab(page, "Format")
    panel.get_by_role("button", name="Insert an example").click()
    expect(panel.get_by_role("radio", name="JSON of this schema")).to_be_checked()

    person = json.loads(ask(page, "Extract the person: Mia is 31 years old."))

    assert person == {"name": "Mia", "age": 31}


def test_the_system_prompt_comes_first(page: Page) -> None:
    tab(page, "System").get_by_label("System prompt").fill("You are a pirate.")

    messages = send(page, "Who are you?")["messages"]

    assert [message["role"] for message in messages] == ["system", "user"]
    expect(page.get_by_role("tab", name="System")).to_have_accessible_description("in use")


def test_reasoning_is_folded(page: Page) -> None:
    reply(page, event_stream([{"reasoning_content": "It is easy."}, {"content": "Four."}]))

    assert ask(page, "What is 2 + 2?") == "Four."

    expect(page.get_by_text("It is easy.")).to_be_hidden()
    answers(page).locator("summary").click()
    expect(page.get_by_text("It is easy.")).to_be_visible()


def test_markup_of_the_model_is_shown_as_text(page: Page) -> None:
    text = "<img src=x onerror=alert(1)>\n\n```html\n<script>alert(2)</script>\n```\n</p> **done**"
    reply(page, event_stream([{"content": part} for part in text]))

    ask(page, "Hello")

    body = answers(page).locator(".body .text")
    expect(body.locator("p").first).to_have_text("<img src=x onerror=alert(1)>")
    expect(body.get_by_role("region", name="Code")).to_have_text("<script>alert(2)</script>")
    expect(body.locator("p").last).to_have_text("</p> done")
    assert body.locator("img, script").count() == 0


def test_tokens_show_their_alternatives(page: Page) -> None:
    page.get_by_label("Show the probabilities of tokens").check()
    page.get_by_role("spinbutton", name="Temperature").fill("0")

    ask(page, "What is the capital of Italy?")

    tokens = page.get_by_role("toolbar", name="Tokens of the answer").get_by_role("button")
    details = page.get_by_role("tooltip")
    tokens.nth(1).hover()
    expect(details.get_by_role("row")).to_have_count(5)
    tokens.first.focus()
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(1)).to_be_focused()
    own = json.dumps(tokens.nth(1).inner_text())
    expect(details.locator(".chosen")).to_contain_text(own)
    expect(tokens.nth(1)).to_have_accessible_name(re.compile(r'^".*" [\d.]+ %; instead of "'))
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()


def test_the_figures_of_the_server_are_live(page: Page, origin: str) -> None:
    expect(page.locator("#figure-running")).to_have_text("0")

    with busy_server(origin):
        expect(page.locator("#figure-pages")).to_have_text(re.compile(r"^[1-9]\d* of 1,025$"))
        expect(page.locator("#figure-running")).to_have_text(re.compile("[1-9]"))

    expect(page.locator("#figure-cached")).to_have_text(re.compile(r"\d+ %"))
    expect(page.locator("#figure-running")).to_have_text("0")
