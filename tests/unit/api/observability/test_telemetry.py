"""OpenTelemetry spans of requests."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest
from anyio.lowlevel import checkpoint
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from aiomlc import AsyncMLCEngine, PromptTooLongError, RequestAbortedError, RequestFailedError
from aiomlc.testing import FakeCore, fake_loader

HELLO = [{"role": "user", "content": "Hello"}]
pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def only_span(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


async def test_a_request_has_a_span_with_the_conventional_attributes(
    exporter: InMemorySpanExporter,
) -> None:
    async with AsyncMLCEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        completion = await engine.chat.completions.create(
            messages=HELLO, temperature=0.5, max_tokens=10, stop=["X"], request_id="mine"
        )

    span = only_span(exporter)
    attributes = dict(span.attributes or {})
    seconds = attributes.pop("gen_ai.response.time_to_first_chunk")
    assert completion.usage is not None
    assert isinstance(seconds, float)
    assert span.name == "chat fake"
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "aiomlc",
        "gen_ai.request.model": "fake",
        "gen_ai.response.model": "fake",
        "gen_ai.response.id": "mine",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 10,
        "gen_ai.request.stop_sequences": ("X",),
        "gen_ai.usage.input_tokens": completion.usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ("stop",),
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_the_current_span_is_the_parent(exporter: InMemorySpanExporter) -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with trace.get_tracer("test").start_as_current_span("mine") as parent:
            await engine.completions.create(prompt="Hello")

    child = exporter.get_finished_spans()[0]
    assert child.name == "text_completion fake"
    assert child.parent is not None
    assert child.parent.span_id == parent.get_span_context().span_id


async def test_the_choices_of_a_request_share_one_span(exporter: InMemorySpanExporter) -> None:
    async with AsyncMLCEngine(loader=fake_loader(replies=["ab", "cde"])) as engine:
        await engine.chat.completions.create(messages=HELLO, n=2)

    attributes = only_span(exporter).attributes or {}
    assert attributes["gen_ai.request.choice.count"] == 2
    assert attributes["gen_ai.usage.output_tokens"] == 5
    assert attributes["gen_ai.response.finish_reasons"] == ("stop", "stop")


async def test_a_failure_sets_the_error_status(exporter: InMemorySpanExporter) -> None:
    async with AsyncMLCEngine(loader=fake_loader(failures={1: "no"})) as engine:
        with pytest.raises(RequestFailedError):
            await engine.chat.completions.create(messages=HELLO)

    span = only_span(exporter)
    assert (span.attributes or {})["error.type"] == "RequestFailedError"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "no")


async def test_a_rejected_request_has_a_span(exporter: InMemorySpanExporter) -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(PromptTooLongError):
            await engine.chat.completions.create(messages=[{"role": "user", "content": "a" * 2000}])

    assert (only_span(exporter).attributes or {})["error.type"] == "PromptTooLongError"


async def test_leaving_a_stream_early_ends_the_span(exporter: InMemorySpanExporter) -> None:
    core = FakeCore(["a" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        core.allow(1)
        async with await engine.chat.completions.create(messages=HELLO, stream=True) as stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break

        span = only_span(exporter)

    assert (span.attributes or {})["gen_ai.usage.output_tokens"] == 1
    assert (span.attributes or {})["gen_ai.response.finish_reasons"] == ()
    assert span.status.status_code is StatusCode.UNSET


async def test_garbage_collection_of_a_stream_ends_the_span(exporter: InMemorySpanExporter) -> None:
    core = FakeCore(["a" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        del stream
        gc.collect()
        while not exporter.get_finished_spans():
            await checkpoint()

    assert (only_span(exporter).attributes or {})["error.type"] == "RequestAbortedError"


async def test_an_aborted_request_has_the_error_status(exporter: InMemorySpanExporter) -> None:
    core = FakeCore(["a" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, request_id="mine"
        )
        await engine.abort("mine")
        with pytest.raises(RequestAbortedError):
            await stream.__anext__()

    assert (only_span(exporter).attributes or {})["error.type"] == "RequestAbortedError"


def test_opentelemetry_is_not_imported_by_the_library() -> None:
    program = """
import sys
from aiomlc import MLCEngine
with MLCEngine("mock://echo") as engine:
    engine.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
