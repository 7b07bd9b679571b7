"""Sealed JSON, regular files and locks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aiomlc.cache.files import (
    Lease,
    is_settled,
    lock_alone,
    read_sealed,
    regular_file,
    stamp_of,
    write_sealed,
)


def test_every_flipped_bit_of_a_sealed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_sealed(path, {"name": "x", "values": [1, 2.5, None]})
    intact = path.read_bytes()
    for bit in range(len(intact) * 8):
        data = bytearray(intact)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)

        with pytest.raises(ValueError, match=r"valid|checksum"):
            read_sealed(path)

    path.write_bytes(intact)
    assert read_sealed(path) == {"name": "x", "values": [1, 2.5, None]}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\x00", b"[" * 100_000])
def test_garbage_is_not_a_sealed_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(ValueError, match="is not valid"):
        read_sealed(tmp_path / "file")


def test_a_huge_sealed_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(ValueError, match="has 1099511627776 bytes"):
        read_sealed(tmp_path / "file")


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "missing"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()

    with pytest.raises(OSError, match=r"."), regular_file(path):
        pass


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_sealed(path, "old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="full"):
        write_sealed(path, "new")

    assert read_sealed(path) == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_lease_excludes_the_exclusive_lock(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    leases = [Lease(path), Lease(path)]
    with regular_file(path) as descriptor:
        assert not lock_alone(descriptor)
        del leases[:]
        assert lock_alone(descriptor)
        with pytest.raises(BlockingIOError):
            Lease(path)


def test_a_file_system_without_locks_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    path = tmp_path / "file"
    path.touch()
    monkeypatch.setattr("fcntl.flock", fail)
    lease = Lease(path)

    assert not lock_alone(lease.descriptor)


def test_a_file_is_settled_once_its_times_are_in_the_past(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    stamp = stamp_of(path.stat())

    assert not is_settled([stamp])
    assert is_settled([[stamp[0], stamp[1], stamp[2] - 2 * 10**9, stamp[3] - 2 * 10**9]])
