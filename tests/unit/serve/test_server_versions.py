"""The servers are limited to versions whose private classes are known, since they are changed."""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import hypercorn.trio.run
import pytest
from hypercorn.protocol.h11 import H11Protocol as HypercornH11
from hypercorn.trio.tcp_server import TCPServer
from packaging.requirements import Requirement
from packaging.version import Version
from uvicorn import Server
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

REASONS = {
    "uvicorn": "it has no setting for the time of headers, and passes each part through h11",
    "hypercorn": "0.18 ends when it writes to a connection on trio that it is closing",
}


@pytest.mark.parametrize("package", REASONS)
def test_a_server_is_limited_to_the_minor_version_that_is_tested(package: str) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))
    groups = [*project["project"]["optional-dependencies"].values()]
    groups += project["dependency-groups"].values()
    found = [Requirement(line) for group in groups for line in group if isinstance(line, str)]
    specifiers = [each.specifier for each in found if each.name == package]
    installed = Version(version(package))

    assert len(specifiers) == 2
    for each in specifiers:
        assert installed in each
        following = f"{installed.major}.{installed.minor + 1}"
        assert following not in each, f"{package} {following} is untested: {REASONS[package]}"


def test_uvicorns_private_classes_have_what_is_replaced_and_read() -> None:
    for name in ("connection_made", "connection_lost", "data_received", "send_400_response"):
        assert callable(getattr(H11Protocol, name))

    assert list(inspect.signature(H11Protocol.send_400_response).parameters) == ["self", "msg"]
    assert inspect.iscoroutinefunction(RequestResponseCycle.send)
    assert inspect.iscoroutinefunction(FlowControl.drain)
    assert callable(Server.capture_signals)


def test_hypercorns_private_classes_have_what_is_replaced() -> None:
    assert "TCPServer" in hypercorn.trio.run.worker_serve.__code__.co_names
    assert inspect.iscoroutinefunction(TCPServer.protocol_send)
    assert inspect.iscoroutinefunction(HypercornH11._check_protocol)
