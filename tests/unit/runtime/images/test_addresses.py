"""Only allowed hosts at public or allowed addresses are asked."""

from __future__ import annotations

import pytest

from aiomlc.errors import BadRequestError
from aiomlc.runtime.images.addresses import HostRules, RefusedHostError

PUBLIC = ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"]
PRIVATE = [
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
    *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:0"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a9fe:a9fe::"),
    # Teredo, whose last bits are those of 127.0.0.1 inverted.
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "not an address",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_of_an_allowed_host_is_asked(address: str) -> None:
    rules = HostRules(["example.com"])

    rules.check_host("example.com")
    rules.check_addresses("example.com", [address])


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused_for_any_host(address: str) -> None:
    rules = HostRules(["*"])

    with pytest.raises(RefusedHostError, match="not public"):
        rules.check_addresses("example.com", [address])
    with pytest.raises(RefusedHostError, match="not public"):
        rules.check_addresses("example.com", [PUBLIC[0], address])


@pytest.mark.parametrize("host", ["example.org", "a.example.com", "xexample.com", "127.0.0.1", ""])
def test_a_host_that_is_not_listed_is_refused(host: str) -> None:
    with pytest.raises(RefusedHostError, match="allowed_media_domains"):
        HostRules(["example.com"]).check_host(host)


@pytest.mark.parametrize("host", ["example.com", "EXAMPLE.com", "example.com."])
def test_names_are_compared_as_dns_does(host: str) -> None:
    HostRules(["Example.COM"]).check_host(host)


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1"])
def test_an_address_within_a_listed_network_is_asked(address: str) -> None:
    rules = HostRules(["10.1.0.0/16", "fd00::/8", "media.internal"])

    rules.check_host(address)
    rules.check_addresses("media.internal", [address])


def test_a_listed_network_allows_no_other_address() -> None:
    rules = HostRules(["10.1.0.0/16", "media.internal"])

    with pytest.raises(RefusedHostError):
        rules.check_host("10.2.0.1")
    with pytest.raises(RefusedHostError):
        rules.check_addresses("media.internal", ["10.2.0.1"])


def test_a_host_without_addresses_is_refused() -> None:
    with pytest.raises(RefusedHostError, match="no address"):
        HostRules(["*"]).check_addresses("example.com", [])


@pytest.mark.parametrize(
    "entry", ["", "https://example.com", "example.com:80", "example.com/a", "bücher.de"]
)
def test_an_entry_that_is_no_host_is_rejected(entry: str) -> None:
    with pytest.raises(BadRequestError, match="allowed_media_domains") as caught:
        HostRules([entry])

    assert caught.value.param == "allowed_media_domains"
