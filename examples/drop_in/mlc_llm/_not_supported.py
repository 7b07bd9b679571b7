"""The parts of MLC LLM that aiomlc does not have: a typed error in place of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from opcode import opmap
from types import ModuleType
from typing import Any, NoReturn

from aiomlc import AiomlcError

_COMPILER = "aiomlc compiles models by itself; see `aiomlc compile` and `aiomlc convert`"
# Modules without a counterpart, with those below them, and why.
_MODULES = {
    "bench": "use `aiomlc bench`",
    "cli": "see `python -m mlc_llm --help` for the commands that exist",
    "compiler_pass": _COMPILER,
    "contrib": "use `AsyncEmbeddingEngine`, or `aiomlc.integrations`",
    "interface": "use the command line, or the functions of `aiomlc`",
    "loader": _COMPILER,
    "model": _COMPILER,
    "nn": _COMPILER,
    "op": _COMPILER,
    "quantization": _COMPILER,
    "support": "it belongs to MLC LLM's compiler and command line",
    "testing": "use `aiomlc.testing`",
}


class NotSupportedError(AiomlcError, ImportError):
    """A module, class or function of MLC LLM that aiomlc does not have."""


class NotSupportedAttributeError(AiomlcError, AttributeError):
    """The same for a name that is looked up in a module, so that `hasattr` is False."""


def lacks(module: str, reason: str, names: Sequence[str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that lacks some of MLC LLM's names."""

    def get(name: str) -> NoReturn:
        if name in names:
            message = f"{module}.{name} is not supported by aiomlc: {reason}"
            caller = sys._getframe(1)
            # `from module import name` has its own words in place of an AttributeError.
            if caller.f_code.co_code[caller.f_lasti] == opmap["IMPORT_FROM"]:
                raise NotSupportedError(message, name=module)

            raise NotSupportedAttributeError(message, name=name)

        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get


class FunctionTable(dict[str, Callable[..., Any]]):
    """The functions of an engine under the names of MLC LLM's `_ffi`."""

    def __missing__(self, name: str) -> NoReturn:
        raise NotSupportedError(f"_ffi[{name!r}] is not supported by aiomlc; it has {list(self)}")


class _MissingModules(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        reason = _MODULES.get(rest.partition(".")[0]) if package == "mlc_llm" else None
        if reason is None:
            return None

        raise NotSupportedError(f"{fullname} is not supported by aiomlc: {reason}", name=fullname)


# The last one, so that the modules of this package are found first.
sys.meta_path.append(_MissingModules())
