"""Chats with images: their parts, the prompt, the usage, and errors that name the part."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anyio import create_task_group, sleep

from aiomlc import JSONFFIEngine
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.templates.prompt_template import PromptTemplate
from aiomlc.testing import FakeCore
from tests.unit.api.chat.serving import serve
from tests.unit.api.chat.vision import (
    PARTS_TEMPLATE,
    STRING_TEMPLATE,
    image_part,
    image_url,
    serve_images,
    text_part,
    vision_model,
)
from tests.unit.runtime.images.file_server import answer, file_server
from tests.unit.runtime.images.pictures import encoded, gradient

PARTS = ChatTemplate(PARTS_TEMPLATE)
STRING = ChatTemplate(STRING_TEMPLATE)
CONVERSATION = Conversation(
    roles={"user": "USER", "assistant": "ASSISTANT", "tool": "TOOL"},
    role_content_sep=": ",
    role_empty_sep=":",
    seps=(" ",),
    system_template="{system_message}",
)
MIXED = [text_part("Compare"), image_part(5), text_part("with"), image_part(2), text_part("!")]


def user(*content: object) -> dict[str, object]:
    return {"role": "user", "content": list(content)}


async def rendered(template: PromptTemplate, *messages: dict[str, object]) -> str:
    """Return the prompt that the model gets."""
    async with serve_images(FakeCore(), template) as (engine, vision):
        await engine.chat.completions.create(messages=messages)

    (text,) = vision.texts
    return text


async def refusal(
    *messages: dict[str, object], config: EngineConfig | None = None
) -> BadRequestError:
    """Return the error for messages that a model that reads images rejects."""
    core = FakeCore()
    async with serve_images(core, PARTS, config) as (engine, _):
        with pytest.raises(BadRequestError) as caught:
            await engine.chat.completions.create(messages=messages)

    assert core.prompts == []
    return caught.value


async def test_a_template_that_reads_parts_gets_images_where_they_stand() -> None:
    prompt = await rendered(PARTS, user(*MIXED))

    assert prompt == "[user]Compare<image>with<image>!"


async def test_a_template_that_reads_strings_gets_placeholders_where_images_stand() -> None:
    prompt = await rendered(STRING, user(*MIXED))

    assert prompt == "[user]Compare<image>\nwith<image>\n!"


async def test_a_conversation_template_puts_a_line_break_after_an_image() -> None:
    """The rule of MLC LLM."""
    prompt = await rendered(CONVERSATION, user(image_part(), text_part("What?")))

    assert prompt == "USER: <image>\nWhat? ASSISTANT:"


async def test_a_template_that_would_leave_out_images_gets_strings() -> None:
    source = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}{% endif %}"
        "{% endfor %}"
    )

    assert await rendered(ChatTemplate(source), user(*MIXED)) == "Compare<image>\nwith<image>\n!"


async def test_a_message_may_have_images_only() -> None:
    for template in (PARTS, STRING):
        prompt = await rendered(template, user(image_part()), user(text_part("What is it?")))
        assert prompt.replace("\n", "") == "[user]<image>[user]What is it?"


async def test_the_embeddings_of_images_are_in_the_prompt_and_in_the_usage() -> None:
    core = FakeCore()
    async with serve_images(core, PARTS) as (engine, vision):
        completion = await engine.chat.completions.create(messages=[user(*MIXED)])
        async with engine.chat.completions.create(
            messages=[user(*MIXED)], stream=True, stream_options={"include_usage": True}
        ) as stream:
            chunks = [chunk async for chunk in stream]

    text = "[user]Compare" + " " * 5 + "with" + " " * 2 + "!"
    assert bytes(core.prompts[0]).decode() == text
    assert [image.width for image in vision.images] == [5, 2] * 2
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == len(text)
    assert completion.usage.prompt_tokens_details.image_tokens == 7
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens_details.image_tokens == 7


async def test_the_usage_of_text_has_no_count_of_images() -> None:
    async with serve_images(FakeCore(), PARTS) as (engine, vision):
        completion = await engine.chat.completions.create(messages=[user(text_part("Hello"))])

    assert completion.usage is not None
    assert "image_tokens" not in completion.usage.to_json()
    assert vision.texts == []


@pytest.mark.parametrize("detail", ["auto", "low", "high", "original"])
async def test_an_image_may_have_a_detail(detail: str) -> None:
    assert await rendered(PARTS, user(image_part(detail=detail))) == "[user]<image>"


async def test_an_image_may_be_a_string_bytes_or_pixels() -> None:
    data = encoded(gradient(5, 3), "PNG")
    images = [image_url(), data, {"url": data}, ImageData(gradient_pixels())]
    async with serve_images(FakeCore(), PARTS) as (engine, vision):
        for image in images:
            part = {"type": "image_url", "image_url": image}
            await engine.chat.completions.create(messages=[user(part)])

    assert [image.width for image in vision.images] == [5] * 4
    assert len(set(vision.images)) == 1


async def test_results_of_tools_may_have_images() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [image_part()]},
    ]

    assert await rendered(PARTS, *messages) == "[user]Look.[assistant][tool]<image>"


async def test_a_model_that_does_not_read_images_says_so() -> None:
    core = FakeCore()
    async with serve(core) as engine:
        with pytest.raises(BadRequestError, match="does not read images") as caught:
            await engine.chat.completions.create(messages=[user(image_part())])

    assert caught.value.param == "messages"
    assert core.prompts == []


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
async def test_only_users_and_tools_send_images(role: str) -> None:
    error = await refusal({"role": role, "content": [image_part()]})

    assert error.param == "messages[0].content"
    assert "only 'text'" in str(error)


@pytest.mark.parametrize(
    "image",
    [
        {},
        {"image_url": None},
        {"image_url": ""},
        {"image_url": 5},
        {"image_url": {}},
        {"image_url": {"url": ""}},
        {"image_url": {"url": "data:", "size": 5}},
        {"image_url": "data:", "size": 5},
        {"image_url": {"url": "data:", "detail": "much"}},
    ],
)
async def test_a_malformed_part_is_rejected(image: dict[str, object]) -> None:
    error = await refusal(user({"type": "image_url", **image}))

    assert error.param == "messages[0].content"
    assert "image" in str(error)


async def test_a_damaged_image_is_named() -> None:
    part = {"type": "image_url", "image_url": image_url()[:-40]}
    error = await refusal(user(text_part("one")), user(text_part("two"), image_part(), part))

    assert error.param == "messages[1].content[2]"


async def test_the_limits_of_the_engine_count() -> None:
    error = await refusal(user(*MIXED), config=EngineConfig(max_images_per_prompt=1))
    assert error.param == "messages"

    error = await refusal(user(*MIXED), config=EngineConfig(max_image_pixels=9))
    assert error.param == "messages[0].content[1]"


async def test_a_text_with_the_placeholder_moves_no_image() -> None:
    error = await refusal(user(text_part("a <image> b"), image_part()))

    assert error.param == "messages[0].content"
    assert "'<image>'" in str(error)


async def test_an_image_is_fetched_only_from_allowed_hosts() -> None:
    async with file_server(a=answer(200, encoded(gradient(5, 3), "PNG"))) as server:
        part = {"type": "image_url", "image_url": f"http://127.0.0.1:{server.port}/a"}
        error = await refusal(user(part))
        config = EngineConfig(allowed_media_domains=("127.0.0.1",))
        async with serve_images(FakeCore(), PARTS, config) as (engine, vision):
            await engine.chat.completions.create(messages=[user(part)])

    assert error.param == "messages[0].content[0]"
    assert len(vision.images) == len(server.requests) == 1


async def test_a_request_that_is_cancelled_while_it_fetches_is_never_submitted() -> None:
    core = FakeCore()
    config = EngineConfig(allowed_media_domains=("127.0.0.1",))
    async with file_server(a=answer(200, b"", content_length="9")) as server:
        server.hangs = True
        part = {"type": "image_url", "image_url": f"http://127.0.0.1:{server.port}/a"}
        async with serve_images(core, PARTS, config) as (engine, _), create_task_group() as group:

            async def create() -> None:
                await engine.chat.completions.create(messages=[user(part)])

            group.start_soon(create)
            while not server.requests:  # noqa: ASYNC110 - of another task.
                await sleep(0.001)
            group.cancel_scope.cancel()

    assert core.prompts == []


async def test_responses_take_images_and_name_their_parts() -> None:
    async with serve_images(FakeCore(), PARTS) as (engine, vision):
        image = {"type": "input_image", "image_url": image_url(), "detail": "auto"}
        text = {"type": "input_text", "text": "What?"}
        await engine.responses.create(input=[{"role": "user", "content": [text, image]}])
        damaged = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
        with pytest.raises(BadRequestError) as caught:
            await engine.responses.create(input=[{"role": "user", "content": [text, damaged]}])
        with pytest.raises(BadRequestError) as unknown:
            await engine.responses.create(
                input=[{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]
            )

    assert vision.texts == ["[user]What?<image>"]
    assert caught.value.param == "input[0].content[1]"
    assert unknown.value.param == "input[0].content[0].image_url"


async def test_the_tokens_of_a_chat_with_images_are_counted() -> None:
    async with serve_images(FakeCore(), PARTS) as (engine, _):
        request = parse_chat_request({"messages": [user(image_part(7))]})
        assert len(await engine.chat.completions.encode(request)) == len("[user]") + 7


def gradient_pixels() -> Any:  # noqa: ANN401 - an array.
    import numpy as np

    return np.asarray(gradient(5, 3))


def test_the_json_functions_take_images() -> None:
    core = FakeCore()

    async def load(*args: object, **options: object) -> object:
        return vision_model(core, PARTS)

    engine = JSONFFIEngine("model", loader=load)  # type: ignore[arg-type]
    try:
        (chunk, *_) = engine.chat.completions.create(messages=[user(image_part())], stream=True)
    finally:
        engine.terminate()

    assert json.loads(chunk.model_dump_json())["choices"][0]["delta"]["role"] == "assistant"
    assert bytes(core.prompts[0]).decode() == "[user]" + " " * 5
