"""What the page keeps, its figures of the context, and the model's defaults."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Browser, Dialog, FilePayload, Page, Route, expect

from aiomlc.cli.chat.conversation import load_conversation
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

CALL = {"index": 0, "id": "1", "function": {"name": "f", "arguments": '{"a": 1}'}}


def export(page: Page, button: str, directory: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()

    path = directory / download.value.suggested_filename
    download.value.save_as(path)
    return path


def import_file(page: Page, name: str, contents: str) -> None:
    file: FilePayload = {
        "name": name,
        "mimeType": "application/json",
        "buffer": contents.encode(),
    }
    page.get_by_label("File of conversations").set_input_files(file)


def test_chats_and_settings_survive_a_reload_and_files(page: Page, tmp_path: Path) -> None:
    tab(page, "System").get_by_label("System prompt").fill("You are brief.")
    tab(page, "Sampling")
    page.get_by_role("spinbutton", name="Temperature").fill("0")
    page.get_by_label("Show the probabilities of tokens").check()
    # The end token has a probability, too.
    first = ask(page, "Who are you?").removesuffix("<|im_end|>")

    page.reload()

    expect(answers(page).locator(".body")).to_have_text(first)
    expect(answers(page).get_by_text(re.compile("tokens/s"))).to_be_visible()
    request = send(page, "Why?")
    assert [each["role"] for each in request["messages"]] == ["system", "user", "assistant", "user"]
    assert (request["temperature"], request["logprobs"]) == (0, True)
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()

    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("article")).to_have_count(0)
    ask(page, "What is the capital of Italy?")
    page.get_by_role("button", name="Chats").click()
    expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_count(2)
    one = export(page, "Export Who are you?", tmp_path)
    every = export(page, "Export all", tmp_path)
    assert [turn.prompt for turn in load_conversation(one).turns] == ["Who are you?", "Why?"]

    page.on("dialog", Dialog.accept)
    page.get_by_role("button", name="Delete all").click()
    expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_count(0)
    expect(page.get_by_role("article")).to_have_count(0)
    import_file(page, "both.json", every.read_text())
    expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_count(2)
    for contents, problem in {
        "{": "not JSON",
        "[]": "no conversation",
        '{"messages": [{"role": "robot", "content": "x"}]}': 'role "robot"',
        '{"messages": [{"role": "user", "content": [{"image": 1}]}]}': "not text",
    }.items():
        import_file(page, "wrong.json", contents)
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text(problem)

    import_file(page, "one.json", one.read_text())
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(answers(page).first.locator(".body")).to_have_text(first)


def test_a_full_context_offers_to_forget_and_its_use_is_shown(page: Page) -> None:
    ask(page, "Who are you?")
    context = page.get_by_role("meter", name="Tokens of the context in use")
    expect(page.locator("#context-text")).to_have_text(re.compile(r"^\d+ of 2,048 tokens$"))
    used = float(context.get_attribute("value") or 0)
    ask(page, "What is the capital of Italy?")
    assert float(context.get_attribute("value") or 0) > used

    error = {"message": "too long", "code": "context_length_exceeded"}
    reply(page, json.dumps({"error": error}), status=400)
    ask(page, "What is the capital of France?")
    page.unroute("**/v1/chat/completions")
    with page.expect_request("**/v1/chat/completions") as request:
        page.get_by_role("button", name="Forget the oldest question").click()

    questions = [
        each["content"] for each in sent(request.value)["messages"] if each["role"] == "user"
    ]
    assert questions == ["What is the capital of Italy?", "What is the capital of France?"]
    expect(page.get_by_role("heading", name="forgotten by the model")).to_have_count(2)
    expect(page.get_by_role("button", name="Forget the oldest question")).to_be_hidden()
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()

    # One question alone can only begin anew.
    page.get_by_role("button", name="New chat").click()
    reply(page, json.dumps({"error": error}), status=400)
    ask(page, "A very long question")
    expect(page.get_by_role("button", name="Forget the oldest question")).to_be_hidden()
    answers(page).get_by_role("button", name="New chat").click()
    expect(page.get_by_role("article")).to_have_count(0)


def test_sliders_stand_at_the_values_in_force(browser: Browser, origin: str) -> None:
    with open_page(browser, origin) as page:
        slider = page.get_by_role("slider", name="Temperature, slider")
        field = page.get_by_role("spinbutton", name="Temperature")
        # Those of the bundled model.
        expect(slider).to_have_js_property("value", "0.3")
        expect(field).to_have_attribute("placeholder", "0.3")
        expect(page.get_by_role("slider", name="Top p, slider")).to_have_js_property(
            "value", "0.95"
        )
        field.fill("1.5")
        expect(slider).to_have_js_property("value", "1.5")
        page.get_by_role("button", name="Reset").click()
        expect(slider).to_have_js_property("value", "0.3")

        # A notice goes when its field is corrected.
        field.fill("-3")
        page.get_by_role("textbox", name="Message", exact=True).fill("Hello")
        page.keyboard.press("Enter")
        notice = page.locator("#notice")
        expect(notice).to_contain_text("at least 0")
        field.fill("-4")
        expect(notice).to_be_visible()
        field.fill("")
        expect(notice).to_be_hidden()

    # The defaults of a model that a request opens are known after it.
    def closed(route: Route) -> None:
        models = {"data": [{"id": "closed", "max_model_len": None, "sampling_defaults": None}]}
        route.fulfill(json=models)

    with open_page(browser, origin) as page:
        page.route("**/v1/models", closed)
        page.reload()
        expect(page.get_by_role("combobox", name="Model")).to_have_text("closed")
        expect(page.get_by_role("spinbutton", name="Temperature")).to_have_attribute(
            "placeholder", "default"
        )
        page.unroute("**/v1/models")
        ask(page, "Who are you?")
        expect(page.get_by_role("spinbutton", name="Temperature")).to_have_attribute(
            "placeholder", "0.3"
        )


def test_calls_of_tools_and_their_results_can_be_edited(page: Page) -> None:
    reply(page, event_stream([{"tool_calls": [CALL, CALL | {"index": 1, "id": "2"}]}]))
    ask(page, "Call it.")
    reply(page, event_stream([{"content": "Done."}]))
    page.get_by_label("Result of call 1").fill("one")
    page.get_by_label("Result of call 2").fill("two")
    page.get_by_role("button", name="Send results").click()
    expect(answers(page)).to_have_count(2)

    answers(page).first.get_by_role("button", name="Edit").click()
    arguments = page.get_by_label("Arguments of f").first
    arguments.fill("{")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(arguments).to_have_attribute("aria-invalid", "true")
    arguments.fill('{"a": 2}')
    page.get_by_role("button", name="Save", exact=True).click()
    results = page.get_by_role("article", name="Result of f")
    results.first.get_by_role("button", name="Edit").click()
    page.get_by_label("Edited message").fill("three")
    with page.expect_request("**/v1/chat/completions") as request:
        page.get_by_role("button", name="Save and send").click()

    call, *others = sent(request.value)["messages"][1:]
    assert call["tool_calls"][0]["function"]["arguments"] == '{"a": 2}'
    assert [message["content"] for message in others] == ["three", "two"]
    expect(answers(page)).to_have_count(2)
