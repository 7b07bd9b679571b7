"""Tests of loading the native libraries."""

from __future__ import annotations

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.native.library import load_native


def test_a_wrong_library_is_named_with_the_variable_that_chose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOMLC_LIBRARY", "/missing/libaiomlc.so")

    with pytest.raises(ModelLoadError, match=r"/missing/libaiomlc\.so: .*; AIOMLC_LIBRARY is set"):
        load_native.__wrapped__()
