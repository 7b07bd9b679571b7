"""The HTTP server: OpenAI's API over engines, as an ASGI application."""

from __future__ import annotations

__all__ = ("Application", "Served", "ServerOptions", "create_app", "openai_client")

from aiomlc.serve.app import Application, create_app
from aiomlc.serve.models import Served
from aiomlc.serve.openai_clients import openai_client
from aiomlc.serve.options import ServerOptions
