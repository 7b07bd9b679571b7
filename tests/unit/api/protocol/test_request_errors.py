"""Errors of chat requests and text completion requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from aiomlc import JSONFFIEngine
from aiomlc.api.session.loader import Loader
from aiomlc.errors import (
    BadRequestError,
    DuplicateRequestError,
    PromptTooLongError,
    UnsupportedFieldError,
)
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.templates.prompt_template import PromptTemplate
from aiomlc.testing import FakeCore, fake_loader, fake_model
from tests.unit.api.protocol.error_cases import (
    USER,
    Context,
    ErrorCase,
    check_error,
    make_engine,
    rejected,
)

pytestmark = pytest.mark.timeout(20)
TOOL = {"type": "function", "function": {"name": "f"}}


class InvalidRequest(NamedTuple):
    """The fields of an invalid chat request, and the expected error."""

    fields: dict[str, Any]
    param: str
    text: str
    error: type[Exception] = BadRequestError


INVALID_REQUESTS = {
    "best_of": InvalidRequest(
        {"best_of": 2}, "best_of", "best_of is not supported", UnsupportedFieldError
    ),
    "tool_call_id of a user message": InvalidRequest(
        {"messages": [{**USER, "tool_call_id": "x"}]},
        "messages[0].tool_call_id",
        "tool_call_id",
        UnsupportedFieldError,
    ),
    "tool_calls of a user message": InvalidRequest(
        {"messages": [{**USER, "tool_calls": []}]},
        "messages[0].tool_calls",
        "tool_calls",
        UnsupportedFieldError,
    ),
    "unknown role": InvalidRequest(
        {"messages": [USER, {"role": "poet", "content": "O"}]},
        "messages[1]",
        "role must be one of 'system', 'developer', 'user', 'assistant', 'tool', got 'poet'",
    ),
    "unknown content part": InvalidRequest(
        {"messages": [{"role": "user", "content": [{"type": "video", "url": "u"}]}]},
        "messages[0].content",
        "content part of type 'video' is not supported",
    ),
    "image of a system message": InvalidRequest(
        {
            "messages": [
                {"role": "system", "content": [{"type": "image_url", "image_url": "data:"}]}
            ]
        },
        "messages[0].content",
        "content part of type 'image_url' is not supported, only 'text'",
    ),
    "unknown field of an image": InvalidRequest(
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"uri": "data:"}}]}
            ]
        },
        "messages[0].content",
        "an image part must have the fields 'type' and 'image_url'",
        UnsupportedFieldError,
    ),
    "unknown type of tool_choice": InvalidRequest(
        {"tools": [TOOL], "tool_choice": {"type": "custom", "custom": {"name": "f"}}},
        "tool_choice",
        "type 'custom' is not supported",
    ),
    "unknown value of tool_choice": InvalidRequest(
        {"tools": [TOOL], "tool_choice": "always"}, "tool_choice", "'none', 'auto' or 'required'"
    ),
    "tool_choice that is not among the tools": InvalidRequest(
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
        "names 'g', which is not in tools",
    ),
    "unknown type of tool": InvalidRequest(
        {"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type", "'function'"
    ),
    "frequency_penalty": InvalidRequest(
        {"frequency_penalty": 2.5}, "frequency_penalty", "should be in range [-2, 2]"
    ),
    "presence_penalty": InvalidRequest(
        {"presence_penalty": -2.5}, "presence_penalty", "should be in range [-2, 2]"
    ),
    "logit_bias": InvalidRequest(
        {"logit_bias": {"7": 101}}, "logit_bias.7", "should be in range [-100, 100], got 101"
    ),
    "top_logprobs": InvalidRequest(
        {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "in range [0, 20]"
    ),
    "top_logprobs without logprobs": InvalidRequest(
        {"top_logprobs": 2}, "top_logprobs", '"logprobs" must be True to support "top_logprobs"'
    ),
    "debug_config": InvalidRequest(
        {"debug_config": {"disagg_config": {}}},
        "debug_config.disagg_config",
        "debug_config.disagg_config is not supported",
    ),
    "n": InvalidRequest({"n": 0}, "n", "should be at least 1"),
    "temperature": InvalidRequest({"temperature": -1}, "temperature", "should be non-negative"),
    "top_p": InvalidRequest({"top_p": 1.5}, "top_p", "in range [0, 1]"),
    "repetition_penalty": InvalidRequest(
        {"repetition_penalty": 0}, "repetition_penalty", "should be positive"
    ),
    "stop": InvalidRequest({"stop": ""}, "stop[0]", "cannot be empty"),
    "unknown type of response_format": InvalidRequest(
        {"response_format": {"type": "xml"}},
        "response_format",
        "'json_schema', 'grammar', 'structural_tag', got 'xml'",
    ),
    "schema that is not JSON": InvalidRequest(
        {"response_format": {"type": "json_object", "schema": "{"}},
        "response_format.schema",
        "is not JSON",
    ),
}


def chat(context: Context, /, **fields: Any) -> None:  # noqa: ANN401
    with make_engine() as engine:
        engine.chat.completions.create(**{"messages": [USER], **fields})


def complete(context: Context, /, **fields: Any) -> None:  # noqa: ANN401
    with make_engine() as engine:
        engine.completions.create(**{"prompt": "Hello", **fields})


def reuse_the_id_of_a_running_request(context: Context) -> None:
    core = FakeCore(["Hi"], hand_stepped=True)
    with make_engine(loader=fake_loader(core)) as engine:
        create = partial(engine.chat.completions.create, messages=[USER], request_id="one")
        with create(stream=True):
            create()


def send_a_long_prompt(context: Context) -> None:
    chat(context, messages=[{"role": "user", "content": "a" * 2000}])


def send_a_late_system_message(context: Context) -> None:
    template = ChatTemplate(
        "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
        "{{ raise_exception('the system message comes first') }}{% endif %}{% endfor %}"
    )
    with make_engine(loader=loader_for(template)) as engine:
        engine.chat.completions.create(messages=[USER, {"role": "system", "content": "Be kind."}])


def chat_with_a_conversation_template(context: Context, late: dict[str, Any]) -> None:
    template = Conversation(roles={"user": "U", "assistant": "A"}, seps=("\n",))
    with make_engine(loader=loader_for(template)) as engine:
        engine.chat.completions.create(messages=[USER, late])


def construct_a_template_with_three_separators(context: Context) -> None:
    Conversation(roles={"user": "U", "assistant": "A"}, seps=("1", "2", "3"))


def loader_for(template: PromptTemplate) -> Loader:
    async def load(model: object, **_: object) -> LoadedModel:
        return replace(fake_model(FakeCore()), chat_template=template)

    return load


ERRORS = [
    ErrorCase(
        "id of a running request",
        reuse_the_id_of_a_running_request,
        RuntimeError,
        DuplicateRequestError,
        None,
        "request_id 'one' belongs to a request that is still running",
    ),
    ErrorCase(
        "long prompt",
        send_a_long_prompt,
        ValueError,
        PromptTooLongError,
        None,
        "tokens, context window is 1024; shorten it by at least ",
    ),
    rejected(
        "late system message",
        send_a_late_system_message,
        "messages",
        "rejected the messages: the system message comes first",
    ),
    rejected(
        "late system message of a conversation template",
        partial(chat_with_a_conversation_template, late={"role": "system", "content": "Be kind."}),
        "messages",
        "does not support the role 'system'",
    ),
    rejected(
        "role that the conversation template lacks",
        partial(
            chat_with_a_conversation_template,
            late={"role": "tool", "content": "4", "tool_call_id": "x"},
        ),
        "messages",
        "does not support the role 'tool'",
    ),
    ErrorCase(
        "number of separators of a conversation template",
        construct_a_template_with_three_separators,
        ValueError,
        ValidationError,
        None,
        "seps should have size 1 or 2.",
    ),
    *(
        ErrorCase(name, partial(chat, **fields), ValueError, error, param, text)
        for name, (fields, param, text, error) in INVALID_REQUESTS.items()
    ),
    rejected(
        "stream_options without a stream",
        partial(chat, stream_options={"include_usage": True}),
        "stream_options",
        "stream must be set to True when stream_options is present",
    ),
    rejected(
        "prompt of the wrong type",
        partial(complete, prompt=5),
        "prompt",
        "must be a string, a list of token ids",
    ),
    rejected(
        "logprobs of a completion",
        partial(complete, logprobs=21),
        "logprobs",
        "in range [0, 20]",
    ),
    rejected(
        "best_of below n",
        partial(complete, n=2, best_of=1),
        "best_of",
        "must be >= n (2), got 1",
    ),
]


@pytest.mark.parametrize("case", ERRORS, ids=[case.name for case in ERRORS])
def test_a_request_error_has_mlc_llms_class_and_message(
    case: ErrorCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_error(case, Context(tmp_path, monkeypatch))


@pytest.fixture(scope="module")
def json_engine() -> Iterator[JSONFFIEngine]:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        yield engine


@pytest.mark.parametrize("request_", INVALID_REQUESTS.values(), ids=INVALID_REQUESTS)
def test_the_json_engine_yields_the_error_as_a_chunk_and_the_usage(
    json_engine: JSONFFIEngine, request_: InvalidRequest
) -> None:
    chunks = list(
        json_engine.chat.completions.create(
            **{
                "messages": [USER],
                "stream_options": {"include_usage": True},
                **request_.fields,
            }
        )
    )

    assert len(chunks) == 2
    assert chunks[0].choices[0].finish_reason == "error"
    assert request_.text in (chunks[0].choices[0].delta.content or "")
    assert chunks[1].usage is not None


@pytest.mark.parametrize(("text", "reason"), [("{", "is not JSON"), ("[]", "not a JSON object")])
def test_malformed_json_yields_an_error_chunk(
    json_engine: JSONFFIEngine, text: str, reason: str
) -> None:
    chunks = "".join(json_engine.chat_completion(text))

    assert reason in chunks
    assert '"finish_reason":"error"' in chunks
