"""The options of `aiomlc serve`, as records, and what they say about engines and the server."""

from __future__ import annotations

__all__ = ("AccessOptions", "EngineOptions", "LimitOptions", "ListenOptions")

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from aiomlc.cli.options.common import Preset
from aiomlc.cli.options.overrides import ModelOptions, parse_settings
from aiomlc.cli.terminal.failures import CommandError
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_MIB = 2**20


def _option(help_text: str, panel: str | None = None, **settings: Any) -> Any:  # noqa: ANN401
    return typer.Option(help=help_text, rich_help_panel=panel, **settings)


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """The address and the ASGI server."""

    host: Annotated[str, _option("The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, _option("The port; 0 for any.", min=0, max=65535)] = 8000
    server: Annotated[Literal["uvicorn", "hypercorn"], _option("The ASGI server.")] = "uvicorn"
    backend: Annotated[
        Literal["asyncio", "trio"], _option("The event loop; trio needs hypercorn.")
    ] = "asyncio"
    access_log: Annotated[bool, _option("Log each request.")] = True
    disable_access_log_for_endpoints: Annotated[
        str | None, _option("Paths whose requests are not logged: /health,/metrics,/ready.")
    ] = None

    def check(self) -> None:
        """Require a server that runs on the event loop.

        Raises:
            CommandError: If it does not.
        """
        if self.backend == "trio" and self.server == "uvicorn":
            raise CommandError("--backend trio needs --server hypercorn: uvicorn needs asyncio")

    @property
    def quiet_paths(self) -> frozenset[str]:
        """The paths of `--disable-access-log-for-endpoints`.

        Raises:
            CommandError: If the list is malformed.
        """
        name = "--disable-access-log-for-endpoints"
        return frozenset(_parse_list(name, self.disable_access_log_for_endpoints))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The default of `--allowed-hosts`."""
        return _LOOPBACK_HOSTS if self.host in _LOOPBACK else ()


@dataclass(frozen=True, kw_only=True)
class EngineOptions(ModelOptions):
    """The models, and the options of their engines."""

    served_model_name: Annotated[str | None, _option("The name of MODEL for clients.")] = None
    embedding_model: Annotated[str | None, _option("An encoder, for embeddings.")] = None
    embedding_model_lib: Annotated[str | None, _option("The library of the encoder.")] = None
    add_model: Annotated[
        list[str] | None,
        _option("Another model, as NAME=MODEL or NAME=MODEL,setting=value; may be repeated."),
    ] = None
    load: Annotated[
        Literal["start", "demand"], _option("Open models at the start, or by a first request.")
    ] = "start"
    mode: Preset = "local"
    model_lib: Annotated[
        str | None, _option("A library that `aiomlc compile` has written.", "Engine")
    ] = None
    additional_models: Annotated[
        list[str] | None, _option("The draft model, for small_draft.", "Engine")
    ] = None
    speculative_mode: Annotated[
        str, _option("disable, prompt_lookup or small_draft.", "Engine")
    ] = "disable"
    prefix_cache_mode: Annotated[str, _option("radix or disable.", "Engine")] = "radix"
    prefill_mode: Annotated[str, _option("hybrid or chunked.", "Engine")] = "hybrid"
    enable_tracing: Annotated[
        bool, _option("Record events, for /debug/dump_event_trace.", "Engine")
    ] = False
    allowed_media_domains: Annotated[
        str | None,
        _option("Hosts, or networks, that images may be fetched from; * is any public.", "Access"),
    ] = None
    allowed_local_media_path: Annotated[
        str | None, _option("The directory whose files may be images (file: URLs).", "Access")
    ] = None

    def named_models(self) -> list[tuple[str, str, EngineConfig]]:
        """Return the names, models and configurations of `--add-model`.

        `--overrides` and `--additional-models` are those of MODEL: the others have settings of
        their own, which take the place of the common options.

        Raises:
            CommandError: If one is not `NAME=MODEL,setting=value`, or a setting is unknown.
            BadRequestError: If a value is invalid.
        """
        found: list[tuple[str, str, EngineConfig]] = []
        for text in self.add_model or ():
            first, _, settings = text.partition(",")
            name, _, model = first.partition("=")
            if not name or not model:
                raise CommandError(
                    f"--add-model must be NAME=MODEL or NAME=MODEL,setting=value, got {text!r}"
                )

            option = f"--add-model {name}"
            values = parse_settings(option, settings.replace(",", ";"))
            try:
                config = self.config_with(values, **self._common())
            except BadRequestError as error:
                raise BadRequestError(f"{option}: {error}", param=error.param) from None

            found.append((name, model, config))

        return found

    def engine_config(self) -> EngineConfig:
        """Return the configuration of the engine of MODEL.

        Raises:
            CommandError: If a setting in `--overrides` is unknown or has no value.
            BadRequestError: If a value is invalid.
        """
        return self.config(additional_models=tuple(self.additional_models or ()), **self._common())

    def _common(self) -> dict[str, Any]:
        domains = _parse_list("--allowed-media-domains", self.allowed_media_domains)
        return {
            "allowed_media_domains": domains,
            "allowed_local_media_path": self.allowed_local_media_path,
            "prefill_mode": self.prefill_mode,
            "prefix_cache_mode": self.prefix_cache_mode,
            "speculative_mode": self.speculative_mode,
        }


@dataclass(frozen=True, kw_only=True)
class AccessOptions:
    """Who may use the server, and for what."""

    api_key: Annotated[
        str | None, _option("The API key; AIOMLC_API_KEY hides it from other users.", "Access")
    ] = None
    api_key_file: Annotated[Path | None, _option("A file with one API key per line.", "Access")] = (
        None
    )
    allow_origins: Annotated[
        str | None, _option("Origins of web pages that may use it (CORS).", "Access")
    ] = None
    allow_methods: Annotated[str | None, _option("Methods for these pages.", "Access")] = None
    allow_headers: Annotated[str | None, _option("Headers for these pages.", "Access")] = None
    allow_credentials: Annotated[
        bool, typer.Option("--allow-credentials", help="Cookies.", rich_help_panel="Access")
    ] = False
    allowed_hosts: Annotated[
        str | None,
        _option("Accepted Host headers, or *; by default any unless on loopback.", "Access"),
    ] = None
    enable_debug: Annotated[bool, _option("Allow debug_config and /debug.", "Access")] = False
    microserving_peers: Annotated[
        str | None,
        _option("Servers (http://HOST:PORT) that exchange keys and values with this.", "Access"),
    ] = None
    microserving_key: Annotated[
        str | None, _option("Their common secret; or AIOMLC_MICROSERVING_KEY.", "Access")
    ] = None
    playground: Annotated[bool, _option("Serve the playground at /.", "Access")] = True

    def fields(self, default_hosts: tuple[str, ...]) -> dict[str, Any]:
        """Return the fields of `ServerOptions`; keys are also those of the environment.

        Raises:
            CommandError: If a list is malformed.
            BadRequestError: If the file of keys cannot be read.
        """
        from aiomlc.serve.http.api_keys import read_api_keys

        hosts = _parse_list("--allowed-hosts", self.allowed_hosts, default_hosts)
        return {
            "api_keys": read_api_keys(self.api_key, self.api_key_file, os.environ),
            "allow_origins": _parse_list("--allow-origins", self.allow_origins),
            "allow_methods": _parse_list("--allow-methods", self.allow_methods, ("*",)),
            "allow_headers": _parse_list("--allow-headers", self.allow_headers, ("*",)),
            "allow_credentials": self.allow_credentials,
            "allowed_hosts": () if hosts == ("*",) else hosts,
            "enable_debug": self.enable_debug,
            "microserving_peers": _parse_list("--microserving-peers", self.microserving_peers),
            "microserving_key": self.microserving_key or os.environ.get("AIOMLC_MICROSERVING_KEY"),
            "playground": self.playground,
        }


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The limits of the server."""

    max_body_size: Annotated[int, _option("Bytes of a request.", "Limit")] = 8 * _MIB
    max_audio_size: Annotated[int, _option("Bytes of a request with audio.", "Limit")] = 25 * _MIB
    max_prompt_length: Annotated[
        int | None, _option("Characters or token ids of all texts of a request.", "Limit")
    ] = None
    max_choices: Annotated[int, _option("Choices of a request (n).", "Limit")] = 16
    max_inputs: Annotated[int, _option("Inputs of a request for embeddings.", "Limit")] = 2048
    max_requests: Annotated[int, _option("Concurrent requests.", "Limit")] = 1024
    max_requests_per_key: Annotated[
        int | None, _option("Concurrent requests with one API key.", "Limit")
    ] = None
    max_header_size: Annotated[int, _option("Bytes of the headers.", "Limit")] = 64 * 2**10
    header_timeout: Annotated[float, _option("Seconds to receive the headers.", "Limit")] = 10.0
    body_timeout: Annotated[float, _option("Seconds to receive a body.", "Limit")] = 30.0
    write_timeout: Annotated[float, _option("Seconds for a client to read.", "Limit")] = 120.0
    ping_interval: Annotated[
        float, _option("Seconds of silence between comments in a stream.", "Limit")
    ] = 15.0
    drain_timeout: Annotated[
        float, _option("Seconds for the running requests after SIGTERM.", "Limit")
    ] = 60.0
    ignore_unsupported_fields: Annotated[
        bool, _option("Ignore fields that are not supported.", "Limit")
    ] = False

    def fields(self) -> dict[str, Any]:
        """Return the fields of `ServerOptions`."""
        of_server = ("max_header_size", "header_timeout", "drain_timeout")
        return {name: value for name, value in vars(self).items() if name not in of_server}


def _parse_list(option: str, text: str | None, default: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the strings of an option: a JSON list, as MLC LLM's, or text with commas."""
    if text is None:
        return tuple(default)

    if not text.lstrip().startswith("["):
        return tuple(part.strip() for part in text.split(",") if part.strip())

    try:
        values = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{option} is not a JSON list: {error}") from error

    if not all(isinstance(value, str) for value in values):
        raise CommandError(f"{option} must be a list of strings, got {text!r}")

    return tuple(values)
