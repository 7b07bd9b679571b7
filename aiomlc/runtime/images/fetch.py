"""Fetching of images by HTTP, within limits, and only from hosts that are allowed."""

from __future__ import annotations

__all__ = ("ImageFetcher",)

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Any, cast, final

from anyio import fail_after

from aiomlc._version import __version__
from aiomlc.errors import BadRequestError, MissingPackageError
from aiomlc.runtime.images.addresses import HostRules, RefusedHostError, Resolve
from aiomlc.runtime.images.limits import ImageLimits
from aiomlc.validation.json_values import safe_repr

if TYPE_CHECKING:
    import ssl

    import httpcore2
    import httpx2

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
_MAX_URL = 8192  # Characters.
_MAX_ADDRESSES = 4  # That are tried.


class _FetchError(Exception):
    """An image cannot be fetched."""


@final
class ImageFetcher:
    """Fetches images from allowed hosts. No proxy is used.

    Args:
        limits: The limits on bytes, seconds and redirects.
        allowed_domains: As for `HostRules`; empty refuses all.
        resolve: Returns the addresses of a host.
    """

    def __init__(
        self, limits: ImageLimits, allowed_domains: Sequence[str], resolve: Resolve
    ) -> None:
        self._limits = limits
        self._rules = HostRules(allowed_domains)
        self._resolve = resolve

    async def fetch(self, url: str, param: str) -> bytes:
        """Return the content of a URL.

        Args:
            param: The field of the request, for errors.

        Raises:
            BadRequestError: If the host is not allowed, or does not answer with an image within
                the limits.
            MissingPackageError: If httpx2 is not installed.
        """
        httpcore2, _ = _http()
        limits = self._limits
        try:
            with fail_after(limits.fetch_seconds):
                return await self._follow(url)
        except (RefusedHostError, _FetchError) as error:
            reason = str(error)
        except TimeoutError:
            reason = f"it takes more than {limits.fetch_seconds} s"
        except (
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.TimeoutException,
            OSError,
        ) as error:
            reason = str(error) or type(error).__name__

        raise BadRequestError(f"{param}: cannot fetch {safe_repr(url)}: {reason}", param=param)

    async def _follow(self, url: str) -> bytes:
        target = _parse(url)
        for _ in range(self._limits.max_redirects + 1):
            self._rules.check_host(target.raw_host.decode("ascii"))
            content = await self._get(target)
            if isinstance(content, bytes):
                return content

            target = content

        raise _FetchError(f"it has more than {self._limits.max_redirects} redirects")

    async def _get(self, url: httpx2.URL) -> bytes | httpx2.URL:
        """Return the content of a URL, or the target of a redirect."""
        httpcore2, _ = _http()
        backend = _checked_backend(self._rules, self._resolve)
        request = httpcore2.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        headers = [
            (b"Host", url.netloc),
            (b"User-Agent", f"aiomlc/{__version__}".encode()),
            (b"Accept", b"image/*"),
            (b"Accept-Encoding", b"identity"),
        ]
        async with (
            httpcore2.AsyncConnectionPool(
                ssl_context=_ssl_context(), max_keepalive_connections=0, network_backend=backend
            ) as pool,
            pool.stream("GET", request, headers=headers) as answer,
        ):
            location = _header(answer, b"location")
            if answer.status in _REDIRECTS and location is not None:
                return _parse(location, url)

            return await self._read(answer)

    async def _read(self, answer: httpcore2.Response) -> bytes:
        if answer.status != 200:
            raise _FetchError(f"it answers with status {answer.status}")

        if (coding := _header(answer, b"content-encoding") or "identity") != "identity":
            raise _FetchError(f"its content is encoded as {coding[:64]!r}, which was not asked for")

        limit = self._limits.max_bytes
        too_large = _FetchError(f"an image must have at most {limit} bytes")
        length = _header(answer, b"content-length") or ""
        if length.isdecimal() and int(length[:20]) > limit:
            raise too_large

        content = bytearray()
        async with aclosing(answer.aiter_stream()) as blocks:
            async for block in blocks:
                content += block
                if len(content) > limit:
                    raise too_large

        return bytes(content)


def _parse(url: str, base: httpx2.URL | None = None) -> httpx2.URL:
    """Return the parts of a URL, by which the host is both checked and asked.

    Args:
        base: What the URL is relative to, if anything.

    Raises:
        _FetchError: If it is not a plain URL of HTTP.
    """
    _, httpx2 = _http()
    if len(url) > _MAX_URL:
        raise _FetchError(f"a URL must have at most {_MAX_URL} characters")

    try:
        parsed = httpx2.URL(url) if base is None else base.join(url)
    except httpx2.InvalidURL as error:
        raise _FetchError(f"it is no valid URL: {error}") from None

    if parsed.scheme not in _PORTS or not parsed.host:
        raise _FetchError(f"a URL must be one of http or https with a host, got {safe_repr(url)}")

    if parsed.userinfo or not set(parsed.host).isdisjoint("\\%@/ "):
        raise _FetchError("a URL must have no user name, and a plain host")

    if parsed.port is not None and not 0 < parsed.port < 2**16:
        raise _FetchError(f"a port must be at most {2**16 - 1}, got {parsed.port}")

    return parsed


def _header(answer: httpcore2.Response, name: bytes) -> str | None:
    values = [value for key, value in answer.headers if key.lower() == name]
    return values[0].decode("latin-1").strip() if values else None


def _http() -> tuple[Any, Any]:
    """Return the modules httpcore2 and httpx2.

    Raises:
        MissingPackageError: If they are not installed.
    """
    try:
        import httpcore2
        import httpx2
    except ImportError:
        raise MissingPackageError("httpx2", "pip install 'aiomlc[vision]'") from None

    return httpcore2, httpx2


@cache
def _ssl_context() -> ssl.SSLContext:
    context: ssl.SSLContext = _http()[0].default_ssl_context()
    return context


def _checked_backend(rules: HostRules, resolve: Resolve) -> httpcore2.AsyncNetworkBackend:
    """Return what connects to the checked addresses of a host."""
    import httpcore2

    # Its type is not known where anyio may be missing.
    inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    class CheckedBackend(httpcore2.AsyncNetworkBackend):
        async def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,  # noqa: ASYNC109 - of the base class.
            local_address: str | None = None,
            socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
        ) -> httpcore2.AsyncNetworkStream:
            addresses = await resolve(host, port)
            rules.check_addresses(host, addresses)
            failure: Exception = OSError(f"the host {host!r} has no address")
            for address in addresses[:_MAX_ADDRESSES]:
                try:
                    return await inner.connect_tcp(
                        address, port, timeout, local_address, socket_options
                    )
                except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                    failure = error

            raise failure

    return CheckedBackend()
