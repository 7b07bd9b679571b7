from __future__ import annotations

import json

from playwright.sync_api import Browser, Page, Route, expect

from tests.e2e.playground.open_page import answers, ask, event_stream, open_page, reply, send, tab


def error_body(message: str) -> str:
    return json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None}})


def expect_no_chat(page: Page) -> None:
    """Try to send a message, and check that it is still in its box."""
    box = page.get_by_role("textbox", name="Message", exact=True)
    box.fill("Hello")
    box.press("Enter")
    expect(box).to_have_value("Hello")
    expect(page.get_by_role("article")).to_have_count(0)


def test_tools_that_are_not_json_are_refused_where_they_are_wrong(page: Page) -> None:
    panel = tab(page, "Tools")
    panel.get_by_label("Tools, as JSON").fill('[\n  {"type": "function",}\n]')
    tab(page, "Sampling")

    expect_no_chat(page)

    field = panel.get_by_label("Tools, as JSON")
    expect(field).to_be_focused()
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(panel.get_by_role("alert")).to_contain_text("Not valid JSON in line 2, column 23")


def test_tools_of_the_wrong_shape_are_refused_by_number(page: Page) -> None:
    panel = tab(page, "Tools")
    panel.get_by_role("button", name="Insert an example").click()
    field = panel.get_by_label("Tools, as JSON")
    field.fill(field.input_value().rstrip("]\n") + ', {"type": "function", "function": {}}]')

    expect_no_chat(page)

    expect(panel.get_by_role("alert")).to_have_text('Tool 2: its function must have a "name".')


def test_a_schema_that_ends_too_early_is_refused(page: Page) -> None:
    panel = tab(page, "Format")
    panel.get_by_label("JSON schema").fill('{"type": "object"')

    expect_no_chat(page)

    expect(panel.get_by_role("alert")).to_contain_text("it ends too early")
    panel.get_by_label("JSON schema").fill('{"type": "object"}')
    expect(panel.get_by_role("alert")).to_be_hidden()


def test_a_format_without_its_schema_is_refused(page: Page) -> None:
    tab(page, "Format").get_by_role("radio", name="JSON of this schema").check()

    expect_no_chat(page)

    expect(page.get_by_text("Enter a JSON schema")).to_be_visible()


def test_values_out_of_range_are_refused_with_the_range(page: Page) -> None:
    field = page.get_by_role("spinbutton", name="Top p")
    field.fill("1.5")

    expect_no_chat(page)

    expect(field).to_be_focused()
    expect(page.locator("#top_p-error")).to_have_text("Top p must be 0 to 1, got 1.5.")


def test_what_the_server_rejects_is_shown_in_its_words(page: Page) -> None:
    panel = tab(page, "Format")
    panel.get_by_label("JSON schema").fill('{"type": "nothing"}')

    send(page, "Hello")

    expect(answers(page).locator(".problem")).to_contain_text("nothing")
    expect(page.get_by_role("status")).to_contain_text("The answer failed.")


def test_a_busy_server_says_when_to_try_again(page: Page) -> None:
    reply(page, error_body("the queue is full"), status=429, headers={"retry-after": "3"})

    ask(page, "Hello")

    expect(answers(page).locator(".problem")).to_have_text(
        "The server has too many requests at the moment. Try again in 3 s. the queue is full"
    )


def test_text_before_an_error_stays(page: Page) -> None:
    body = event_stream([{"content": "Once"}]).replace("[DONE]", error_body("the model failed"))
    reply(page, body)

    assert ask(page, "Tell me a story.") == "Once"

    expect(answers(page).locator(".problem")).to_have_text("the model failed")


def test_an_answer_without_an_end_is_an_error(page: Page) -> None:
    reply(page, event_stream([{"content": "Once"}]).replace("data: [DONE]", ""))

    ask(page, "Tell me a story.")

    expect(answers(page).locator(".problem")).to_contain_text("The connection ended")


def test_a_server_that_is_gone_is_named(page: Page) -> None:
    page.route("**/v1/chat/completions", lambda route: route.abort())

    ask(page, "Hello")
    page.unroute("**/v1/chat/completions")
    page.get_by_role("button", name="Regenerate").click()

    expect(answers(page)).to_have_count(1)
    expect(answers(page).locator(".problem")).to_be_hidden()


def test_an_api_key_is_asked_for_and_kept_for_the_session(browser: Browser, origin: str) -> None:
    def check_key(route: Route) -> None:
        if route.request.headers.get("authorization") == "Bearer secret":
            route.continue_()
        else:
            route.fulfill(status=401, body=error_body("an API key is required"))

    with open_page(browser, origin) as page:
        page.route("**/v1/**", check_key)
        page.reload()
        expect(page.get_by_role("alert").first).to_contain_text("The API key is missing or wrong")

        page.get_by_label("API key").fill("secret")
        page.keyboard.press("Enter")
        expect(page.get_by_role("combobox", name="Model")).to_be_enabled()

        page.reload()
        assert ask(page, "Who are you?")
        assert page.evaluate("Object.values({...localStorage}).includes('secret')") is False
