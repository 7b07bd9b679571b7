"""FFI structs: reflected objects of the native library (`native/src/ffi/records.h`)."""

from __future__ import annotations

__all__ = ("native_record",)

import functools
from collections.abc import Mapping

from aiomlc.runtime.native.library import load_native


@functools.cache
def _record_class(type_key: str) -> type:
    load_native()
    import tvm_ffi

    name = type_key.rpartition(".")[2]
    return tvm_ffi.register_object(type_key)(type(name, (tvm_ffi.Object,), {}))


def native_record(type_key: str, fields: Mapping[str, object]) -> object:
    """Return a new FFI struct; a field that is None, or absent, keeps its native default.

    Raises:
        AttributeError: If the struct has no such field.
        TypeError: If a value does not have the type of its field.
    """
    record: object = _record_class(type_key)()
    for name, value in fields.items():
        if value is not None:
            setattr(record, name, value)
    return record
