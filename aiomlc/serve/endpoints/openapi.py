"""The description of the API in the OpenAPI format."""

from __future__ import annotations

__all__ = ("openapi_document",)

import functools
import importlib.metadata
from typing import Any, final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from aiomlc.api.protocol.chat import ChatCompletion
from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.api.protocol.completion import Completion, CompletionRequest
from aiomlc.api.protocol.embedding import EmbeddingRequest, EmbeddingResponse
from aiomlc.api.protocol.model import Model, ModelList
from aiomlc.api.protocol.ranking import (
    ClassifyRequest,
    ClassifyResponse,
    RerankRequest,
    RerankResponse,
    ScoreRequest,
    ScoreResponse,
)
from aiomlc.api.protocol.response import Response
from aiomlc.api.protocol.response_request import ResponseRequest
from aiomlc.api.protocol.transcription import Transcription
from aiomlc.serve.endpoints.tokens import DetokenizeRequest, TokenizeRequest

_REFERENCE = "#/components/schemas/{model}"
# The path of each POST, what it does, and the models of its request and response.
_POSTS: tuple[tuple[str, str, type[BaseModel], type[BaseModel] | None], ...] = (
    ("/v1/chat/completions", "Complete a chat", ChatCompletionRequest, ChatCompletion),
    ("/v1/completions", "Complete a text", CompletionRequest, Completion),
    ("/v1/responses", "Generate a response", ResponseRequest, Response),
    ("/v1/embeddings", "Embed texts", EmbeddingRequest, EmbeddingResponse),
    ("/v1/rerank", "Rank documents for a query", RerankRequest, RerankResponse),
    ("/v1/score", "Score pairs of texts", ScoreRequest, ScoreResponse),
    ("/v1/classify", "Classify texts", ClassifyRequest, ClassifyResponse),
    ("/tokenize", "Tokenize a text or a chat", TokenizeRequest, None),
    ("/detokenize", "Turn token ids into text", DetokenizeRequest, None),
)
# The path of each form with audio, and what it does.
_FORMS = (
    ("/v1/audio/transcriptions", "Transcribe speech"),
    ("/v1/audio/translations", "Translate speech into English"),
)
_TEXT = {"type": "string"}
_FORM_SCHEMA = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        **dict.fromkeys(("model", "language", "prompt"), _TEXT),
        "response_format": {"enum": ["json", "text", "srt", "vtt", "verbose_json"]},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
        "stream": {"type": "boolean"},
        "timestamp_granularities[]": {"type": "array", "items": {"enum": ["segment"]}},
        "condition_on_previous_text": {"type": "boolean"},
        "compression_ratio_threshold": {"type": "number"},
        "logprob_threshold": {"type": "number"},
        "no_speech_threshold": {"type": "number"},
        "seed": {"type": "integer", "minimum": 0},
    },
}
_GETS: tuple[tuple[str, str, str, type[BaseModel] | None], ...] = (
    ("/v1/models", "List the models", "application/json", ModelList),
    ("/v1/models/{name}", "Describe a model", "application/json", Model),
    ("/health", "Whether the engines work", "application/json", None),
    ("/ready", "Whether requests are accepted", "application/json", None),
    ("/metrics", "The metrics, for Prometheus", "text/plain", None),
    ("/version", "The version of the server", "application/json", None),
)
_STREAMED = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
_ERROR = {
    "description": "An error, in OpenAI's shape",
    "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model="Error")}}},
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}


@functools.cache
def openapi_document() -> dict[str, Any]:
    """Return the document of the API, whose schemas are those of the library's requests."""
    requests = [(request, "validation") for _, _, request, _ in _POSTS]
    answers = [(answer, "serialization") for _, _, _, answer in _POSTS if answer is not None]
    answers += [(answer, "serialization") for _, _, _, answer in _GETS if answer is not None]
    answers.append((Transcription, "serialization"))
    names, definitions = models_json_schema(
        [*requests, *answers],  # type: ignore[list-item] # The modes are literals.
        schema_generator=_SchemaGenerator,
        ref_template=_REFERENCE,
    )
    schemas: dict[str, Any] = {**definitions.get("$defs", {}), "Error": _ERROR_SCHEMA}
    references: dict[object, Any] = {model: schema for (model, _), schema in names.items()}
    paths: dict[str, Any] = {}
    for path, summary, request, answer in _POSTS:
        paths[path] = {"post": _post(path, summary, references[request], references.get(answer))}

    for path, summary in _FORMS:
        paths[path] = {"post": _form(summary, references[Transcription])}

    for path, summary, media_type, answer in _GETS:
        operation = _operation(summary, {media_type: _schema(references.get(answer))})
        if "{name}" in path:
            operation["parameters"] = [_NAME]
        paths[path] = {"get": operation}

    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aiomlc",
            "summary": "OpenAI's API for local models",
            "version": importlib.metadata.version("aiomlc"),
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _post(path: str, summary: str, request: Any, answer: Any) -> dict[str, Any]:  # noqa: ANN401
    content = {"application/json": _schema(answer)}
    if path in _STREAMED:
        content["text/event-stream"] = {"schema": {"type": "string"}}

    body = {"required": True, "content": {"application/json": _schema(request)}}
    return {**_operation(summary, content), "requestBody": body}


def _form(summary: str, answer: Any) -> dict[str, Any]:  # noqa: ANN401
    texts = {kind: {"schema": _TEXT} for kind in ("text/plain", "text/event-stream")}
    # The answer without `response_format` has the text only.
    content = {"application/json": {"schema": {"anyOf": [answer, {"required": ["text"]}]}}, **texts}
    body = {"required": True, "content": {"multipart/form-data": {"schema": _FORM_SCHEMA}}}
    return {**_operation(summary, content), "requestBody": body}


def _operation(summary: str, content: dict[str, Any]) -> dict[str, Any]:
    answers = {"200": {"description": "Success", "content": content}, "default": _ERROR}
    return {"summary": summary, "responses": answers}


def _schema(schema: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON.
    return {} if schema is None else {"schema": schema}


@final
class _SchemaGenerator(GenerateJsonSchema):
    """A generator that describes Python functions, which JSON cannot carry, as impossible."""

    def callable_schema(self, schema: core_schema.CallableSchema) -> JsonSchemaValue:
        """Return the schema without values."""
        return {"not": {}}
