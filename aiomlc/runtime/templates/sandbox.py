"""A Jinja sandbox whose templates run under a budget.

Jinja's own sandbox keeps a template from reaching Python's internals, but not from computing
forever. Here every loop iteration, call, filter, output and costly operator spends steps of the
active `RenderBudget`, and a value that would be too large is refused before it is made.
"""

from __future__ import annotations

__all__ = ("BudgetedEnvironment",)

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from string import Formatter
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, final

import jinja2.filters
from jinja2 import Undefined, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

from aiomlc.runtime.templates.instrumentation import Instrumentation
from aiomlc.runtime.templates.render_budget import (
    Buffer,
    RenderBudget,
    RenderBudgetError,
    active_budget,
    charged,
)
from aiomlc.runtime.templates.sandbox_checks import (
    FILTERS,
    FilterCheck,
    check_method,
    check_operator,
)

# ruff: noqa: ANN401 - the values of a template have any type.

_WIDE_SPECIFICATION = re.compile(r"\d{5,}")
_SCOPES = ("_loop_vars", "_block_vars")  # Arguments that Jinja adds to calls.
_UNSUPPORTED_GLOBALS = ("cycler", "joiner", "lipsum")


# What a filter of Jinja takes before its value.
_LEADING_ARGUMENTS: Mapping[str, Callable[[Context], Any]] = {
    "context": lambda context: context,
    "eval_context": lambda context: context.eval_ctx,
    "environment": lambda context: context.environment,
}


@final
class _CodeGenerator(CodeGenerator):
    """Compiles macros and blocks so that they write to a `Buffer`."""

    def buffer(self, frame: Frame) -> None:
        frame.buffer = self.temporary_identifier()
        self.writeline(f"{frame.buffer} = environment.new_buffer()")


@final
class BudgetedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox that charges the active `RenderBudget`.

    Globals, filters and methods that no chat template needs are left out: `lipsum`, `cycler`,
    `joiner`, the filters for HTML, and those that wrap or fill text.
    """

    code_generator_class: type[CodeGenerator] = _CodeGenerator
    intercepted_binops: frozenset[str] = frozenset({"*", "**", "%"})  # "+" becomes `_add`.

    def __init__(self, **options: Any) -> None:
        # Jinja would compute constant expressions while it compiles, outside of any budget.
        super().__init__(optimized=False, finalize=_finalize, **options)
        for name in _UNSUPPORTED_GLOBALS:
            del self.globals[name]

        self.filters: dict[str, Callable[..., Any]] = {
            name: _charged_filter(jinja2.filters.FILTERS[name], check)
            for name, check in FILTERS.items()
        }
        self.add_filter("safe", lambda value: _SafeText(str(value)))
        for name in ("e", "escape"):
            self.add_filter(name, lambda value: _SafeText(_escape(value)))

        self.filters |= {
            "_add": _add,
            "_charged": _charge_loop,
            "_checked": _check_value,
            "_concat": _concat,
            "_container": _check_container,
            "_step": _spend_step,
        }

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Add a filter, whose arguments and result are checked."""
        self.filters[name] = _charged_filter(function, FILTERS.get(name))

    def new_buffer(self) -> Buffer:
        """Return a buffer for the text of a macro or block; compiled templates call this."""
        return Buffer(active_budget())

    def concat(self, texts: Iterable[str]) -> str:
        """Return the text of a block."""
        buffer = self.new_buffer()
        buffer.extend(texts)
        return "".join(buffer)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute an operator whose result may be large."""
        budget = active_budget()
        check_operator(budget, operator, left, right)
        return budget.check(super().call_binop(context, operator, left, right))

    def call(self, context: Context, function: Any, /, *args: Any, **values: Any) -> Any:
        """Call a function, a macro or a method of a plain value."""
        budget = active_budget()
        budget.spend()
        if isinstance(function, BuiltinFunctionType):
            for name in _SCOPES:
                values.pop(name, None)

            args = tuple(
                _read_all(arg, budget) if isinstance(arg, Iterator) else arg for arg in args
            )
            check_method(budget, function, args, values)
        elif isinstance(function, LoopContext):
            args = tuple(_Charged(arg, budget) for arg in args)
            values = {
                name: _Charged(value, budget)
                for name, value in values.items()
                if name not in _SCOPES
            }
        elif isinstance(function, Macro):
            if function.catch_varargs or function.catch_kwargs:
                budget.check_tree([*args, *values.values()])
        elif not _is_callable(function):
            raise SecurityError("the template calls a value that is not a function")

        return budget.check(super().call(context, function, *args, **values))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a checked `str.format`; None for any other value."""
        if not isinstance(value, BuiltinFunctionType) or value.__name__ != "format":
            return None

        owner = value.__self__
        if not isinstance(owner, str):
            return None

        formatter = _CheckedFormatter(self)
        return lambda *args, **values: formatter.vformat(owner, args, values)

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        source = Instrumentation().visit(source)
        source.set_environment(self)
        return super()._generate(source, name, filename, defer_init)


@final
class _Charged:
    """An iterable that spends a step for each item. Its length is that of the iterable."""

    def __init__(self, values: Any, budget: RenderBudget) -> None:
        self._values = values
        self._budget = budget

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return charged(self._values, self._budget)


@final
class _CheckedFormatter(Formatter):
    """A formatter of `str.format` that checks the widths and cannot reach private attributes."""

    def __init__(self, environment: BudgetedEnvironment) -> None:
        self._environment = environment
        self._budget = active_budget()

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self._budget.spend()
        first, *rest = re.split(r"[.\[]", field_name.replace("]", ""))
        value = self.get_value(int(first) if first.isdigit() else first, args, kwargs)
        for name in rest:
            key: Any = int(name) if name.isdigit() else name
            value = self._environment.getitem(value, key)

        return value, first

    def format_field(self, value: Any, format_spec: str) -> str:
        if _WIDE_SPECIFICATION.search(format_spec):
            raise RenderBudgetError("formats a value with a width of more than 9999")

        self._budget.check_tree(value)
        return self._budget.check_text(str(super().format_field(value, format_spec)))


@final
class _SafeText(str):
    """A text that is marked as HTML: what is added to it is escaped, as by Jinja's own class.

    Jinja's class also has methods of its own, which are not checked.
    """

    __slots__ = ()

    def __add__(self, other: str) -> _SafeText:
        return _SafeText(str(self) + _escape(other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> _SafeText:
        return _SafeText(_escape(other) + str(self)) if isinstance(other, str) else NotImplemented


def _is_callable(function: Any) -> bool:
    if isinstance(function, MethodType):
        return isinstance(function.__self__, LoopContext)

    return isinstance(function, (FunctionType, BlockReference, Undefined)) or (
        isinstance(function, type) and issubclass(function, Namespace)
    )


@pass_context
def _finalize(_context: Context, value: Any) -> str:
    """Return the text of an expression; takes the context so that Jinja does not precompute it."""
    return value if isinstance(value, str) else _to_text(value, active_budget())


def _to_text(value: Any, budget: RenderBudget) -> str:
    if isinstance(value, str):
        return value

    if isinstance(value, (list, tuple, dict)):
        budget.check_tree(value)

    return budget.check_text(str(value))


def _escape(value: Any) -> str:
    """Return a value as HTML. A text that is marked as HTML is already."""
    if isinstance(value, _SafeText):
        return str(value)

    return str(jinja2.filters.FILTERS["escape"](str(value)))


@pass_context
def _add(_context: Context, first: Any, /, *others: Any) -> Any:
    budget = active_budget()
    total = first
    for term in others:
        if type(total) is str and type(term) is str:
            total = budget.check_text(total + term)
        else:
            check_operator(budget, "+", total, term)
            total = budget.check(total + term)

    return total


@pass_context
def _charge_loop(_context: Context, values: Any) -> _Charged:
    return _Charged(values, active_budget())


@pass_context
def _check_value(_context: Context, value: Any) -> Any:
    return active_budget().check(value)


@pass_context
def _spend_step(_context: Context, value: Any) -> Any:
    active_budget().check_clock()  # The comparisons of long strings may have taken a while.
    return value


@pass_context
def _concat(_context: Context, values: list[Any]) -> str:
    budget = active_budget()
    texts = [_to_text(value, budget) for value in values]
    budget.grow(sum(map(len, texts)))
    return budget.check_text("".join(texts))


@pass_context
def _check_container(_context: Context, value: Any) -> Any:
    budget = active_budget()
    budget.check_tree(value)
    return budget.check(value)


def _charged_filter(function: Callable[..., Any], check: FilterCheck | None) -> Callable[..., Any]:
    """Return a filter that checks its arguments and its result.

    It takes the context, so that Jinja does not compute it when a template is loaded.
    """
    passed = getattr(function, "jinja_pass_arg", None)
    leading = None if passed is None else _LEADING_ARGUMENTS[passed.name]

    @pass_context
    def run(context: Context, value: Any, /, *args: Any, **options: Any) -> Any:
        budget = active_budget()
        budget.spend()
        if isinstance(value, Iterator):
            value = charged(value, budget) if check is None else _read_all(value, budget)

        if check is not None:
            check(budget, value, *args, **options)
        elif isinstance(value, (list, range)):
            budget.spend(len(value) // 16)

        if leading is not None:
            args = (value, *args)
            value = leading(context)

        return budget.check(function(value, *args, **options))

    return run


def _read_all(values: Iterator[Any], budget: RenderBudget) -> list[Any]:
    items: list[Any] = []
    for value in charged(values, budget):
        items.append(value)
        if len(items) % 1024 == 0:
            budget.check_items(1024)

    return items
