"""Tests of loading the native libraries."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.native import library
from aiomlc.runtime.native.library import load_native


def test_a_wrong_library_is_named_with_the_variable_that_chose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOMLC_LIBRARY", "/missing/libaiomlc.so")

    with pytest.raises(ModelLoadError, match=r"/missing/libaiomlc\.so: .*; AIOMLC_LIBRARY is set"):
        load_native.__wrapped__()


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
def test_no_other_library_can_replace_functions_of_ours() -> None:
    path = str(library._library_path())
    exported = subprocess.check_output(["nm", "-D", "--defined-only", path], text=True)

    assert exported == ""
