"""The metrics of a server, read by Prometheus' own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from aiomlc import AsyncMLCEngine
from aiomlc.serve import create_app
from aiomlc.testing import FakeCore, fake_loader
from tests.unit.serve.asgi import CHAT, http_client

_GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


async def test_metrics_of_several_models() -> None:
    names = ("a", 'b"\\\n')
    engines = [AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) for _ in names]
    async with engines[0], engines[1]:
        app = create_app(dict(zip(names, engines, strict=True)))
        async with http_client(app) as client:
            await client.post("/v1/chat/completions", json={**CHAT, "model": "a"})
            response = await client.get("/metrics")

    families = list(text_string_to_metric_families(response.text))
    samples = {
        (sample.name, sample.labels.get("model_name")): sample.value
        for family in families
        for sample in family.samples
        if "le" not in sample.labels
    }
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert len({family.name for family in families}) == len(families)
    for prefix in ("aiomlc:", "vllm:"):
        for gauge in _GAUGES:
            assert {(f"{prefix}{gauge}", name) for name in names} <= samples.keys()

    assert samples["aiomlc_completion_tokens_total", "a"] == len("Hi!")
    assert samples["aiomlc_completion_tokens_total", names[1]] == 0
    assert samples["completion_tokens_sum", None] == len("Hi!")


async def test_responses_are_counted_by_status() -> None:
    async with (
        AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine,
        http_client(create_app(engine)) as client,
    ):
        await client.get("/nothing")
        await client.get("/health")
        text = (await client.get("/metrics")).text

    assert 'aiomlc_http_responses_total{status="200"} 1' in text
    assert 'aiomlc_http_responses_total{status="404"} 1' in text
