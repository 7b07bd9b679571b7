"""Images of frameworks reach the engine: their answers are those of its own request."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, BadRequestError
from tests.model.tiny_vision import write_vision_model

pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")
from tests.unit.runtime.images.pictures import encoded, gradient

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
PNG = encoded(gradient(70, 40), "PNG")
TEXT = {"type": "text", "text": "What is it?"}
IMAGE = {"type": "image_url", "image_url": {"url": PNG}}
NUM_TOKENS = 8


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def reader_directory(bundled_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_model(tmp_path_factory.mktemp("reader"), "llava")


@pytest.fixture
async def reader(reader_directory: Path) -> AsyncIterator[AsyncMLCEngine]:
    async with AsyncMLCEngine(reader_directory) as engine:
        yield engine


async def answer(engine: AsyncMLCEngine, *messages: dict[str, Any]) -> str:
    """Return the greedy answer to messages."""
    completion = await engine.chat.completions.create(
        messages=list(messages), temperature=0, max_tokens=NUM_TOKENS
    )
    assert completion.usage is not None
    assert completion.usage.prompt_tokens_details.image_tokens == 16
    return completion.choices[0].message.content or ""


async def test_pydantic_ai(reader: AsyncMLCEngine) -> None:
    messages = pytest.importorskip("pydantic_ai.messages")
    models = pytest.importorskip("pydantic_ai.models")
    adapter = pytest.importorskip("aiomlc.integrations.pydantic_ai")
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    model = adapter.AiomlcModel(reader, settings={"temperature": 0, "max_tokens": NUM_TOKENS})
    expected = await answer(reader, {"role": "user", "content": [IMAGE, TEXT]})
    parameters = models.ModelRequestParameters()
    for image in (messages.BinaryContent(data=PNG, media_type="image/png"), messages.ImageUrl(url)):
        asked = [messages.ModelRequest([messages.UserPromptPart([image, "What is it?"])])]
        response = await model.request(asked, None, parameters)
        assert response.text == expected
        counted = await model.count_tokens(asked, None, parameters)
        assert counted.input_tokens == response.usage.input_tokens

    far = [messages.ModelRequest([messages.UserPromptPart([messages.ImageUrl("http://a/b")])])]
    with pytest.raises(BadRequestError, match="the operator can allow it by allowed_media_domains"):
        await model.request(far, None, parameters)

    sound = messages.BinaryContent(data=b"a", media_type="audio/wav")
    heard = [messages.ModelRequest([messages.UserPromptPart([sound])])]
    with pytest.raises(BadRequestError, match="BinaryContent is not supported; only texts and ima"):
        await model.request(heard, None, parameters)


async def test_pydantic_ai_results_of_tools(reader: AsyncMLCEngine) -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    messages = pytest.importorskip("pydantic_ai.messages")
    adapter = pytest.importorskip("aiomlc.integrations.pydantic_ai_request")
    image = messages.BinaryContent(data=PNG, media_type="image/png", identifier="photo")
    result = messages.ToolReturnPart("look", [image], "call")
    parameters = pydantic_ai.models.ModelRequestParameters()

    fields = adapter.request_fields([messages.ModelRequest([result])], [], {}, parameters)

    (message,) = fields["messages"]
    assert (message["role"], message["tool_call_id"]) == ("tool", "call")
    assert [part["type"] for part in message["content"]] == ["text", "text", "image_url", "text"]
    assert IMAGE in message["content"]


async def test_langchain(reader: AsyncMLCEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    adapter = pytest.importorskip("aiomlc.integrations.langchain")
    data = base64.b64encode(PNG).decode()
    images = [
        {"type": "image", "base64": data, "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    ]
    expected = await answer(reader, {"role": "user", "content": [IMAGE, TEXT]})
    model = adapter.ChatAiomlc(engine=reader, temperature=0, max_tokens=NUM_TOKENS)
    for image in images:
        result = await model.ainvoke([{"role": "user", "content": [image, TEXT]}])
        assert result.content == expected


async def test_llm(reader: AsyncMLCEngine, reader_directory: Path, tmp_path: Path) -> None:
    llm = pytest.importorskip("llm")
    plugin = pytest.importorskip("aiomlc.integrations.llm_plugin")
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    expected = await answer(reader, {"role": "user", "content": [IMAGE, TEXT]})
    options = {"temperature": 0, "max_tokens": NUM_TOKENS}
    attachments = [
        llm.Attachment(content=PNG, type="image/png"),
        llm.Attachment(path=str(path), type="image/png"),
    ]
    model = plugin.AsyncLLMModel(str(reader_directory))
    try:
        for attachment in attachments:
            response = model.prompt("What is it?", attachments=[attachment], **options)
            assert await response.text() == expected
        with pytest.raises(ValueError, match="does not support"):
            model.prompt("a", attachments=[llm.Attachment(content=b"a", type="audio/wav")])
    finally:
        model.engine.terminate()
