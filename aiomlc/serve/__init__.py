"""The HTTP server: OpenAI's API over engines, as an ASGI application."""

from __future__ import annotations

__all__ = (
    "Application",
    "RoutedStream",
    "Router",
    "Served",
    "ServerOptions",
    "create_app",
    "openai_client",
)

from aiomlc.serve.app import Application, create_app
from aiomlc.serve.clients.openai import openai_client
from aiomlc.serve.models import Served
from aiomlc.serve.options import ServerOptions
from aiomlc.serve.routing.routed_stream import RoutedStream
from aiomlc.serve.routing.router import Router
