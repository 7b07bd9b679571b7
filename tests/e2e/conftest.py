from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import aiomlc

BUNDLED = Path(aiomlc.__file__).parent / "bundled" / "pebble"


@pytest.fixture(autouse=True, scope="session")
def bundled_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Use a temporary cache directory, and return the directory of the bundled model."""
    if not (BUNDLED / "mlc-chat-config.json").is_file():
        pytest.skip("the bundled model is missing")

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AIOMLC_HOME", str(tmp_path_factory.mktemp("home")))
        yield BUNDLED
