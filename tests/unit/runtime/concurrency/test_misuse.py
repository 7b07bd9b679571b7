"""Engines and streams explain themselves to `with` and `for` of the wrong kind."""

from __future__ import annotations

import pytest

from aiomlc import AsyncMLCEngine, MLCEngine
from aiomlc.testing import fake_loader


def test_with_over_an_async_engine_says_what_to_use() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    expected = r"AsyncMLCEngine .* use `async with`, or `MLCEngine`"
    with pytest.raises(TypeError, match=expected), engine:  # type: ignore[attr-defined]
        pass


async def test_async_with_over_a_blocking_engine_says_what_to_use() -> None:
    with MLCEngine(loader=fake_loader()) as engine:
        expected = r"MLCEngine .* use `with`, or `AsyncMLCEngine`"
        with pytest.raises(TypeError, match=expected):
            async with engine:  # type: ignore[attr-defined]
                pass


async def test_async_for_over_a_blocking_stream_says_what_to_use() -> None:
    with MLCEngine(loader=fake_loader()) as engine, engine.generate("Hello") as stream:
        with pytest.raises(TypeError, match=r"BlockingStream .* use `for`, or `AsyncMLCEngine`"):
            async for _ in stream:  # type: ignore[attr-defined]
                pass

        with pytest.raises(TypeError, match=r"BlockingStream .* use `with`, or `AsyncMLCEngine`"):
            async with stream:  # type: ignore[attr-defined]
                pass
