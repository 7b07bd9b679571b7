"""The setting `AIOMLC_CACHE_LIMIT`."""

from __future__ import annotations

import pytest

from aiomlc.cache.limit import DEFAULT_LIMIT, cache_limit
from aiomlc.errors import BadRequestError


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("", DEFAULT_LIMIT),
        ("none", None),
        ("0", 0),
        ("1234", 1234),
        ("20GB", 20 * 10**9),
        (" 20 gb ", 20 * 10**9),
        ("1.5GiB", 3 << 29),
        ("2k", 2000),
        ("3TiB", 3 << 40),
        ("7B", 7),
    ],
)
def test_the_limit_is_a_size(monkeypatch: pytest.MonkeyPatch, text: str, limit: int | None) -> None:
    monkeypatch.setenv("AIOMLC_CACHE_LIMIT", text)

    assert cache_limit() == limit


@pytest.mark.parametrize("text", ["-1", "20 apples", "GB", "1e9", "nan", "inf", "9" * 99, "1PB"])
def test_what_is_not_a_size_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("AIOMLC_CACHE_LIMIT", text)

    with pytest.raises(BadRequestError, match="must be a size such as '20GB', or 'none'") as caught:
        cache_limit()

    assert caught.value.param == "AIOMLC_CACHE_LIMIT"
