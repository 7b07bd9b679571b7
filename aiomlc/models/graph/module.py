"""The bases of a graph's classes. TVM has no types, and a class of an unknown base has none."""

from __future__ import annotations

__all__ = ("Module", "Mutator")

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    class Module:
        """TVM's `nn.Module`, as far as it is used."""

        def __call__(self, *inputs: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            """What `forward` returns."""

        def export_tvm(self, spec: Any, *, allow_extern: bool) -> Any:  # noqa: ANN401
            """The graph as TVM's `IRModule`, its parameters, and its external modules."""

    class Mutator:
        """TVM's `nn.Mutator`, as far as it is used."""

        def visit(self, name: str, node: Any) -> Any:  # noqa: ANN401
            """The graph with its modules replaced."""

        def visit_module(self, name: str, node: Any) -> Any:  # noqa: ANN401
            """What replaces one module."""

else:
    from tvm.relax.frontend.nn import Module, Mutator
