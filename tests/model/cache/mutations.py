"""Damage to the files of a cache."""

from __future__ import annotations

__all__ = ("MUTATIONS", "mutate")

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from aiomlc.cache.files import stamp_of


def _flip_bit(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    _overwrite(path, bytes(data))


def _flip_bit_and_restore_time(path: Path, random: Random) -> None:
    status = path.stat()
    _flip_bit(path, random)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _swap_halves(path: Path, _: Random) -> None:
    data = path.read_bytes()
    _overwrite(path, data[len(data) // 2 :] + data[: len(data) // 2])


def _fill_with_zeros(path: Path, _: Random) -> None:
    _overwrite(path, bytes(path.stat().st_size))


def _truncate(path: Path, random: Random) -> None:
    path.chmod(0o644)
    os.truncate(path, random.randrange(path.stat().st_size))


def _append(path: Path, random: Random) -> None:
    path.chmod(0o644)
    with path.open("ab") as file:
        file.write(random.randbytes(random.randint(1, 5000)))


def _replace_with_garbage(path: Path, random: Random) -> None:
    _overwrite(path, random.randbytes(random.randint(0, 5000)))


def _remove(path: Path, _: Random) -> None:
    path.unlink()


def _replace_with_broken_link(path: Path, _: Random) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _replace_with_endless_link(path: Path, _: Random) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _replace_with_link_to_copy(path: Path, _: Random) -> None:
    path.rename(path.with_suffix(".copy"))
    path.symlink_to(path.with_suffix(".copy").name)


def _replace_with_pipe(path: Path, _: Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_with_directory(path: Path, _: Random) -> None:
    path.unlink()
    path.mkdir()


def _remove_entry(path: Path, _: Random) -> None:
    shutil.rmtree(path.parent)


def _replace_entry_with_file(path: Path, _: Random) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("not a directory")


def _replace_entry_with_link(path: Path, random: Random) -> None:
    target = path.parent.with_name(f"{random.getrandbits(32)}.moved")
    path.parent.rename(target)
    path.parent.symlink_to(target.name)


MUTATIONS: tuple[Callable[[Path, Random], None], ...] = (
    _flip_bit,
    _flip_bit_and_restore_time,
    _swap_halves,
    _fill_with_zeros,
    _truncate,
    _append,
    _replace_with_garbage,
    _remove,
    _replace_with_broken_link,
    _replace_with_endless_link,
    _replace_with_link_to_copy,
    _replace_with_pipe,
    _replace_with_directory,
    _remove_entry,
    _replace_entry_with_file,
    _replace_entry_with_link,
)


def mutate(path: Path, random: Random) -> str:
    """Damage a regular file, or the directory that contains it; return the damage's name."""
    mutation = random.choice(MUTATIONS)
    mutation(path, random)
    return mutation.__name__


def _overwrite(path: Path, data: bytes) -> None:
    """Write a file in place, so that its stamp changes even if its clock ticks slowly."""
    path.chmod(0o644)
    stamp = stamp_of(path.stat())
    path.write_bytes(data)
    while stamp_of(path.stat()) == stamp:
        path.write_bytes(data)
