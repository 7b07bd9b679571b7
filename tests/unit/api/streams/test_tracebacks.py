"""Tracebacks of the blocking engine fit on a screen."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiomlc import AiomlcError, AsyncMLCEngine, MLCEngine, ModelLoadError, ModelNotFoundError
from aiomlc.testing import FakeCore, fake_loader


def frames(call: Callable[[], object]) -> tuple[AiomlcError, list[str]]:
    """Return the error that a call raises, and the files of its traceback."""
    with pytest.raises(AiomlcError) as caught:
        call()

    summary = traceback.extract_tb(caught.value.__traceback__)
    return caught.value, [frame.filename for frame in summary]


def test_a_constructor_error_has_no_frames_of_portals() -> None:
    error, files = frames(lambda: MLCEngine("no/such/model"))

    assert isinstance(error, ModelNotFoundError)
    assert files[-1].endswith("model_directory.py")
    assert not [file for file in files if "anyio" in file or "concurrent" in file]
    assert len("".join(traceback.format_exception(error)).splitlines()) <= 40


async def open_async(model: Path | None) -> None:
    """Open an asynchronous engine."""
    async with AsyncMLCEngine(model):
        raise AssertionError


@pytest.mark.parametrize("open_engine", [MLCEngine, lambda model: anyio.run(open_async, model)])
@pytest.mark.parametrize("mistake", ["AIOMLC_HOME", "config.json"])
def test_an_error_of_opening_ends_where_it_was_raised_and_has_no_causes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    open_engine: Callable[[Path | None], object],
    mistake: str,
) -> None:
    (tmp_path / "config.json").write_text("{")
    if mistake == "AIOMLC_HOME":
        monkeypatch.setenv(mistake, str(tmp_path / "config.json" / "home"))
    error, files = frames(lambda: open_engine(None if mistake == "AIOMLC_HOME" else tmp_path))

    assert isinstance(error, ModelLoadError)
    assert mistake in str(error)
    assert Path(files[-2]).name == "loader.py"
    assert "\n\n" not in "".join(traceback.format_exception(error))


def test_a_request_error_has_no_frames_of_pydantic() -> None:
    with MLCEngine(loader=fake_loader(FakeCore())) as engine:
        create = engine.chat.completions.create
        error, files = frames(lambda: create(messages=[], temperature=0))

    assert not [file for file in files if "anyio" in file or "concurrent" in file]
    text = "".join(traceback.format_exception(error))
    assert "pydantic" not in text
    assert len(text.splitlines()) <= 40


@pytest.mark.parametrize(
    "mistake",
    [
        {"messages": [], "temperature": -1},
        {"messages": [{"role": "user", "content": "word " * 5000}]},
        {"messages": [{"role": "user", "content": "Hi"}], "tool_choice": "required"},
    ],
)
def test_a_request_error_has_a_traceback_of_one_screen(mistake: dict[str, Any]) -> None:
    with MLCEngine(loader=fake_loader(FakeCore())) as engine:
        error, _ = frames(lambda: engine.chat.completions.create(**mistake))

    async def create() -> None:
        async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
            await engine.chat.completions.create(**mistake)

    async_error, files = frames(lambda: anyio.run(create))

    assert len("".join(traceback.format_exception(error)).splitlines()) <= 20
    assert len([file for file in files if "aiomlc" in Path(file).parts]) <= 4
    assert str(async_error) == str(error)


def test_an_error_that_is_raised_again_does_not_grow() -> None:
    with MLCEngine(loader=fake_loader(FakeCore())) as engine:
        create = engine.chat.completions.create
        lengths = {len(frames(lambda: create(messages=[]))[1]) for _ in range(3)}

    assert len(lengths) == 1
