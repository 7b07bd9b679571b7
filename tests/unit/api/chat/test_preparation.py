"""What precedes the first step: long prompts are refused, time limits and cancellations end it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from anyio import create_task_group, to_thread

from aiomlc import AsyncMLCEngine
from aiomlc.api.chat import preparation
from aiomlc.errors import BadRequestError, DeadlineExceededError, PromptTooLongError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore, fake_loader, fake_model

LONG = "x" * 3_000_000
HELLO = [{"role": "user", "content": "Hi"}]
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": f'{{"a": "{LONG}"}}'}}
TOOL = {"type": "function", "function": {"name": "f", "description": LONG}}
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def engine_with(template: str) -> AsyncMLCEngine:
    async def load(*_: object, **__: object) -> LoadedModel:
        return replace(fake_model(FakeCore()), chat_template=ChatTemplate(template))

    return AsyncMLCEngine(loader=load)


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": LONG}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": LONG}]}]},
        {"messages": HELLO, "tools": [TOOL]},
        {
            "messages": [
                *HELLO,
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "content": "1", "tool_call_id": "a"},
            ]
        },
    ],
    ids=["content", "parts", "tools", "calls"],
)
async def test_a_chat_longer_than_any_prompt_is_refused_before_it_is_rendered(
    fields: dict[str, Any],
) -> None:
    async with engine_with("{{ raise_exception('rendered') }}") as engine:
        with pytest.raises(PromptTooLongError, match=r"at least 30000\d\d tokens"):
            await engine.chat.completions.create(**fields)


async def test_a_long_text_completion_is_refused() -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(PromptTooLongError, match="at least 3000000 tokens"):
            await engine.completions.create(prompt=LONG)

        with pytest.raises(PromptTooLongError, match="at least 3000000 tokens"):
            await engine.pin_prefix(prompt=LONG)

        with pytest.raises(PromptTooLongError, match="has 5000 tokens"):
            await engine.completions.create(prompt=[1] * 5000)


async def test_an_endless_template_is_a_bad_request() -> None:
    async with engine_with(ENDLESS) as engine:
        with pytest.raises(BadRequestError, match="template takes more than") as caught:
            await engine.chat.completions.create(messages=HELLO)

    assert caught.value.param == "messages"


@pytest.fixture
def slow_rendering(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let templates wait in their thread until they are cancelled; return their threads."""
    threads: list[int] = []
    render = preparation._render_fully

    def wait_and_render(function: Any, is_cancelled: Any) -> Any:  # noqa: ANN401
        threads.append(threading.get_ident())
        gate = threading.Event()
        while not is_cancelled():
            gate.wait(0.001)

        return render(function, is_cancelled)

    monkeypatch.setattr(preparation, "_render_fully", wait_and_render)
    return threads


@pytest.mark.parametrize("limit", ["timeout", "first_token_timeout"])
async def test_a_time_limit_ends_the_rendering_of_a_template(
    limit: str, slow_rendering: list[int]
) -> None:
    async with engine_with(ENDLESS) as engine:
        with pytest.raises(DeadlineExceededError) as caught:
            await engine.chat.completions.create(
                messages=HELLO, request_id="r", extra_body={limit: 0.05}
            )

    error = caught.value
    assert (error.request_id, error.limit, error.seconds) == ("r", limit, 0.05)
    assert threading.get_ident() not in slow_rendering


async def test_a_cancellation_ends_the_rendering_of_a_template(
    slow_rendering: list[int],
) -> None:
    async with engine_with(ENDLESS) as engine, create_task_group() as tasks:
        tasks.start_soon(lambda: engine.chat.completions.create(messages=HELLO))
        while not slow_rendering:
            await to_thread.run_sync(lambda: None)

        tasks.cancel_scope.cancel()

    assert len(slow_rendering) == 1
