"""The hosts that may be asked for images, and the addresses that are connected to.

A server that fetches what clients name must not be a way into its own network. A host must be
allowed by name, and each of its addresses must be public or allowed itself. The addresses that are
checked are those that are connected to, so a name that changes its addresses meanwhile gains
nothing.
"""

from __future__ import annotations

__all__ = ("HostRules", "RefusedHostError", "Resolve", "resolve_host")

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, final

from anyio import getaddrinfo

from aiomlc.errors import BadRequestError

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Returns the numeric addresses of a host for a port.
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_ANY: Final = "*"
_PARAM: Final = "allowed_media_domains"
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # An IPv4 address in the last 32 bits.
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")  # The same, deprecated.


class RefusedHostError(Exception):
    """A host, or one of its addresses, may not be asked."""


@final
class HostRules:
    """The allowed hosts.

    Args:
        allowed: Host names, addresses and networks (`10.1.0.0/16`); `*` is every name.

    Raises:
        BadRequestError: If an entry is a URL or is empty.
    """

    def __init__(self, allowed: Sequence[str]) -> None:
        self._names: set[str] = set()
        self._networks: list[_Network] = []
        for entry in allowed:
            network = _network(entry)
            if network is not None:
                self._networks.append(network)
            elif not entry or not entry.isascii() or not set(entry).isdisjoint("/:@ "):
                raise BadRequestError(
                    f"{_PARAM}: must be host names in ASCII (xn--...), addresses or networks, "
                    f"without a scheme or a port, such as images.example.com, got {entry!r}",
                    param=_PARAM,
                )
            else:
                self._names.add(_normal(entry))

    def check_host(self, host: str) -> None:
        """Require that a host of a URL is allowed.

        Args:
            host: As it is resolved: names are in ASCII, since other spellings of a name may be
                those of another one.

        Raises:
            RefusedHostError: If it is not.
        """
        address = _address(host)
        if address is not None and self._is_listed(address):
            return

        if not {_ANY, _normal(host)} & self._names:
            raise RefusedHostError(
                f"the host {host!r} is not allowed; the operator can allow it by {_PARAM}"
            )

    def check_addresses(self, host: str, addresses: Sequence[str]) -> None:
        """Require that all addresses of an allowed host may be connected to.

        Raises:
            RefusedHostError: If one may not, or there are none.
        """
        if not addresses:
            raise RefusedHostError(f"the host {host!r} has no address")

        for text in addresses:
            address = _address(text)
            if address is None or not (self._is_listed(address) or _is_public(address)):
                raise RefusedHostError(
                    f"the host {host!r} has an address that is not public; the operator can allow "
                    f"the address by {_PARAM}"
                )

    def _is_listed(self, address: _Address) -> bool:
        forms = {address, _plain(address)}
        return any(form in network for network in self._networks for form in forms)


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system resolves it.

    Raises:
        OSError: If there are none.
    """
    found = await getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _normal(host: str) -> str:
    return host.lower().removesuffix(".")


def _network(entry: str) -> _Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_public(address: _Address) -> bool:
    return all(each.is_global and not each.is_multicast for each in (address, _plain(address)))


def _plain(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address leads to, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address

    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)

    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)
