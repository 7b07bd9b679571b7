"""A pass that removes tuples, and fields of tuples, that are never read.

Each would be an instruction of the virtual machine in every step. The export unpacks all parameters
in every function. A kernel with two results packs them into a tuple, which has no reader once its
fields have been resolved.
"""

from __future__ import annotations

__all__ = ("drop_dead_tuples",)

from typing import Any

import tvm
from tvm import relax
from tvm.relax.analysis import free_vars


def drop_dead_tuples(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Return the module without tuples and tuple fields that are never read. Calls are kept."""
    result = module.clone()
    for name, function in module.functions.items():
        result.update_func(name, _without_unused(function))
    return result


def _without_unused(function: relax.Function) -> relax.Function:
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    used: set[Any] = set(free_vars(function.body.body))
    remaining = []
    for binding in reversed(bindings):
        value = binding.value
        if isinstance(value, relax.Tuple | relax.TupleGetItem) and binding.var not in used:
            continue

        used.update(free_vars(value))
        remaining.append(binding)
    body = relax.SeqExpr([relax.BindingBlock(remaining[::-1])], function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
