"""OpenAI's clients of engines in the same process."""

from __future__ import annotations

__all__ = ("openai_client",)

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, overload

from aiomlc.api.engines.mlc_engine import MLCEngine, parts_of
from aiomlc.errors import MissingPackageError
from aiomlc.serve.app import Application, create_app
from aiomlc.serve.models import Served
from aiomlc.serve.options import ServerOptions

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

# No time limit on a reader: it blocks no connection.
_OPTIONS: Final = ServerOptions(write_timeout=math.inf, playground=False)


@overload
def openai_client(models: MLCEngine) -> OpenAI: ...


@overload
def openai_client(models: Served | Mapping[str, Served]) -> AsyncOpenAI: ...


def openai_client(models: MLCEngine | Served | Mapping[str, Served]) -> AsyncOpenAI | OpenAI:
    """Return OpenAI's client of engines in this process, as the engines' `openai_client` does:

        client = openai_client({"chat": engine, "embed": encoder})
        embeddings = await client.embeddings.create(model="embed", input=[...])

    If there is one model, `model` may be any name. The engines are not closed with the client.

    Args:
        models: What answers: an engine. `AsyncOpenAI` also takes what `create_app` takes, such as
            several engines by name.

    Returns:
        `openai.OpenAI` for an `MLCEngine`, otherwise `openai.AsyncOpenAI`, for asyncio and trio.

    Raises:
        BadRequestError: If an argument is invalid.
        EngineClosedError: If an `MLCEngine` was terminated.
        MissingPackageError: If `openai` is not installed.
    """
    try:
        import openai
    except ModuleNotFoundError as error:
        if error.name != "openai":
            raise

        raise MissingPackageError("openai", "pip install 'aiomlc[openai]'") from None

    from aiomlc.serve.clients.in_process import AppTransport, AsyncAppTransport

    # The environment may name a proxy, but requests must not leave the process.
    client: dict[str, Any] = {"base_url": "http://aiomlc/v1", "trust_env": False}
    if not isinstance(models, MLCEngine):
        transport: Any = AsyncAppTransport(create_app(models, _OPTIONS))
        http = openai.DefaultAsyncHttpxClient(transport=transport, **client)
        return openai.AsyncOpenAI(base_url=client["base_url"], api_key="none", http_client=http)

    engine, portal = parts_of(models)

    async def create() -> Application:
        return create_app(engine, _OPTIONS)

    app = portal.call(create)
    transport = AppTransport(app, portal)
    blocking = openai.DefaultHttpxClient(transport=transport, **client)
    return openai.OpenAI(base_url=client["base_url"], api_key="none", http_client=blocking)
