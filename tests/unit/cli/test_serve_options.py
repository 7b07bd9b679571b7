"""The options of `aiomlc serve`."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from typer.testing import CliRunner

from aiomlc import BadRequestError
from aiomlc.cli.app import app
from aiomlc.cli.jobs import serve as serve_process
from aiomlc.cli.jobs.serve import ServeSettings
from aiomlc.cli.options.serve import EngineOptions
from tests.model.tiny_models import write_model

SettingsOf: TypeAlias = Callable[..., ServeSettings]


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> SettingsOf:
    """Return a function that runs the command, and returns what it would serve."""

    def run(*arguments: str) -> ServeSettings:
        found: list[ServeSettings] = []
        monkeypatch.setattr(serve_process, "run_server", found.append)
        result = CliRunner().invoke(app, ["serve", *arguments])
        assert result.exit_code == 0, result.output
        return found[0]

    return run


def test_upstreams_options_reach_the_engine_and_the_server(settings_of: SettingsOf) -> None:
    arguments = (
        "mock://echo --device cpu --mode server --speculative-mode small_draft "
        "--additional-models draft --prefix-cache-mode disable --prefill-mode chunked "
        "--overrides max_num_sequence=8;context_window_size=128;gpu_memory_utilization=0.5 "
        "--host 0.0.0.0 --port 9000 --api-key secret --enable-debug --enable-tracing "
        '--allow-credentials --allow-origins ["https://a","https://b"] --allow-methods GET,POST'
    )
    settings = settings_of(*arguments.split())
    config = settings.engines.engine_config()
    options, server = settings.server_options(), settings.server_settings()
    assert settings.model == "mock://echo"
    assert (settings.engines.device, settings.engines.mode) == ("cpu", "server")
    assert config.additional_models == ("draft",)
    assert config.max_num_sequence == 8
    assert config.max_single_sequence_length == 128
    assert config.gpu_memory_utilization == 0.5
    assert (config.prefix_cache_mode, config.prefill_mode) == ("disable", "chunked")
    assert options.api_keys == ("secret",)
    assert options.allow_origins == ("https://a", "https://b")
    assert options.allow_methods == ("GET", "POST")
    assert options.allow_credentials
    assert options.enable_debug
    assert options.allowed_hosts == ()
    assert (server.host, server.port) == ("0.0.0.0", 9000)
    assert settings.engines.enable_tracing


def test_defaults_are_safe(settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOMLC_API_KEY", raising=False)
    settings = settings_of()
    options, server = settings.server_options(), settings.server_settings()
    assert server.host == "127.0.0.1"
    assert options.allow_origins == ()
    assert set(options.allowed_hosts) == {"127.0.0.1", "localhost", "[::1]"}
    assert not options.enable_debug


def test_key_of_the_environment(settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOMLC_API_KEY", "secret")
    assert settings_of().server_options().api_keys == ("secret",)


@pytest.mark.parametrize(
    "options",
    [
        EngineOptions(overrides="nothing=1"),
        EngineOptions(overrides="max_num_sequence"),
        EngineOptions(overrides="max_num_sequence=many"),
        EngineOptions(speculative_mode="eagle"),
    ],
)
def test_invalid_settings_of_the_engine_are_rejected(options: EngineOptions) -> None:
    with pytest.raises(BadRequestError):
        options.engine_config()


@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        ("n_ctx=64", "'n_ctx'; did you mean max_single_sequence_length?"),
        ("nothing=1", "'nothing'; known: model, mode, quantization, "),
    ],
)
def test_an_unknown_override_is_explained(overrides: str, hint: str) -> None:
    with pytest.raises(BadRequestError, match=re.escape(f"--overrides has no setting {hint}")):
        EngineOptions(overrides=overrides).engine_config()


@pytest.mark.parametrize("text", ["a", "=b", "a="])
def test_added_models_need_a_name(text: str) -> None:
    with pytest.raises(BadRequestError, match="NAME=MODEL or NAME=MODEL,setting=value"):
        EngineOptions(add_model=[text]).named_models()


def test_an_added_model_has_settings_of_its_own() -> None:
    options = EngineOptions(
        kv_cache_dtype="int8",
        prefill_mode="chunked",
        mode="server",
        overrides="context_window_size=128;max_num_sequence=3",
        add_model=[
            "plain=mock://echo",
            "own=mock://echo,context_window_size=64,kv_cache_dtype=auto,mode=interactive",
            "drafts=mock://echo,speculative_mode=small_draft,additional_models=draft",
        ],
    )

    (_, _, plain), (_, _, own), (_, _, drafts) = options.named_models()
    engines = serve_process.make_engines("mock://echo", options, lambda _: None)

    assert (plain.kv_cache_dtype, plain.prefill_mode) == ("int8", "chunked")
    assert (plain.max_single_sequence_length, plain.max_num_sequence) == (None, None)
    assert (own.max_single_sequence_length, own.kv_cache_dtype) == (64, "auto")
    assert drafts.additional_models == ("draft",)
    assert engines["mock://echo"].engine_config.max_single_sequence_length == 128
    assert engines["plain"].engine_config.mode == "server"
    assert engines["own"].engine_config.mode == "interactive"


def test_images_are_allowed_for_all_models_or_for_one() -> None:
    options = EngineOptions(
        allowed_media_domains="a.example,10.0.0.0/8",
        allowed_local_media_path="/images",
        overrides="max_images_per_prompt=2",
        add_model=["a=mock://echo", "b=mock://echo,allowed_media_domains=b.example"],
    )

    (_, _, plain), (_, _, own) = options.named_models()
    first = options.engine_config()

    assert first.allowed_media_domains == ("a.example", "10.0.0.0/8")
    assert plain.allowed_media_domains == first.allowed_media_domains
    assert own.allowed_media_domains == ("b.example",)
    assert {each.allowed_local_media_path for each in (first, plain, own)} == {"/images"}
    assert first.max_images_per_prompt == 2


def test_flags_are_settings() -> None:
    options = EngineOptions(
        overrides="split_special_tokens=true",
        add_model=["a=mock://echo,enable_tracing=true,split_special_tokens=false"],
    )

    ((_, _, added),), first = options.named_models(), options.engine_config()

    assert (first.split_special_tokens, first.enable_tracing) == (True, False)
    assert (added.split_special_tokens, added.enable_tracing) == (False, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("max_num_sequence=--5", "--add-model a: engine_config.max_num_sequence must be an int"),
        ("n_ctx=64", "--add-model a has no setting 'n_ctx'; did you mean max_single_sequence"),
        ("max_num_sequence", "--add-model a: a setting must be 'name=value', got 'max_num_seq"),
        ("max_num_sequence=many", "--add-model a: engine_config.max_num_sequence must be"),
        ("speculative_mode=eagle", "--add-model a: engine_config.speculative_mode = 'eagle'"),
    ],
)
def test_an_invalid_setting_of_an_added_model_is_named(settings: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=re.escape(message)):
        EngineOptions(add_model=[f"a=mock://echo,{settings}"]).named_models()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--backend", "trio"],
        ["--server", "gunicorn"],
        ["--port", "70000"],
        ["--allow-origins", "[1]"],
        ["--allow-origins", "["],
        ["--api-key-file", "/nothing"],
        ["--api-key", ""],
        ["--max-choices", "0"],
        ["--drain-timeout", "nan"],
        ["--header-timeout", "0"],
    ],
)
def test_invalid_options_end_the_command(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["serve", "mock://echo", *arguments])
    assert result.exit_code == 2


def test_a_missing_file_of_keys_is_named_once() -> None:
    arguments = ["serve", "mock://echo", "--api-key-file", "/nothing"]
    result = CliRunner().invoke(app, arguments)
    assert "cannot read /nothing: No such file or directory\n" in result.stderr


def test_an_address_that_is_taken_is_reported_with_the_options() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["serve", "mock://echo", "--port", port])

    assert result.exit_code == 2
    assert f"port {port}: Address already in use; pass another --port" in result.stderr


def test_a_decoder_is_no_embedding_model_from_the_start() -> None:
    command = ["serve", "--embedding-model", "mock://echo", "--port", "0"]
    result = CliRunner().invoke(app, [*command, "--served-model-name", "chat", "mock://echo"])

    assert result.exit_code == 2
    assert (
        "--embedding-model: the model 'mock://echo' is a decoder, which does not" in result.stderr
    )


def test_a_decoder_is_no_embedding_model_on_demand(tmp_path: Path) -> None:
    write_model(tmp_path / "decoder", "llama")
    command = ["serve", "mock://echo", "--load", "demand", "--port", "0"]
    result = CliRunner().invoke(app, [*command, "--embedding-model", str(tmp_path / "decoder")])

    assert result.exit_code == 2
    assert re.search(r"--embedding-model: the model '.*decoder' is a decoder", result.stderr)


def test_two_models_of_one_name_are_rejected() -> None:
    options = EngineOptions(add_model=["mock://echo=mock://echo"])
    with pytest.raises(BadRequestError, match=r"two models .*--served-model-name, or"):
        serve_process.make_engines("mock://echo", options, lambda _: None)
