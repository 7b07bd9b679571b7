"""The options of the application, the API keys and the names of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig
from aiomlc.serve import Served, ServerOptions, create_app
from aiomlc.serve.http.api_keys import read_api_keys
from aiomlc.serve.models import to_registry
from aiomlc.testing import FakeCore, fake_loader


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"max_body_size": 0}, "max_body_size"),
        ({"ping_interval": -1.0}, "ping_interval"),
        ({"load": "later"}, "load"),
        ({"api_keys": ("",)}, "api_keys"),
        ({"api_keys": ("a b",)}, "api_keys"),
        ({"api_keys": ("é",)}, "api_keys"),
        ({"microserving_key": ""}, "microserving_key"),
        ({"microserving_peers": ("http://a",), "api_keys": ("a",)}, "microserving_key"),
    ],
)
def test_invalid_options_are_named(options: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        ServerOptions(**options)

    assert caught.value.param == param


def test_keys_of_the_option_the_file_and_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# of the team\nfile-1\n\n  file-2\n")
    environment = {"AIOMLC_API_KEY": "one", "AIOMLC_API_KEYS": "two, three"}
    keys = read_api_keys("option", path, environment)
    assert keys == ("option", "file-1", "file-2", "one", "two", "three")
    assert read_api_keys(None, None, {}) == ()


@pytest.mark.parametrize("environment", [{"AIOMLC_API_KEY": ""}, {"AIOMLC_API_KEYS": "a,,b"}])
def test_an_empty_key_does_not_disable_the_check(environment: dict[str, str]) -> None:
    with pytest.raises(BadRequestError, match="empty"):
        read_api_keys(None, None, environment)


def test_a_file_without_keys_or_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n")
    for path in (empty, tmp_path / "missing"):
        with pytest.raises(BadRequestError, match=path.name):
            read_api_keys(None, path, {})


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (AsyncMLCEngine(loader=fake_loader(FakeCore())), "pebble"),
        (EngineConfig(), "pebble"),
        ("mock://echo", "mock://echo"),
        ("HF://user/Model-1B", "Model-1B"),
    ],
)
def test_name_of_a_single_model(model: Served, name: str) -> None:
    assert [served.name for served in to_registry(model)] == [name]


def test_model_is_found_by_its_name_and_by_what_is_opened() -> None:
    registry = to_registry({"a": "mock://echo", "b": "HF://user/Model-1B"})
    assert registry.find("a").name == registry.find("mock://echo").name == "a"
    assert registry.find("HF://user/Model-1B").name == "b"


@pytest.mark.parametrize("models", [{}, 7, {"a": None}])
def test_wrong_models_are_rejected(models: Any) -> None:  # noqa: ANN401 - wrong values.
    with pytest.raises(BadRequestError):
        create_app(models)
