"""The changes of a template's syntax tree by which it charges the active `RenderBudget`."""

from __future__ import annotations

__all__ = ("Instrumentation",)

from typing import final

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

_COMPARISONS_PER_STEP = 16


@final
class Instrumentation(NodeTransformer):
    """Makes a template charge its loops, containers, slices, comparisons and concatenations."""

    def __init__(self) -> None:
        self._num_comparisons = 0

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - Jinja's.
        self.generic_visit(node)
        node.iter = _apply(node.iter, "_charged")
        return node

    def visit_Add(self, node: nodes.Add) -> nodes.Expr:  # noqa: N802
        terms = []
        first: nodes.Expr = node
        while isinstance(first, nodes.Add):
            terms.append(self.visit(first.right))
            first = first.left

        return nodes.Filter(
            self.visit(first), "_add", terms[::-1], [], None, None, lineno=node.lineno
        )

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _apply(nodes.List(node.nodes, lineno=node.lineno), "_concat")

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        return self._charge_container(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802
        return self._charge_container(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        if node.ctx == "load":
            return self._charge_container(node)

        self.generic_visit(node)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _apply(node, "_checked") if isinstance(node.arg, nodes.Slice) else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:  # noqa: N802
        return self._charge_comparison(node)

    def visit_Test(self, node: nodes.Test) -> nodes.Expr:  # noqa: N802
        return self._charge_comparison(node)

    def visit_ScopedEvalContextModifier(self, node: nodes.Node) -> nodes.Node:  # noqa: N802
        raise TemplateSyntaxError("autoescape is not available in chat templates", node.lineno)

    def _charge_container(self, node: nodes.Expr) -> nodes.Expr:
        if all(isinstance(item, nodes.Const) for item in node.iter_child_nodes()):
            return node  # No larger than the template itself.

        self.generic_visit(node)
        return _apply(node, "_container")

    def _charge_comparison(self, node: nodes.Expr) -> nodes.Expr:
        self.generic_visit(node)
        self._num_comparisons += 1
        if self._num_comparisons % _COMPARISONS_PER_STEP:
            return node

        return _apply(node, "_step")


def _apply(node: nodes.Node, filter_name: str) -> nodes.Filter:
    return nodes.Filter(node, filter_name, [], [], None, None, lineno=node.lineno)
