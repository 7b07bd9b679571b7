"""The parts of a decoder's library that depend on its KV cache."""

from __future__ import annotations

__all__ = ("CacheGraph",)

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.relax.frontend import nn

from aiomlc.models.graph.decoder import CreateCache


def _object(_: str) -> nn.spec.Object:
    return nn.spec.Object(object_type=nn.Object)


def _unchanged(module: tvm.IRModule) -> tvm.IRModule:
    return module


@dataclass(frozen=True, slots=True)
class CacheGraph:
    """The creation of a KV cache, and the argument by which layers get it."""

    #: Emits the creation of TVM's paged KV cache; None if `extend` adds other functions.
    create: CreateCache | None
    #: Returns the argument's specification, given the name of the number of rows.
    argument: Callable[[str], Any] = _object
    #: Adds functions to the library.
    extend: Callable[[tvm.IRModule], tvm.IRModule] = _unchanged
