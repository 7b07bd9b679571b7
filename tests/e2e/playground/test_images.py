"""Images are attached, pasted and dropped, go with the next message, and stay in the history."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Dialog, FilePayload, Locator, Page, expect

from aiomlc.cli.chat.conversation import load_conversation
from tests.e2e.playground.open_page import answers, event_stream, open_page, reply, send
from tests.unit.runtime.images.pictures import encoded, gradient

PNG = encoded(gradient(40, 30), "PNG")
CURVES = (lambda value: value, lambda value: 255 - value)
KEPT = """Object.keys(localStorage).filter((key) => key.startsWith("aiomlc-chat-"))
  .map((key) => localStorage.getItem(key))"""


def data_url(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


URL = data_url(PNG)
# Makes an event with a file, as a browser does for the clipboard or for what is dropped.
TRANSFER = """([selector, kind, name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, {type}));
  const options = {bubbles: true, cancelable: true};
  const event = kind === "paste" ? new ClipboardEvent(kind, {...options, clipboardData: transfer})
    : new DragEvent(kind, {...options, dataTransfer: transfer});
  document.querySelector(selector).dispatchEvent(event);
}"""


def attach(page: Page, *contents: bytes, name: str = "a.png", kind: str = "image/png") -> None:
    files: list[FilePayload] = [
        {"name": name, "mimeType": kind, "buffer": content} for content in contents
    ]
    page.get_by_label("Image files").set_input_files(files)


def transfer(page: Page, selector: str, kind: str, content: bytes, name: str = "a.png") -> None:
    data = base64.b64encode(content).decode()
    page.evaluate(TRANSFER, [selector, kind, name, "image/png", data])


def thumbnails(page: Page) -> Locator:
    return page.get_by_role("list", name="Images of the message").get_by_role("img")


def test_images_go_with_the_next_message_and_stay_in_the_history(page: Page) -> None:
    reply(page, event_stream([{"content": "A gradient."}]))
    attach(page, PNG)
    transfer(page, "#prompt", "paste", PNG)
    transfer(page, "#scroller", "drop", PNG)
    expect(thumbnails(page)).to_have_count(3)
    page.get_by_role("button", name="Remove image 3").click()
    expect(thumbnails(page)).to_have_count(2)

    request = send(page, "What is it?")

    image = {"type": "image_url", "image_url": {"url": URL}}
    assert request["messages"] == [
        {"role": "user", "content": [image, image, {"type": "text", "text": "What is it?"}]}
    ]
    expect(answers(page)).to_have_count(1)
    expect(thumbnails(page)).to_have_count(0)
    mine = page.get_by_role("article", name="You").get_by_role("img")
    expect(mine).to_have_count(2)
    assert mine.first.evaluate("(image) => image.naturalWidth") == 40

    assert send(page, "And now?")["messages"][0] == request["messages"][0]
    page.reload()
    expect(page.get_by_role("article", name="You").get_by_role("img")).to_have_count(2)


def test_a_message_may_be_an_image_without_text(page: Page) -> None:
    reply(page, event_stream([{"content": "A gradient."}]))
    attach(page, PNG)

    parts = send(page, "")["messages"][0]["content"]

    assert [part["type"] for part in parts] == ["image_url", "text"]
    page.get_by_role("button", name="Chats").click()
    expect(page.get_by_role("dialog").get_by_role("button", name="An image").first).to_be_visible()


def test_a_large_image_is_made_smaller(page: Page) -> None:
    reply(page, event_stream([{"content": "A gradient."}]))
    attach(page, encoded(gradient(40, 30).resize((3000, 1500)), "BMP"), kind="image/bmp")

    url = send(page, "What is it?")["messages"][0]["content"][0]["image_url"]["url"]

    assert url.startswith("data:image/jpeg;base64,")
    mine = page.get_by_role("article", name="You").get_by_role("img")
    expect(mine).to_be_visible()
    size = "(image) => [image.naturalWidth, image.naturalHeight]"
    assert mine.evaluate(size) == [2048, 1024]


def test_a_file_that_is_no_image_is_named(page: Page) -> None:
    attach(page, b"text", name="notes.txt", kind="text/plain")
    expect(page.get_by_role("alert")).to_contain_text("notes.txt is no image")

    transfer(page, "#prompt", "paste", b"damaged", "b.png")
    expect(page.get_by_role("alert")).to_contain_text("b.png is no image")
    expect(thumbnails(page)).to_have_count(0)


def test_a_model_that_reads_no_images_says_so(page: Page) -> None:
    attach(page, PNG)
    send(page, "What is it?")

    expect(answers(page).locator(".problem")).to_contain_text("does not read images")


def test_a_chat_with_images_is_exported_and_imported(page: Page, tmp_path: Path) -> None:
    reply(page, event_stream([{"content": "A gradient."}]))
    attach(page, PNG)
    send(page, "What is it?")
    expect(answers(page)).to_have_count(1)
    page.get_by_role("button", name="Chats").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export What is it?").click()
    path = tmp_path / "chat.json"
    download.value.save_as(path)
    page.on("dialog", Dialog.accept)
    page.get_by_role("button", name="Delete all").click()

    page.get_by_label("File of conversations").set_input_files(path)

    expect(page.get_by_role("article", name="You").get_by_role("img")).to_have_count(1)
    (turn,) = load_conversation(path).turns
    assert turn.images == (URL,)


def complete(origin: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the whole answer of a server to a request of the page."""
    body = json.dumps(request | {"stream": False, "stream_options": None}).encode()
    headers = {"content-type": "application/json"}
    call = Request(f"{origin}/v1/chat/completions", body, headers)
    with urlopen(call, timeout=100) as answer:
        completion: dict[str, Any] = json.load(answer)
    return completion


def kept(page: Page) -> list[dict[str, Any]]:
    """Return the messages of the only conversation that the browser keeps."""
    (text,) = page.evaluate(KEPT)
    messages: list[dict[str, Any]] = json.loads(text)["messages"]
    return messages


def test_a_model_reads_images_that_were_attached_pasted_and_dropped(
    browser: Browser, image_reader: str
) -> None:
    red, blue = (encoded(gradient(60, 60).point(curve), "PNG") for curve in CURVES)
    with open_page(browser, image_reader) as page:
        page.get_by_role("spinbutton", name="Temperature").fill("0")
        page.get_by_role("spinbutton", name="Max tokens").fill("12")
        attach(page, red)
        transfer(page, "#prompt", "paste", blue)
        transfer(page, "#scroller", "drop", red)
        expect(thumbnails(page)).to_have_count(3)
        first = send(page, "Compare.")
        expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
        second = send(page, "And now?")
        expect(answers(page)).to_have_count(2)
        expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
        page.reload()
        expect(page.get_by_role("article", name="You").get_by_role("img")).to_have_count(3)
        messages = kept(page)

    for request, message in ((first, messages[1]), (second, messages[3])):
        completion = complete(image_reader, request)
        assert message["content"] == completion["choices"][0]["message"]["content"] != ""
        assert completion["usage"]["prompt_tokens_details"]["image_tokens"] == 3 * 16
    other = json.loads(json.dumps(first).replace(data_url(red), data_url(blue)))
    answer = complete(image_reader, other)["choices"][0]["message"]["content"]
    assert answer != messages[1]["content"]
