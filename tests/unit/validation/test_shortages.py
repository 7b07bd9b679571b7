"""What the system lacks is an error of the library."""

from __future__ import annotations

import pytest
from anyio import to_thread

from aiomlc import AsyncMLCEngine, EngineError, MLCEngine, ModelLoadError
from aiomlc.testing import FakeCore, fake_loader
from aiomlc.validation.shortages import names_shortages, shortage_errors


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", fail)


@pytest.mark.usefixtures("no_thread")
def test_an_engine_whose_thread_cannot_be_started_says_so() -> None:
    with pytest.raises(EngineError, match=r"cannot start a thread: .*ulimit -u"):
        MLCEngine(loader=fake_loader(FakeCore(["Hi"])))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.usefixtures("no_thread")
async def test_a_model_that_cannot_be_opened_without_threads_says_so() -> None:
    with pytest.raises(EngineError, match="cannot start a thread"):
        async with AsyncMLCEngine():
            pass


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (MemoryError(), EngineError, "there is not enough memory: an allocation failed"),
        (MemoryError("8 GB"), EngineError, "there is not enough memory: 8 GB"),
        (RuntimeError("another one"), RuntimeError, "^another one$"),
        (ModelLoadError("its own"), ModelLoadError, "^its own$"),
    ],
)
async def test_other_errors_stay(error: Exception, expected: type[Exception], message: str) -> None:
    @names_shortages
    async def fail() -> None:
        await to_thread.run_sync(lambda: None)
        raise error

    with pytest.raises(expected, match=message) as caught:
        await fail()

    assert type(caught.value) is expected


def test_nothing_is_mapped_without_an_error() -> None:
    with shortage_errors():
        pass
