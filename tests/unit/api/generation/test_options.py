"""The signatures and docstrings of request methods name every option."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from aiomlc.api.chat.resource import AsyncCompletions
from aiomlc.api.completions.resource import AsyncTextCompletions
from aiomlc.api.embeddings import AsyncEmbeddings, EmbeddingOptions
from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.engines.mlc_engine import MLCEngine
from aiomlc.api.engines.sync_resources import Completions, Embeddings, Responses, TextCompletions
from aiomlc.api.generation.options import (
    ChatOptions,
    CompletionOptions,
    ParseOptions,
    TokenOptions,
)
from aiomlc.api.responses.resource import AsyncResponses, ResponseOptions

METHODS: list[tuple[Callable[..., object], type]] = [
    (AsyncCompletions.create, ChatOptions),
    (AsyncCompletions.parse, ParseOptions),
    (AsyncCompletions.stream, ParseOptions),
    (AsyncTextCompletions.create, CompletionOptions),
    (AsyncResponses.create, ResponseOptions),
    (AsyncEmbeddings.create, EmbeddingOptions),
    (AsyncMLCEngine.generate, TokenOptions),
    (Completions.create, ChatOptions),
    (Completions.parse, ParseOptions),
    (Completions.stream, ParseOptions),
    (TextCompletions.create, CompletionOptions),
    (Responses.create, ResponseOptions),
    (Embeddings.create, EmbeddingOptions),
    (MLCEngine.generate, TokenOptions),
]


@pytest.mark.parametrize(("method", "options"), METHODS, ids=lambda part: part.__qualname__)
def test_the_signature_has_every_option(method: Callable[..., object], options: type) -> None:
    parameters = inspect.signature(method).parameters

    assert set(options.__annotations__) <= set(parameters)
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())
    assert "Annotated" not in str(parameters["model"])


@pytest.mark.parametrize(("method", "options"), METHODS, ids=lambda part: part.__qualname__)
def test_the_docstring_has_a_sentence_for_every_option(
    method: Callable[..., object], options: type
) -> None:
    lines = [line.strip() for line in inspect.getdoc(method).splitlines()]  # type: ignore[union-attr]
    sentences = dict(line.split(": ", 1) for line in lines[lines.index("Options:") + 1 :])

    explicit = {"messages", "prompt", "input", "stream", "response_format", "self"}
    assert set(sentences) | explicit >= set(options.__annotations__)
    assert all(sentence.endswith((".", ").")) for sentence in sentences.values())
