"""The host whose picture MLC LLM's tests fetch, and the port that they ask, on this machine.

    python -m tests.mlc_llm_suite.image_host CERTIFICATE KEY PORT TARGET

The first line of the output is the port of the host. Connections to PORT are relayed to TARGET.
"""

from __future__ import annotations

__all__ = ("image_host",)

import io
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSListener
from PIL import Image

_HOST = "llava-vl.github.io"
_SIDE = 336  # Pixels; MLC LLM's JSON functions read no other size.
_LOCAL = "127.0.0.1"
_ROOT = Path(__file__).parents[2]
_REDIRECT = Path(__file__).parent / "redirect"
_PORTS = ("8001", "8000")  # Which the tests of the server ask, and at which they start it.


@contextmanager
def image_host(directory: Path) -> Iterator[Mapping[str, str]]:
    """Serve a picture at every path of the host, and relay the tests' port.

    Args:
        directory: For the host's certificate.

    Yields:
        The environment in which Python's programs reach this host in place of the real one.
    """
    certificate, key = (str(directory / name) for name in ("certificate.pem", "key.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={_HOST}", "-addext", f"subjectAltName=DNS:{_HOST}"]
    command += ["-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    serve = [sys.executable, "-m", __name__, certificate, key, *_PORTS]
    with subprocess.Popen(serve, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield {
            "PYTHONPATH": str(_REDIRECT),
            "REDIRECTED_HOST": _HOST,
            "REDIRECTED_PORT": server.stdout.readline().strip(),
            "REQUESTS_CA_BUNDLE": certificate,
            "SSL_CERT_FILE": certificate,
        }
        server.terminate()


async def _serve(certificate: str, key: str, port: str, target: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    host = await anyio.create_tcp_listener(local_host=_LOCAL)
    relay = await anyio.create_tcp_listener(local_host=_LOCAL, local_port=int(port))
    print(host.extra(anyio.abc.SocketAttribute.local_port), flush=True)  # noqa: T201
    answer = partial(_answer, _picture())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(TLSListener(host, context, standard_compatible=False).serve, answer)
        tasks.start_soon(relay.serve, partial(_relay, int(target)))


def _picture() -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((_SIDE, _SIDE)).convert("RGB").save(file, "JPEG")
    return file.getvalue()


async def _answer(picture: bytes, client: ByteStream) -> None:
    """Answer one request of HTTP, whatever it asks for."""
    async with client:
        request = b""
        while b"\r\n\r\n" not in request:
            request += await client.receive()
        header = f"Content-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n"
        header += "Connection: close\r\n\r\n"
        await client.send(b"HTTP/1.1 200 OK\r\n" + header.encode() + picture)


async def _relay(target: int, client: ByteStream) -> None:
    async with (
        client,
        await anyio.connect_tcp(_LOCAL, target) as server,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_copy, client, server)
        tasks.start_soon(_copy, server, client)


async def _copy(source: ByteStream, target: ByteStream) -> None:
    try:
        async for block in source:
            await target.send(block)
        await target.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # One of the two has gone.


if __name__ == "__main__":
    anyio.run(partial(_serve, *sys.argv[1:]))
