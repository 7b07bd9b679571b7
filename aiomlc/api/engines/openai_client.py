"""`openai_client`, a method of the engines: OpenAI's client in the same process."""

from __future__ import annotations

__all__ = ("ASYNC_HINTS", "HINTS", "AsyncOpenAIClientMixin", "OpenAIClientMixin")

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from aiomlc.errors import MissingPackageError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

# Imported by name when it is first used: a higher layer, whose packages are optional.
_MODULE: Final = "aiomlc.serve.clients.openai"
_PACKAGES: Final = frozenset({"httpx2", "openai", "starlette"})
_BETA: Final = "its methods are here, too: write `chat.completions.parse`"
_CLOSE: Final = "write `terminate()`, or use `{}`"
#: Names of OpenAI's and other clients that engines lack, each with a hint.
HINTS: Final = {
    "beta": _BETA,
    "create_chat_completion": "write `chat.completions.create`",
    "create_completion": "write `completions.create`",
    "create_embedding": "write `embeddings.create`",
    "chat_completion": "write `chat.completions.create`",
    "complete": "write `completions.create`",
    **dict.fromkeys(("tokenize", "encode"), "write `tokenizer.encode`"),
    **dict.fromkeys(("detokenize", "decode"), "write `tokenizer.decode`"),
    **dict.fromkeys(("close", "aclose"), _CLOSE.format("with")),
}
ASYNC_HINTS: Final = HINTS | dict.fromkeys(("close", "aclose"), _CLOSE.format("async with"))


class AsyncOpenAIClientMixin:
    """Gives an engine for async code an `openai.AsyncOpenAI`."""

    def openai_client(self) -> AsyncOpenAI:
        """Return OpenAI's client, whose requests go to this engine, without a socket:

            client = engine.openai_client()
            completion = await client.chat.completions.create(model="pebble", messages=[...])

        It is what programs and frameworks take that expect an `openai.AsyncOpenAI`. Streams arrive
        as they are generated; closing one before its end aborts its request. `model` may be any
        name. The engine is not closed with the client, which works on asyncio and trio.

        Raises:
            MissingPackageError: If a package of `pip install 'aiomlc[openai]'` is missing.
        """
        client: AsyncOpenAI = _create_client(self)
        return client


class OpenAIClientMixin:
    """Gives an engine for blocking code an `openai.OpenAI`."""

    def openai_client(self) -> OpenAI:
        """Return OpenAI's blocking client, whose requests go to this engine, without a socket.

        Raises:
            EngineClosedError: If the engine was terminated.
            MissingPackageError: If a package of `pip install 'aiomlc[openai]'` is missing.
        """
        client: OpenAI = _create_client(self)
        return client


def _create_client(engine: object) -> Any:  # noqa: ANN401 - its type depends on the engine's.
    try:
        import_module("openai")
        module = import_module(_MODULE)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise

        raise MissingPackageError(package, "pip install 'aiomlc[openai]'") from None

    return module.openai_client(engine)
