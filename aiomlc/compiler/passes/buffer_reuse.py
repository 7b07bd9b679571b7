"""Reuse the memory of tensors that are dead, so a step allocates for one layer and not for all.

TVM's own plan counts bytes, which for symbolic sizes takes generated code. Here a dead tensor is
taken over whole by the next one of its shape, and views of it that are the same are one view.
"""

from __future__ import annotations

__all__ = ("plan_memory",)

import math
from collections import defaultdict
from typing import Any, final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

Kind = tuple[str, str]  # Shape and type in words; a symbolic size has one name in a function.


def plan_memory(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Plan every function, then ask for what is left by shape."""
    mutation = _AllocateByShape(module)
    for name, function in module.functions.items():
        mutation.builder_.update_func(name, mutation.visit_expr(_Planner(function).planned()))
    return mutation.builder_.get()


@final
class _Planner:
    """Plans one function: a straight line of bindings, as there is no control flow."""

    def __init__(self, function: relax.Function) -> None:
        self._function = function
        self._bindings = [b for block in function.body.blocks for b in block.bindings]
        self._owners: dict[Any, set[Any]] = {}  # The allocations a variable is a name for.
        self._last_use: dict[Any, float] = {}
        self._find_lifetimes()

    def planned(self) -> relax.Function:
        """The function with its allocations and views replaced where one can serve again."""
        bindings = [
            relax.VarBinding(binding.var, value)
            for binding, value in zip(self._bindings, self._values(), strict=True)
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
                self._owners[binding.var] = self._owned(fields[value.tuple_value][value.index])
            elif isinstance(value, relax.Var) or _is_call(value, "relax.reshape"):
                self._owners[binding.var] = self._owned(value)
            elif isinstance(value, relax.Tuple):
                fields[binding.var] = list(value.fields)
                self._owners[binding.var] = self._owned(value)
                continue  # To be in a tuple is no use; its fields may live on for different times.
            self._use(value, index)
        self._use(self._function.body.body, math.inf)

    def _use(self, value: Any, index: float) -> None:  # noqa: ANN401 - tvm is untyped.
        for owner in self._owned(value):
            self._last_use[owner] = max(index, self._last_use.get(owner, 0))

    def _owned(self, value: Any) -> set[Any]:  # noqa: ANN401 - tvm is untyped.
        if isinstance(value, relax.Var):
            return self._owners.get(value, set())

        if isinstance(value, relax.TupleGetItem):
            return self._owned(value.tuple_value)

        parts = value.fields if isinstance(value, relax.Tuple) else getattr(value, "args", ())
        return set().union(*(self._owned(part) for part in parts))

    def _values(self) -> list[Any]:
        """The bindings' values, with a variable where an earlier tensor or view serves again."""
        holders: dict[Any, Any] = {}  # The tensor whose memory an allocation is given.
        idle: dict[Kind, list[tuple[float, Any]]] = defaultdict(list)
        views: dict[tuple[Any, str], Any] = {}
        values = []
        for index, binding in enumerate(self._bindings):
            value = binding.value
            if _is_call(value, "relax.builtin.alloc_tensor"):
                tensors = idle[str(value.args[0]), str(value.args[1])]
                dead = next((entry for entry in tensors if entry[0] < index), None)
                if dead is not None:
                    tensors.remove(dead)
                    value = dead[1]
                holders[binding.var] = binding.var if dead is None else dead[1]
                tensors.append((self._last_use.get(binding.var, index), holders[binding.var]))
            elif _is_call(value, "relax.reshape") and self._owned(value):
                (owner,) = self._owned(value)
                key = (holders[owner], str(value.args[1]))
                value = views.get(key, value)
                views.setdefault(key, binding.var)
            values.append(value)
        return values


def _is_call(value: Any, name: str) -> bool:  # noqa: ANN401 - tvm is untyped.
    return isinstance(value, relax.Call) and value.op == tvm.ir.Op.get(name)


@mutator
class _AllocateByShape(PyExprMutator):  # type: ignore[misc]
    """Ask for storage by shape: TVM's own lowering computes bytes, in generated code."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not _is_call(call, "relax.builtin.alloc_tensor"):
            return call

        shape, dtype = call.args[0], call.args[1]
        memory = relax.op.memory
        # The bytes of an element are an axis: the virtual machine counts storage in bytes.
        size = relax.ShapeExpr([*shape.values, dtype.value.itemsize])
        storage = self.builder_.emit(memory.alloc_storage(size, 0, "global", "uint8"))
        return memory.alloc_tensor(storage, 0, shape, dtype)
