"""The HTTP server: OpenAI's API over engines, as an ASGI application."""

from __future__ import annotations

__all__ = ("Application", "Served", "ServerOptions", "create_app")

from aiomlc.serve.app import Application, create_app
from aiomlc.serve.models import Served
from aiomlc.serve.options import ServerOptions
