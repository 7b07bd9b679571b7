"""Whatever a request says, it is answered or refused with an error of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiomlc import AiomlcError, JSONFFIEngine, MLCEngine
from aiomlc.api.options import ChatOptions, CompletionOptions
from aiomlc.testing import fake_loader

pytestmark = pytest.mark.timeout(120)

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 3)
    | st.floats()
    | st.text(max_size=8)
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
_WORDS = st.sampled_from(
    ["user", "assistant", "tool", "system", "function", "text", "auto", "required", "json_object"]
)
_MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "name", "tool_calls", "tool_call_id", "x"]),
    _WORDS | _JSON,
    max_size=4,
)
_MESSAGES = st.lists(_MESSAGE | st.just({"role": "user", "content": "Hi"}), max_size=3) | _JSON
_TOOLS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "function": st.dictionaries(
                st.sampled_from(["name", "parameters", "strict"]), _WORDS | _JSON
            ),
        }
    ),
    max_size=2,
)
_VALUES = _WORDS | _JSON | _MESSAGES | _TOOLS
_CHAT_FIELDS = st.sampled_from([*ChatOptions.__annotations__, "stream", "functions", "audio", "é"])
_COMPLETION_FIELDS = st.sampled_from([*CompletionOptions.__annotations__, "stream", "tools"])
_MANY = settings(  # Two thousand between the four.
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine(loader=fake_loader()) as engine:
        yield engine
        statistics = engine.statistics()
        assert (statistics.num_running, statistics.num_waiting) == (0, 0)


def exhaust(answer: Any) -> None:  # noqa: ANN401
    if isinstance(answer, Iterator):
        for _ in answer:
            pass


@_MANY
@given(messages=_MESSAGES, options=st.dictionaries(_CHAT_FIELDS, _VALUES, max_size=4))
def test_a_chat(engine: MLCEngine, messages: Any, options: dict[str, Any]) -> None:  # noqa: ANN401
    options.pop("n", None)  # A hundred choices are sound, and slow.
    with suppress(AiomlcError):
        exhaust(engine.chat.completions.create(messages=messages, **options))


@_MANY
@given(prompt=_VALUES, options=st.dictionaries(_COMPLETION_FIELDS, _VALUES, max_size=4))
def test_a_plain_completion(engine: MLCEngine, prompt: Any, options: dict[str, Any]) -> None:  # noqa: ANN401
    for name in ("n", "best_of"):
        options.pop(name, None)
    with suppress(AiomlcError):
        exhaust(engine.completions.create(prompt=prompt, **options))


@_MANY
@given(
    input=_VALUES, options=st.dictionaries(st.text(max_size=12) | _CHAT_FIELDS, _VALUES, max_size=3)
)
def test_a_response(engine: MLCEngine, input: Any, options: dict[str, Any]) -> None:  # noqa: A002, ANN401
    options.pop("self", None)
    options.pop("input", None)
    with suppress(AiomlcError):
        exhaust(engine.responses.create(input=input, **options))


@pytest.fixture(scope="module")
def json_engine() -> Iterator[JSONFFIEngine]:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        yield engine


@_MANY
@given(request=st.dictionaries(_CHAT_FIELDS | st.just("messages"), _VALUES, max_size=5) | _JSON)
def test_a_request_as_json_text(json_engine: JSONFFIEngine, request: Any) -> None:  # noqa: ANN401
    if isinstance(request, dict):
        request = {**request, "n": 1, "stream": True}

    try:
        chunks = list(json_engine.chat_completion(json.dumps(request)))
    except ValueError:  # Upstream's error for what is no request at all.
        return

    assert chunks
    for text in chunks:
        assert {chunk["object"] for chunk in json.loads(text)} == {"chat.completion.chunk"}
