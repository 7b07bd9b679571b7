"""TVM's base classes of graph modules, with types. TVM is untyped, and a class that derives from an
untyped base would be untyped as well."""

from __future__ import annotations

__all__ = ("Module", "Mutator")

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    class Module:
        """The part of TVM's `nn.Module` that is used here."""

        def __call__(self, *inputs: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            """Return the result of `forward`."""

        def export_tvm(self, spec: Any, *, allow_extern: bool) -> Any:  # noqa: ANN401
            """Return the graph as an `IRModule`, its parameters, and its external modules."""

    class Mutator:
        """The part of TVM's `nn.Mutator` that is used here."""

        def visit(self, name: str, node: Any) -> Any:  # noqa: ANN401
            """Return the graph with its modules replaced."""

        def visit_module(self, name: str, node: Any) -> Any:  # noqa: ANN401
            """Return the replacement of one module."""

else:
    from tvm.relax.frontend.nn import Module, Mutator
