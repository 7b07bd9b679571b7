"""The pickles in files of PyTorch, read as data: a pickle is a program.

Only the instructions and names that a dictionary of tensors consists of are accepted.
"""

from __future__ import annotations

__all__ = ("CONVERT", "StoredTensor", "read_torch_pickle")

import io
import math
import pickletools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, final

from aiomlc.validation.json_values import safe_repr
from aiomlc.weights.formats.source import DTYPE_BYTES, is_size

CONVERT: Final = "write it as safetensors, with save_file of the package safetensors"
_STORAGES: Final = {
    "FloatStorage": "f32",
    "HalfStorage": "f16",
    "BFloat16Storage": "bf16",
}


class StoredData(NamedTuple):
    """The data of one or more tensors."""

    key: str  #: The name of its file.
    dtype: str


class StoredTensor(NamedTuple):
    storage: StoredData
    offset: int  #: Numbers of the storage before it.
    shape: tuple[int, ...]


def read_torch_pickle(data: bytes) -> object:
    """Return what a pickle of PyTorch describes, without running it.

    Raises:
        ValueError: If it is more than a dictionary of tensors needs.
    """
    try:
        return _Machine().run(data)
    except (IndexError, KeyError):  # Of the stack and the memo.
        raise ValueError("data.pkl is damaged") from None


_Function: TypeAlias = "Callable[[object], object]"  # Called with a tuple, if the file is correct.


@final
class _Machine:
    """Runs the instructions of a pickle that dictionaries of tensors consist of.

    Python's own one would compare and hash what the file says, such as a tuple of two references to
    a tuple of two references, which takes forever.
    """

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []  # Where the items of tuples and dictionaries begin.
        self._memo: dict[int, object] = {}

    def run(self, data: bytes) -> object:
        """Return what the pickle describes.

        Raises:
            ValueError: If it has another instruction, or is malformed.
            IndexError: If it takes more from the stack than is there.
            KeyError: If it refers to an object that was not stored.
        """
        file = io.BytesIO(data)
        while (instruction := _instruction(file.read(1))).name != "STOP":
            name, kind = instruction.name, instruction.arg
            argument: Any
            if name == "GLOBAL":  # pickletools would interpret escape sequences.
                argument = b" ".join(file.readline().rstrip(b"\n") for _ in range(2)).decode()
            else:
                argument = None if kind is None else kind.reader(file)
            if name in _VALUES:
                self._stack.append(_VALUES[name] if kind is None else argument)
            elif name in _TUPLES:
                self._stack.append(self._take(_TUPLES[name]))
            else:
                _STEPS[name](self, argument)
        return self._stack.pop()

    def mark(self, _: object) -> None:
        """Remember where the items of a tuple or dictionary begin."""
        self._marks.append(len(self._stack))

    def put(self, index: int) -> None:
        """Store the last object."""
        self._memo[index] = self._stack[-1]

    def get(self, index: int) -> None:
        """Add a stored object."""
        self._stack.append(self._memo[index])

    def make_dict(self, _: object) -> None:
        """Add an empty dictionary."""
        self._stack.append({})

    def make_tuple(self, _: object) -> None:
        """Add a tuple of what is above the mark."""
        self._stack.append(self._take_to_mark())

    def set_item(self, _: object) -> None:
        """Put one item into a dictionary."""
        self._set_items(self._take(2))

    def set_items(self, _: object) -> None:
        """Put what is above the mark into a dictionary."""
        self._set_items(self._take_to_mark())

    def find(self, name: str) -> None:
        """Add what a name stands for."""
        self._stack.append(_find(name))

    def reduce(self, _: object) -> None:
        """Call a function."""
        function, arguments = self._take(2)
        self._stack.append(_call(function, arguments))

    def load(self, _: object) -> None:
        """Add the data that an identifier describes."""
        self._stack.append(_storage(self._stack.pop()))

    def build(self, _: object) -> None:
        """Drop the attributes of a dictionary, which say nothing of its tensors."""
        self._stack.pop()
        if not isinstance(self._stack[-1], dict):
            raise ValueError("data.pkl has attributes of what is no dictionary")

    def _take(self, count: int) -> tuple[Any, ...]:
        return tuple(reversed([self._stack.pop() for _ in range(count)]))

    def _take_to_mark(self) -> tuple[Any, ...]:
        return self._take(max(0, len(self._stack) - self._marks.pop()))

    def _set_items(self, items: tuple[Any, ...]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise ValueError("data.pkl is damaged")

        for name, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(name, str):
                raise ValueError(f"data.pkl has the name {safe_repr(name)}, which is no string")

            target[name] = value


#: The instructions that add a value: their argument, or a constant.
_VALUES: Final[Mapping[str, object]] = {
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "NONE")),
    "NEWTRUE": True,
    "NEWFALSE": False,
}
#: Those that add a tuple, and the number of its items.
_TUPLES: Final[Mapping[str, int]] = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


_Step: TypeAlias = "Callable[[_Machine, Any], None]"  # With the argument of the instruction.
_STEPS: Final[Mapping[str, _Step]] = {
    "PROTO": lambda _machine, _version: None,
    "MARK": _Machine.mark,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "EMPTY_DICT": _Machine.make_dict,
    "TUPLE": _Machine.make_tuple,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "GLOBAL": _Machine.find,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.load,
}


_INSTRUCTIONS: Final = {
    each.code.encode("latin-1"): each
    for each in pickletools.opcodes
    if each.name in {"STOP", *_VALUES, *_TUPLES, *_STEPS}
}


def _instruction(code: bytes) -> pickletools.OpcodeInfo:
    """Return the instruction of a code, before its argument is read."""
    if not code:
        raise ValueError("data.pkl has no end")

    if code not in _INSTRUCTIONS:
        names = (each.name for each in pickletools.opcodes if each.code == chr(code[0]))
        name = next(names, repr(code))
        raise ValueError(f"data.pkl has the instruction {name}: {CONVERT}")

    return _INSTRUCTIONS[code]


def _find(name: str) -> object:
    """Return what a name of the file, `MODULE NAME`, stands for."""
    module, _, attribute = name.partition(" ")
    if module == "torch" and attribute in _STORAGES:
        return _STORAGES[attribute]

    if name not in _FUNCTIONS:
        raise ValueError(
            f"data.pkl refers to {safe_repr(f'{module}.{attribute}')}, which is no part of a "
            f"dictionary of float tensors: {CONVERT}"
        )

    return _FUNCTIONS[name]


def _call(function: object, arguments: object) -> object:
    for known in _FUNCTIONS.values():
        if known is function:
            return known(arguments)

    raise ValueError("data.pkl calls what is no function")


def _storage(pid: object) -> StoredData:
    match pid:
        case ("storage", str(dtype), str(key), _, _) if dtype in DTYPE_BYTES:
            return StoredData(key, dtype)
        case _:
            raise ValueError("data.pkl refers to data that is not a storage of floats")


def _build_dict(arguments: object) -> dict[str, object]:
    """Return an empty dictionary: copies of large ones would take memory without bounds."""
    if arguments != ():
        raise ValueError(f"data.pkl has a dictionary that is a copy: {CONVERT}")

    return {}


def _build_tensor(arguments: object) -> StoredTensor:
    match arguments:
        case (StoredData() as storage, offset, shape, strides, *_):
            pass
        case _:
            raise ValueError("data.pkl has a malformed tensor")

    if not is_size(offset) or not _are_sizes(shape) or not _are_sizes(strides):
        raise ValueError("data.pkl has a malformed tensor")

    if strides != tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))):
        raise ValueError(f"data.pkl has a tensor whose rows are not contiguous: {CONVERT}")

    return StoredTensor(storage, offset, shape)


def _build_parameter(arguments: object) -> StoredTensor:
    match arguments:
        case (StoredTensor() as tensor, *_):
            return tensor
        case _:
            raise ValueError("data.pkl has a malformed parameter")


_FUNCTIONS: Final[Mapping[str, _Function]] = {
    "collections OrderedDict": _build_dict,
    "torch._utils _rebuild_tensor_v2": _build_tensor,
    "torch._utils _rebuild_parameter": _build_parameter,
}


def _are_sizes(value: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and len(value) <= 8 and all(is_size(item) for item in value)
