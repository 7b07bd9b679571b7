"""A pass that reuses the memory of dead tensors, so that a step allocates memory for one layer.

TVM's memory planning computes bytes, which requires generated code for symbolic sizes. Here, a
new tensor takes the memory of a dead tensor with the same shape and dtype, and equal views of the
same memory become one view.
"""

from __future__ import annotations

__all__ = ("reuse_buffers",)

import math
from collections import defaultdict
from typing import Any, final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

#: Shape and dtype as text; a symbolic size has the same name throughout a function.
TensorKind = tuple[str, str]


def reuse_buffers(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Return the module with buffers reused, and with the remaining tensors allocated by shape."""
    mutation = _AllocateByShape(module)
    for name, function in module.functions.items():
        mutation.builder_.update_func(name, mutation.visit_expr(_FunctionPlan(function).apply()))
    return mutation.builder_.get()


@final
class _FunctionPlan:
    """The reuse plan of one function, a sequence of bindings without control flow."""

    def __init__(self, function: relax.Function) -> None:
        self._function = function
        self._bindings = [b for block in function.body.blocks for b in block.bindings]
        self._owners: dict[Any, set[Any]] = {}  # Allocations that a variable refers to.
        self._last_use: dict[Any, float] = {}
        self._find_lifetimes()

    def apply(self) -> relax.Function:
        """Return the function with allocations and views replaced by reusable earlier ones."""
        bindings = [
            relax.VarBinding(binding.var, value)
            for binding, value in zip(self._bindings, self._planned_values(), strict=True)
        ]
        body = relax.SeqExpr([relax.BindingBlock(bindings)], self._function.body.body)
        function = self._function
        return relax.Function(
            function.params, body, function.ret_ty, function.is_pure, function.attrs
        )

    def _find_lifetimes(self) -> None:
        fields: dict[Any, list[Any]] = {}
        for index, binding in enumerate(self._bindings):
            value = binding.value
            if _is_call(value, "relax.builtin.alloc_tensor"):
                self._owners[binding.var] = {binding.var}
            elif isinstance(value, relax.TupleGetItem) and value.tuple_value in fields:
                self._owners[binding.var] = self._owners_of(fields[value.tuple_value][value.index])
            elif isinstance(value, relax.Var) or _is_call(value, "relax.reshape"):
                self._owners[binding.var] = self._owners_of(value)
            elif isinstance(value, relax.Tuple):
                fields[binding.var] = list(value.fields)
                self._owners[binding.var] = self._owners_of(value)
                continue  # Packing is not a use: the fields may have different lifetimes.
            self._record_use(value, index)
        self._record_use(self._function.body.body, math.inf)

    def _record_use(self, value: Any, index: float) -> None:  # noqa: ANN401 - tvm is untyped.
        for owner in self._owners_of(value):
            self._last_use[owner] = max(index, self._last_use.get(owner, 0))

    def _owners_of(self, value: Any) -> set[Any]:  # noqa: ANN401 - tvm is untyped.
        if isinstance(value, relax.Var):
            return self._owners.get(value, set())

        if isinstance(value, relax.TupleGetItem):
            return self._owners_of(value.tuple_value)

        parts = value.fields if isinstance(value, relax.Tuple) else getattr(value, "args", ())
        return set().union(*(self._owners_of(part) for part in parts))

    def _planned_values(self) -> list[Any]:
        """Return the bindings' values, with earlier variables for reused allocations and views."""
        holders: dict[Any, Any] = {}  # The tensor whose memory each allocation uses.
        # Last use and variable of each tensor that owns memory.
        allocated: dict[TensorKind, list[tuple[float, Any]]] = defaultdict(list)
        views: dict[tuple[Any, str], Any] = {}
        values = []
        for index, binding in enumerate(self._bindings):
            value = binding.value
            if _is_call(value, "relax.builtin.alloc_tensor"):
                tensors = allocated[str(value.args[0]), str(value.args[1])]
                dead = next((entry for entry in tensors if entry[0] < index), None)
                if dead is not None:
                    tensors.remove(dead)
                    value = dead[1]
                holders[binding.var] = binding.var if dead is None else dead[1]
                tensors.append((self._last_use.get(binding.var, index), holders[binding.var]))
            elif _is_call(value, "relax.reshape") and self._owners_of(value):
                (owner,) = self._owners_of(value)
                key = (holders[owner], str(value.args[1]))
                value = views.get(key, value)
                views.setdefault(key, binding.var)
            values.append(value)
        return values


def _is_call(value: Any, name: str) -> bool:  # noqa: ANN401 - tvm is untyped.
    return isinstance(value, relax.Call) and value.op == tvm.ir.Op.get(name)


@mutator
class _AllocateByShape(PyExprMutator):  # type: ignore[misc]
    """Allocates storage by shape; TVM's lowering computes bytes in generated code."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not _is_call(call, "relax.builtin.alloc_tensor"):
            return call

        shape, dtype = call.args[0], call.args[1]
        memory = relax.op.memory
        # The last axis is the bytes per element: the virtual machine counts storage in bytes.
        size = relax.ShapeExpr([*shape.values, dtype.value.itemsize])
        storage = self.builder_.emit(memory.alloc_storage(size, 0, "global", "uint8"))
        return memory.alloc_tensor(storage, 0, shape, dtype)
