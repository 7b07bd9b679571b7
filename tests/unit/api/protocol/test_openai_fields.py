"""Every request field of OpenAI's client is either supported or rejected by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import openai.resources
import openai.resources.chat
import openai.resources.responses
import pytest

from aiomlc import BadRequestError
from aiomlc.api.protocol.chat_request import ChatCompletionRequest, parse_chat_request
from aiomlc.api.protocol.completion import CompletionRequest, parse_completion_request
from aiomlc.api.protocol.embedding import EmbeddingRequest, parse_embedding_request
from aiomlc.api.protocol.response_request import ResponseRequest, parse_response_request

# Parameters that the client itself handles.
_CLIENT_PARAMETERS = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
USER = {"role": "user", "content": "Hi"}


class Invalid:
    """A value that no field accepts."""


Parse = Callable[[Mapping[str, Any]], object]
REQUESTS: dict[str, tuple[Any, Any, Parse, dict[str, Any]]] = {
    "chat": (
        openai.resources.chat.completions.Completions.create,
        ChatCompletionRequest,
        parse_chat_request,
        {"messages": [USER]},
    ),
    "completions": (
        openai.resources.Completions.create,
        CompletionRequest,
        parse_completion_request,
        {"prompt": "Hi"},
    ),
    "embeddings": (
        openai.resources.Embeddings.create,
        EmbeddingRequest,
        parse_embedding_request,
        {"input": "Hi"},
    ),
    "responses": (
        openai.resources.responses.Responses.create,
        ResponseRequest,
        parse_response_request,
        {"input": "Hi"},
    ),
}


def field_names(create: Callable[..., object]) -> list[str]:
    return sorted(inspect.signature(create).parameters.keys() - _CLIENT_PARAMETERS)


@pytest.mark.parametrize("kind", REQUESTS)
def test_every_field_of_the_client_is_supported_or_rejected_by_name(kind: str) -> None:
    create, _, parse, required = REQUESTS[kind]
    names = field_names(create)
    assert required.keys() <= set(names)
    for name in names:
        with pytest.raises(BadRequestError) as caught:
            parse({**required, name: Invalid()})

        assert (caught.value.param or "").split(".")[0].split("[")[0] == name
        assert "unknown field" not in str(caught.value)


@pytest.mark.parametrize("kind", REQUESTS)
def test_fields_that_are_none_are_ignored(kind: str) -> None:
    create, request, parse, required = REQUESTS[kind]
    all_none = {name: None for name in field_names(create) if name not in required}

    assert isinstance(parse({**all_none, **required}), request)
