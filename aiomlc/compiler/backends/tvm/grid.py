"""The loops of a kernel: work groups and their items on a GPU, plain loops on a processor."""

from __future__ import annotations

__all__ = ("Grid", "grid_of")

from dataclasses import dataclass
from typing import Any, final

import tvm
from tvm.script import tirx as T  # noqa: N812 - TVMScript's name for it.

_ITEMS = 32  # Of a work group; every device has as many.


@final
@dataclass(frozen=True, slots=True)
class Grid:
    """Kinds of loops and memory. On a processor, a work group has one item."""

    is_gpu: bool

    @property
    def num_items(self) -> int:
        """The items of a work group."""
        return _ITEMS if self.is_gpu else 1

    @property
    def shared(self) -> str:
        """The memory scope of a work group."""
        return "shared" if self.is_gpu else "global"

    @property
    def local(self) -> str:
        """The memory scope of an item."""
        return "local" if self.is_gpu else "global"

    def groups(self, extent: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
        """Return the outermost loop."""
        return self._loop(extent, "blockIdx.x")

    def subgroups(self, extent: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
        """Return the loop within `groups`."""
        return self._loop(extent, "blockIdx.y")

    def items(self, count: int | None = None) -> Any:  # noqa: ANN401 - tvm is untyped.
        """Return the loop over the items of a work group; None for `num_items`."""
        return self._loop(self.num_items if count is None else count, "threadIdx.x")

    def _loop(self, extent: Any, thread: str) -> Any:  # noqa: ANN401 - tvm is untyped.
        return T.thread_binding(extent, thread=thread) if self.is_gpu else T.serial(extent)


def grid_of(target: tvm.target.Target) -> Grid:
    """Return the loops of kernels for a target."""
    return Grid(target.kind.name != "llvm")
