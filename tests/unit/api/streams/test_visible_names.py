"""`dir()` of the objects of an engine lists what users call."""

from __future__ import annotations

from aiomlc import AsyncMLCEngine, MLCEngine
from aiomlc.testing import FakeCore, fake_loader

HELLO = [{"role": "user", "content": "Hello"}]
CREATED = {
    "chat": {"completions"},
    "completions": {"create"},
    "embeddings": {"create"},
    "models": {"list", "retrieve"},
    "responses": {"create"},
}
STREAM = {"aclose", "close", "extra", "extra_attributes", "receive", "request_id", "statistics"}


def visible(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


async def test_resources_and_streams_have_only_public_names() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        assert "is_stepping_here" not in dir(engine)
        assert CREATED.keys() <= visible(engine)
        for name, names in CREATED.items():
            assert visible(getattr(engine, name)) == names
        assert visible(engine.chat.completions) == {"create", "parse", "stream"}
        async with engine.chat.completions.create(messages=HELLO, stream=True) as stream:
            assert visible(stream) == STREAM
        async with engine.generate("Hello") as tokens:
            assert visible(tokens) == STREAM
        assert visible(engine.generate_many([])) == set()


def test_resources_of_the_blocking_engine_have_only_public_names() -> None:
    with MLCEngine(loader=fake_loader(FakeCore())) as engine:
        for name, names in CREATED.items():
            assert visible(getattr(engine, name)) == names
        assert visible(engine.chat.completions) == {"create", "parse", "stream"}
        with engine.chat.completions.create(messages=HELLO, stream=True) as stream:
            assert visible(stream) == {"close", "request_id"}
