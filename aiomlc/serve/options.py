"""The options of the HTTP application."""

from __future__ import annotations

__all__ = ("ServerOptions", "check_positive")

from dataclasses import dataclass, field
from typing import Literal

from aiomlc.errors import BadRequestError

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The limits and permissions of the application; the defaults suit a server for one computer.

    Raises:
        BadRequestError: If a value is out of range; `param` names it.
    """

    #: The accepted API keys; empty means that requests need none.
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    #: The origins of web pages that may read answers (CORS); empty allows none, `*` all.
    allow_origins: tuple[str, ...] = ()
    allow_methods: tuple[str, ...] = ("*",)  #: For pages of allowed origins.
    allow_headers: tuple[str, ...] = ("*",)  #: For pages of allowed origins.
    allow_credentials: bool = False  #: Whether these pages may send cookies.
    #: The names of this server in the `Host` header (without a port); empty accepts any. A list
    #: protects a server without keys from pages that resolve their own name to its address.
    allowed_hosts: tuple[str, ...] = ()
    max_body_size: int = 8 * _MIB  #: Bytes of a request's body.
    max_audio_size: int = 25 * _MIB  #: Bytes of the body of a request with audio.
    body_timeout: float = 30.0  #: Seconds to receive a body.
    #: Characters of all texts of a request, or token ids; None leaves it to the body size.
    max_prompt_length: int | None = None
    max_choices: int = 16  #: Choices (`n`, `best_of`) of all prompts of a request.
    max_inputs: int = 2048  #: Inputs of a request for embeddings.
    max_requests: int = 1024  #: Concurrent requests.
    max_requests_per_key: int | None = None  #: Concurrent requests with one API key.
    ping_interval: float = 15.0  #: Seconds of silence after which a stream gets a comment.
    write_timeout: float = 120.0  #: Seconds after which a client that does not read is dropped.
    #: Whether models are opened when the server starts, or by the first request for each.
    load: Literal["start", "demand"] = "start"
    #: Whether fields that the engine does not support are ignored instead of rejected.
    ignore_unsupported_fields: bool = False
    #: The model that embeds if a request names none that is served, as MLC LLM's server does.
    embedding_model: str | None = None
    enable_debug: bool = False  #: Whether `debug_config` and `/debug/...` work.
    #: The addresses of the servers to which this one may send keys and values; without any, there
    #: is no `/microserving/...`.
    microserving_peers: tuple[str, ...] = ()
    #: The secret that all these servers know, and no client: with it, they accept each other's keys
    #: and values. Required beside API keys. Without both, anyone may send some.
    microserving_key: str | None = field(default=None, repr=False)
    playground: bool = True  #: Whether `/` is the playground.

    def __post_init__(self) -> None:
        check_positive(self, *_POSITIVE)
        if self.load not in ("start", "demand"):
            raise BadRequestError(
                f'load: must be "start" or "demand", got {self.load!r}', param="load"
            )

        _check_microserving(self)
        for key in self.api_keys:
            _check_key("api_keys", key)


_POSITIVE = (
    "max_body_size",
    "max_audio_size",
    "body_timeout",
    "max_prompt_length",
    "max_choices",
    "max_inputs",
    "max_requests",
    "max_requests_per_key",
    "ping_interval",
    "write_timeout",
)


def check_positive(record: object, *names: str) -> None:
    """Require that fields are positive, or None.

    Raises:
        BadRequestError: If one is neither; `param` names it.
    """
    for name in names:
        value = getattr(record, name)
        if value is not None and not value > 0:
            raise BadRequestError(f"{name}: must be > 0, got {value!r}", param=name)


def _check_key(name: str, key: str) -> None:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadRequestError(
            f"{name}: a key must consist of printable ASCII characters without spaces", param=name
        )


def _check_microserving(options: ServerOptions) -> None:
    for peer in options.microserving_peers:
        if not peer.startswith(("http://", "https://")) or peer.endswith("/"):
            raise BadRequestError(
                f"microserving_peers: an address must be like http://10.0.0.2:8000, got {peer!r}",
                param="microserving_peers",
            )

    secret = options.microserving_key
    if options.microserving_peers and options.api_keys and secret is None:
        raise BadRequestError(
            "microserving_key: is required beside API keys: a secret that the peers know and "
            "clients do not, who could otherwise replace what other requests reuse",
            param="microserving_key",
        )

    if secret is not None:
        _check_key("microserving_key", secret)
