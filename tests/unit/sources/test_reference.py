"""The names of models, and the environment of the hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from aiomlc import BadRequestError
from aiomlc.sources.environment import read_environment
from aiomlc.sources.reference import HubReference, parse_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("HF://mlc-ai/Llama-3", HubReference("mlc-ai/Llama-3")),
        ("HF://mlc-ai/Llama-3/", HubReference("mlc-ai/Llama-3")),
        ("hf://a/b@v1.0", HubReference("a/b", "v1.0")),
        ("hf://a/b@refs/pr/7", HubReference("a/b", "refs/pr/7")),
        (f"hf://a/b@{COMMIT}:q.gguf", HubReference("a/b", COMMIT, "q.gguf")),
        ("hf://a/b:sub dir/Q4_K_M-00001-of-00002.GGUF",
         HubReference("a/b", None, "sub dir/Q4_K_M-00001-of-00002.GGUF")),
        ("Qwen/Qwen3-0.6B", HubReference("Qwen/Qwen3-0.6B")),
        ("a/b@main:q.gguf", HubReference("a/b", "main", "q.gguf")),
    ],
)  # fmt: skip
def test_a_repository_is_parsed(name: str, reference: HubReference) -> None:
    parsed = parse_source(name)

    assert parsed == reference
    assert isinstance(parsed, HubReference)
    assert parsed.is_explicit == name.lower().startswith("hf://")
    assert parse_source(str(reference)) == reference
    assert parsed.commit == (COMMIT if COMMIT in name else None)


@pytest.mark.parametrize(
    "name",
    ["gpt2", "./a/b", "../a/b", "/a/b", "a/b/c", "~/a", "~nobody0/b", "a--b/c", "a/b.git", "a/b..c",
     "a/", ".", "a b/c", "a/b\0", "x" * 300, "x/" * 5000, "-a/b"],
)  # fmt: skip
def test_other_names_are_paths(name: str) -> None:
    assert isinstance(parse_source(name), Path)


def test_what_exists_is_never_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ada" / "pebble").mkdir(parents=True)
    (tmp_path / "ada" / "file").touch()
    monkeypatch.chdir(tmp_path)

    assert parse_source("ada/pebble") == Path("ada/pebble")
    assert parse_source("ada/file") == Path("ada/file")
    assert parse_source("HF://ada/pebble") == HubReference("ada/pebble")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("HF://", "must be HF://user/repository"),
        ("HF://llama", "must be HF://user/repository"),
        ("HF://a/b/c", "must be HF://user/repository"),
        ("HF://a/..", "must be HF://user/repository"),
        ("HF://a--b/c", "must be HF://user/repository"),
        ("hf://a/b@", "the revision after @"),
        ("hf://a/b@../x", "the revision after @"),
        ("hf://a/b@-x", "the revision after @"),
        ("a/b@x y", "the revision after @"),
        ("hf://a/b:", "the file after :"),
        ("hf://a/b:model.safetensors", "the file after :"),
        ("hf://a/b:../x.gguf", "the file after :"),
        ("hf://a/b:/x.gguf", "the file after :"),
        ("https://example.com/a/b", "is a URL: pass HF://"),
        ("", "is empty"),
    ],
)
def test_a_malformed_name_says_what_is_allowed(name: str, problem: str) -> None:
    with pytest.raises(BadRequestError, match=problem) as caught:
        parse_source(name)

    assert caught.value.param == "model"
    assert name in str(caught.value)


def test_the_path_of_an_mlc_configuration_is_its_directory(tmp_path: Path) -> None:
    (tmp_path / "mlc-chat-config.json").touch()

    assert parse_source(tmp_path / "mlc-chat-config.json") == tmp_path
    assert parse_source(tmp_path / "config.json") == tmp_path / "config.json"
    missing = tmp_path / "a" / "mlc-chat-config.json"
    assert parse_source(missing) == missing


def test_the_environment_is_that_of_huggingface_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    default = read_environment()
    monkeypatch.setenv("HOME", "/home/ada")
    assert read_environment().cache == Path("/home/ada/.cache/huggingface/hub")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert read_environment().cache == Path("/cache/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "~/hf")
    assert read_environment().cache == Path("/home/ada/hf/hub")
    monkeypatch.setenv("HUGGINGFACE_HUB_CACHE", "$HOME/old")
    assert read_environment().cache == Path("/home/ada/old")
    monkeypatch.setenv("HF_HUB_CACHE", "/new")
    monkeypatch.setenv("HF_HUB_OFFLINE", "yes")
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror/")
    environment = read_environment()

    assert (environment.cache, environment.endpoint) == (Path("/new"), "http://mirror")
    assert (environment.is_offline, default.is_offline) == (True, False)
    assert default.endpoint == constants._HF_DEFAULT_ENDPOINT
