"""The endpoints: what they answer on asyncio and on trio."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from typing import Any

import httpx2
import jsonschema
import pytest
from anyio import Event, create_task_group, wait_all_tasks_blocked
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as OpenAIResponse

from aiomlc import AsyncMLCEngine, EngineConfig, ModelLoadError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.sampling_params import SamplingParams
from aiomlc.serve import ServerOptions, create_app
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader
from tests.unit.api.image_embedder import NUM_TOKENS, embed_images
from tests.unit.runtime.images import pictures
from tests.unit.serve.asgi import CHAT, events_of, http_client, serving, text_of

pytestmark = pytest.mark.timeout(30)
PNG = pictures.encoded(pictures.gradient(5, 3), "PNG")


async def test_chat_completion_is_openais_object() -> None:
    async with serving(FakeCore(["Hi!"])) as (_, client):
        response = await client.post("/v1/chat/completions", json=CHAT)

    completion = ChatCompletion.model_validate(response.json())
    assert response.headers["content-type"] == "application/json"
    assert completion.choices[0].message.content == "Hi!"
    assert completion.model == "fake"
    assert isinstance(completion.usage, CompletionUsage)


async def test_streamed_chat_ends_with_done_and_is_openais_chunks() -> None:
    async with serving(FakeCore(["Hi!"])) as (_, client):
        fields = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
        response = await client.post("/v1/chat/completions", json=fields)

    events = events_of(response.text)
    chunks = [ChatCompletionChunk.model_validate(event) for event in events[:-1]]
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert events[-1] == "[DONE]"
    assert text_of(events) == "Hi!"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []


@pytest.mark.parametrize("stream", [False, True])
async def test_text_completion(stream: bool) -> None:
    async with serving(FakeCore(["Hi!"])) as (_, client):
        response = await client.post("/v1/completions", json={"prompt": "a", "stream": stream})

    events = events_of(response.text)[:-1] if stream else [response.json()]
    assert "".join(event["choices"][0]["text"] for event in events) == "Hi!"


async def test_best_of_returns_the_best_choices() -> None:
    async with serving(FakeCore(["Hi!"])) as (_, client):
        response = await client.post("/v1/completions", json={"prompt": "a", "best_of": 3})

    assert len(response.json()["choices"]) == 1
    assert response.json()["usage"]["completion_tokens"] == 3 * len("Hi!")


async def test_response_is_openais_object() -> None:
    async with serving(FakeCore(["Hi!"])) as (_, client):
        response = await client.post("/v1/responses", json={"input": "Hello"})

    assert OpenAIResponse.model_validate(response.json()).output_text == "Hi!"


async def test_streamed_response_has_named_events_and_no_done() -> None:
    async with serving(FakeCore(["Hi!"])) as (_, client):
        response = await client.post("/v1/responses", json={"input": "Hello", "stream": True})

    names = [line[7:] for line in response.text.splitlines() if line.startswith("event: ")]
    events = events_of(response.text)
    assert names == [event["type"] for event in events]
    assert names[0] == "response.created"
    assert names[-1] == "response.completed"
    deltas = [event["delta"] for event in events if event["type"].endswith("text.delta")]
    assert "".join(deltas) == "Hi!"


async def test_weights_and_vectors_of_tokens_are_fields_of_embeddings() -> None:
    encoder = AsyncMLCEngine(loader=fake_loader(FakeEncoder(has_token_heads=True)))
    async with encoder, http_client(create_app({"a": encoder})) as client:
        fields = {"input": [[4, 3]], "normalize": False}
        options = {"return_sparse": True, "return_multi_vector": True}
        plain = await client.post("/v1/embeddings", json=fields)
        embeddings = await client.post("/v1/embeddings", json={**fields, **options})
        pairs = {"text_1": "d", "text_2": ["d", "e"], "similarity": "sparse"}
        scores = await client.post("/v1/score", json=pairs)
        wrong = await client.post("/v1/score", json={**pairs, "similarity": "cosine"})

    item = {"object": "embedding", "index": 0, "embedding": [3.5, 0.5, 1]}
    tokens = {"sparse_embedding": {"indices": [3, 4], "values": [1, 2]}, "multi_vector": [[3, 1]]}
    assert plain.json()["data"] == [item]
    assert embeddings.json()["data"] == [{**item, **tokens}]
    # The query has the prompt "q", which is no token of the documents.
    assert [each["score"] for each in scores.json()["data"]] == [1, 0]
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "similarity")


async def test_images_and_texts_are_inputs_of_embeddings() -> None:
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"image": url}, {"text": "one"}]
    async with embed_images() as encoder, http_client(create_app({"a": encoder})) as client:
        answer = await client.post("/v1/embeddings", json={"input": parts, "normalize": False})
        refused = await client.post("/v1/embeddings", json={"input": ["one", {"image": url[:-9]}]})

    image, again, _ = (item["embedding"] for item in answer.json()["data"])
    assert image == again == [5, 3, -1]
    assert answer.json()["usage"]["prompt_tokens"] == 2 * NUM_TOKENS + 3
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[1]")


async def test_embeddings_of_an_encoder_beside_a_decoder() -> None:
    decoder = AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"])))
    encoder = AsyncMLCEngine(loader=fake_loader(FakeEncoder()))
    async with decoder, encoder, http_client(create_app({"a": decoder, "b": encoder})) as client:
        fields = {"input": ["one", "two"], "model": "b"}
        embeddings = await client.post("/v1/embeddings", json=fields)
        chat = await client.post("/v1/chat/completions", json={**CHAT, "model": "a"})
        wrong = await client.post("/v1/embeddings", json={**fields, "model": "a"})
        unnamed = await client.post("/v1/embeddings", json={"input": "one"})
        unknown = await client.post("/v1/embeddings", json={"input": "one", "model": "c"})
        metrics = await client.get("/metrics")

    assert [item["index"] for item in embeddings.json()["data"]] == [0, 1]
    assert chat.json()["choices"][0]["message"]["content"] == "Hi!"
    assert wrong.status_code == unnamed.status_code == 400
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"
    assert 'model_name="a"' in metrics.text
    assert 'model_name="b"' in metrics.text


async def test_the_embedding_model_answers_to_any_name_that_is_not_served() -> None:
    decoder = AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"])))
    encoder = AsyncMLCEngine(loader=fake_loader(FakeEncoder()))
    options = ServerOptions(embedding_model="b")
    app = create_app({"a": decoder, "b": encoder}, options)
    async with decoder, encoder, http_client(app) as client:
        answers = [
            await client.post("/v1/embeddings", json={"input": "one", "model": name})
            for name in ("b", "any", None, "a")
        ]
        chat = await client.post("/v1/chat/completions", json={**CHAT, "model": "any"})

    assert [answer.status_code for answer in answers] == [200, 200, 200, 400]
    assert chat.status_code == 404


async def test_requests_wait_for_a_model_that_is_reloaded() -> None:
    is_loading, may_load = Event(), Event()
    may_load.set()

    async def load(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        is_loading.set()
        await may_load.wait()
        return await fake_loader(FakeCore(["Hi!"]))(*arguments, **options)

    async def ask() -> None:
        statuses.append((await client.post("/v1/chat/completions", json=CHAT)).status_code)

    statuses: list[int] = []
    async with AsyncMLCEngine(loader=load) as engine, http_client(create_app(engine)) as client:
        is_loading, may_load = Event(), Event()
        async with create_task_group() as tasks:
            tasks.start_soon(engine.reload)
            await is_loading.wait()
            tasks.start_soon(ask)
            await wait_all_tasks_blocked()
            may_load.set()

        assert statuses == [200]
        await engine.unload()
        response = await client.post("/v1/chat/completions", json=CHAT)

    assert response.status_code == 503
    assert "call reload first" in response.json()["error"]["message"]


async def test_models_are_listed_and_retrieved_by_name() -> None:
    async with serving() as (_, client):
        models = (await client.get("/v1/models")).json()
        model = (await client.get("/v1/models/fake")).json()
        missing = await client.get("/v1/models/other")

    assert models["data"] == [model]
    assert model["id"] == "fake"
    assert missing.status_code == 404


async def test_an_open_model_tells_its_context_and_the_defaults_in_force() -> None:
    async def load(*arguments: Any, **options: Any) -> LoadedModel:  # noqa: ANN401
        loaded = await fake_loader(FakeCore())(*arguments, **options)
        assert isinstance(loaded, LoadedModel)
        return replace(loaded, default_options=SamplingParams(temperature=0.3, top_k=5))

    engine = AsyncMLCEngine(loader=load)
    async with http_client(create_app(engine, ServerOptions(load="demand"))) as client:
        before = (await client.get("/v1/models")).json()["data"][0]
        await engine.metrics()
        [model] = (await client.get("/v1/models")).json()["data"]
        engine.terminate()

    assert before.get("max_model_len") is before.get("sampling_defaults") is None
    assert model["max_model_len"] > 0
    assert model["sampling_defaults"] == {
        "temperature": 0.3,
        "top_p": 1.0,
        "top_k": 5,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
    }


async def test_a_server_of_one_model_accepts_any_name() -> None:
    async with serving(FakeCore(["Hi!"])) as (_, client):
        response = await client.post("/v1/chat/completions", json={**CHAT, "model": "gpt-5"})

    assert response.json()["model"] == "gpt-5"


async def test_tokens_of_a_text_and_of_a_chat() -> None:
    async with serving() as (_, client):
        text = await client.post("/tokenize", json={"prompt": "Hello", "return_token_strs": True})
        chat = await client.post("/tokenize", json=CHAT)
        back = await client.post("/detokenize", json={"tokens": text.json()["tokens"]})

    assert text.json()["count"] == len(text.json()["tokens"]) > 0
    assert "".join(text.json()["token_strs"]) == "Hello"
    assert back.json() == {"prompt": "Hello"}
    assert chat.json()["count"] > text.json()["count"]
    assert chat.json()["max_model_len"] > chat.json()["count"]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 1}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
    ],
)
async def test_invalid_tokens_name_the_field(path: str, fields: dict[str, Any], param: str) -> None:
    async with serving() as (_, client):
        response = await client.post(path, json=fields)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


async def test_unsupported_fields_of_a_tokenized_chat_are_ignored_if_the_operator_wishes() -> None:
    async with serving(ignore_unsupported_fields=True) as (_, client):
        fields = {**CHAT, "cache_prompt": True}
        response = await client.post("/tokenize", json=fields)

    assert response.json()["count"] > 0


async def test_texts_and_tokens_beyond_the_context_window_are_refused_unread() -> None:
    async with serving() as (_, client):
        window = (await client.post("/tokenize", json={"prompt": "a"})).json()["max_model_len"]
        text = await client.post("/tokenize", json={"prompt": "a " * 500_000})
        tokens = await client.post("/detokenize", json={"tokens": [1] * (window + 1)})

    assert text.status_code == tokens.status_code == 400
    codes = {response.json()["error"]["code"] for response in (text, tokens)}
    assert codes == {"context_length_exceeded"}


async def test_token_ids_beyond_the_vocabulary_are_an_error_of_the_request() -> None:
    async with serving() as (_, client):
        response = await client.post("/detokenize", json={"tokens": [2**31]})

    assert response.status_code == 400


async def test_probes_of_an_engine_that_dies() -> None:
    async with http_client(
        create_app(AsyncMLCEngine(loader=fake_loader(FakeCore(dies_at_step=1))))
    ) as client:
        before = await client.get("/ready")
        await client.post("/v1/chat/completions", json=CHAT)
        health, ready = await client.get("/health"), await client.get("/ready")

    assert before.status_code == 503
    assert before.json()["status"] == "unavailable"
    assert health.status_code == ready.status_code == 503
    assert list(health.json()["models"].values()) == ["dead"]


async def test_probes_while_models_load_on_demand() -> None:
    engine = AsyncMLCEngine(loader=fake_loader(FakeCore()))
    app = create_app(engine, ServerOptions(load="demand"))
    async with http_client(app) as client:
        before = (await client.get("/ready")).json()
        await client.post("/v1/chat/completions", json=CHAT)
        after = (await client.get("/ready")).json()

    app.terminate()
    assert list(before["models"].values()) == ["unloaded"]
    assert list(after["models"].values()) == ["loaded"]
    assert before["status"] == after["status"] == "ready"


async def test_a_request_that_leaves_while_the_model_loads_does_not_stop_the_loading() -> None:
    started, may_end = Event(), Event()
    num_loads = 0

    async def load(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        nonlocal num_loads
        num_loads += 1
        started.set()
        await may_end.wait()
        return await fake_loader(FakeCore(["Hi!"]))(*arguments, **options)

    app = create_app(AsyncMLCEngine(loader=load), ServerOptions(load="demand"))
    async with http_client(app) as client, create_task_group() as tasks:
        tasks.start_soon(partial(client.post, "/v1/chat/completions", json=CHAT))
        await started.wait()
        tasks.cancel_scope.cancel()

    may_end.set()
    async with http_client(app) as client:
        response = await client.post("/v1/chat/completions", json=CHAT)

    app.terminate()
    assert response.status_code == 200
    assert num_loads == 1


async def test_a_model_that_could_not_be_opened_is_opened_by_the_next_request() -> None:
    failures = [ModelLoadError("a file is missing"), None]

    async def load(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        if failure := failures.pop(0):
            raise failure

        return await fake_loader(FakeCore(["Hi!"]))(*arguments, **options)

    app = create_app(AsyncMLCEngine(loader=load), ServerOptions(load="demand"))
    async with http_client(app) as client:
        statuses = [
            (await client.post("/v1/chat/completions", json=CHAT)).status_code for _ in range(2)
        ]

    app.terminate()
    assert statuses == [500, 200]


async def test_version_and_description() -> None:
    async with serving() as (_, client):
        version = await client.get("/version")
        document = await client.get("/openapi.json")

    assert version.json()["version"]
    paths = document.json()["paths"]
    assert {"/v1/chat/completions", "/v1/embeddings", "/metrics"} <= paths.keys()
    form = paths["/v1/audio/transcriptions"]["post"]["requestBody"]["content"]
    assert "file" in form["multipart/form-data"]["schema"]["required"]
    schemas = document.json()["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert {"index", "embedding", "sparse_embedding"} <= schemas["Embedding"]["properties"].keys()
    assert {"index", "relevance_score", "document"} == schemas["RerankResult"]["properties"].keys()


@pytest.mark.parametrize("path", ["/", "/playground/index.html"])
async def test_playground_is_served_with_a_strict_policy(path: str) -> None:
    async with serving(api_keys=("secret",)) as (_, client):
        page = await client.get(path)

    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["nothing.js", "..%2foptions.py", "%2e%2e/options.py"])
async def test_playground_has_no_other_files(name: str) -> None:
    async with serving() as (_, client):
        response = await client.get(f"/playground/{name}")

    assert response.status_code == 404


async def test_playground_can_be_left_out() -> None:
    async with serving(playground=False) as (_, client):
        assert (await client.get("/")).status_code == 404


async def debug(client: httpx2.AsyncClient, name: str) -> httpx2.Response:
    return await client.post(f"/debug/{name}", json={"model": "fake"})


async def test_debug_endpoints_exist_only_if_enabled() -> None:
    async with serving() as (_, client):
        assert (await debug(client, "reset_engine")).status_code == 404
        response = await client.post(
            "/v1/chat/completions", json={**CHAT, "debug_config": {"ignore_eos": True}}
        )
        empty = await client.post("/v1/chat/completions", json={**CHAT, "debug_config": {}})

    assert empty.status_code == 200
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "debug_config"


async def test_debug_endpoints() -> None:
    engine = AsyncMLCEngine(
        engine_config=EngineConfig(enable_tracing=True), loader=fake_loader(FakeCore())
    )
    async with engine:
        app = create_app({"fake": engine}, ServerOptions(enable_debug=True))
        async with http_client(app) as client:
            chat = {**CHAT, "debug_config": {"ignore_eos": True}}
            assert (await client.post("/v1/chat/completions", json=chat)).status_code == 200
            trace = await debug(client, "dump_event_trace")
            metrics = await debug(client, "dump_engine_metrics")
            reset = await debug(client, "reset_engine")
            profiler = await debug(client, "cuda_profiler_start")

    assert trace.json()["traceEvents"]
    assert metrics.json()["prompt_tokens_sum"] > 0
    assert reset.status_code == 200
    assert profiler.status_code == 400


async def test_microserving_is_off_without_peers() -> None:
    fields = {"prompt": "Hello", "end": -1}
    async with serving() as (_, client):
        assert (await client.post("/microserving/prep_recv", json=fields)).status_code == 404
    async with serving(microserving_peers=("http://other:8000",)) as (_, client):
        answer = await client.post("/microserving/prep_recv", json=fields)
        assert answer.status_code == 400
        assert "cannot be transferred" in answer.json()["error"]["message"]
