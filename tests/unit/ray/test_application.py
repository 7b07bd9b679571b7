from __future__ import annotations

import sys
from typing import Any

import pytest

from aiomlc import BadRequestError, MissingPackageError
from aiomlc.ray import RayOptions, app, build_app


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)


def test_without_ray_the_error_says_what_to_install() -> None:
    with pytest.raises(MissingPackageError, match=r"pip install 'aiomlc\[ray\]'") as caught:
        build_app()

    assert caught.value.name == "ray"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_replicas": 0}, "num_replicas: must be >= 1, got 0"),
        ({"max_replicas": 1, "num_replicas": 2}, "max_replicas: must be >= num_replicas"),
        ({"target_kv_usage": 1.5}, "target_kv_usage: must be > 0 and <= 1, got 1.5"),
        ({"num_cpus": 0}, "num_cpus: must be > 0, got 0"),
        ({"routing": "random"}, 'routing: must be "prefix" or "balanced"'),
    ],
)
def test_an_option_out_of_range_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        RayOptions(**options)

    assert caught.value.param == next(iter(options))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replicas": "2"}, "replicas: is not an argument; known: model, mode, num_replicas"),
        ({"num_replicas": "two"}, "num_replicas: must be an integer, got 'two'"),
        ({"num_replicas": 1.7}, "num_replicas: must be an integer, got 1.7"),
        ({"num_cpus": "all"}, "num_cpus: must be a number, got 'all'"),
        ({"num_replicas": "0"}, "num_replicas: must be >= 1, got 0"),
        ({"mode": "fast"}, "mode: must be one of"),
    ],
)
def test_an_argument_of_serve_run_is_checked(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        app(arguments)


def test_arguments_of_serve_run_may_be_texts() -> None:
    with pytest.raises(MissingPackageError):
        app({"model": "a", "num_replicas": "2", "num_cpus": "0.5", "routing": "balanced"})
