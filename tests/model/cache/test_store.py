"""Entries of the cache: verification, repair, use and staging."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio import CancelScope, create_task_group, from_thread, move_on_after, to_thread

from aiomlc.cache import LIBRARIES, WEIGHTS, Entry, cache_home, entry, find, removal, store
from aiomlc.cache.checksum import file_checksums
from aiomlc.cache.files import exclusive_lock, lock_alone, regular_file
from aiomlc.cache.maintenance import list_entries
from aiomlc.cache.removal import publication_lock, remove
from aiomlc.errors import ModelLoadError
from tests.model.cache.mutations import MUTATIONS

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("home")]

INFO = {"model": "model", "quantization": "q4f16_1"}
FILES = ("model.vm", "metadata.json", "manifest.json", "state.json")


def _no_checkpoint() -> None:
    pass


async def _publish(key: str = "key", content: bytes = b"content") -> Entry:
    async with store.staged_entry(LIBRARIES, len(content)) as staged:
        for name in LIBRARIES.files:
            (staged.path / name).write_bytes(content)
        return await to_thread.run_sync(store.publish, staged, key, INFO, _no_checkpoint)


def _find(key: str = "key") -> Entry | None:
    return find(LIBRARIES, key, _no_checkpoint)


def _set_times(path: Path, when: float) -> None:
    os.utime(path / "state.json", (when, when))


def _names() -> list[str]:
    directory = cache_home() / "libraries"
    return sorted(item.name for item in directory.iterdir()) if directory.exists() else []


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the size of each file that is verified."""
    sizes: list[int] = []

    def record(descriptor: int, nbytes: int, checkpoint: Callable[[], object]) -> list[str]:
        sizes.append(nbytes)
        return file_checksums(descriptor, nbytes, checkpoint)

    monkeypatch.setattr(entry, "file_checksums", record)
    return sizes


async def test_a_published_entry_is_not_verified_again(verified: list[int]) -> None:
    await _publish()
    verified.clear()

    assert _find() is not None
    assert verified == []


async def test_an_entry_is_verified_once_after_each_boot(
    verified: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await _publish()
    monkeypatch.setattr(entry, "is_settled", lambda _: True)
    for boot in ("first", "second"):
        monkeypatch.setattr(entry, "_boot_id", lambda boot=boot: boot)
        verified.clear()

        assert _find() is not None
        assert _find() is not None
        assert verified == [7, 7]


async def test_without_a_boot_id_every_start_verifies(
    verified: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "_boot_id", lambda: None)
    await _publish()
    verified.clear()

    assert _find() is not None
    assert verified == [7, 7]


async def test_a_file_that_was_just_changed_is_verified_again(verified: list[int]) -> None:
    path = (await _publish()).path
    (path / "model.vm").touch()
    verified.clear()

    assert _find() is not None
    assert _find() is not None
    assert verified == [7, 7]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__.strip("_"))
@pytest.mark.parametrize("name", FILES)
async def test_a_damaged_entry_is_made_again_with_one_warning(
    name: str, mutation: Callable[[Path, Random], None], caplog: pytest.LogCaptureFixture
) -> None:
    file = (await _publish()).path / name
    mutation(file, Random(name))

    with caplog.at_level(logging.WARNING, "aiomlc"):
        found = _find()
        remade = await _publish()

    is_damage = found is None and mutation.__name__ != "_remove_entry"
    assert len(caplog.records) == is_damage
    assert found is None or name == "state.json"
    assert [(remade.path / data).read_bytes() for data in LIBRARIES.files] == [b"content"] * 2
    caplog.clear()
    assert _find() is not None
    assert caplog.records == []


async def test_of_concurrent_publications_the_first_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    inodes: list[int] = []

    async def publish() -> None:
        published = await _publish()
        inodes.append((published.path / "model.vm").stat().st_ino)

    def remove_late(path: Path) -> bool:
        time.sleep(0.01)  # Others look for the entry, and find none, in the meantime.
        return remove(path)

    monkeypatch.setattr(store, "remove", remove_late)
    async with create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(publish)

    assert len(inodes) == 16
    assert len(set(inodes)) == 1
    assert _names() == ["key"]


async def test_a_publication_that_waits_for_another_can_be_cancelled() -> None:
    await _publish()
    with exclusive_lock(cache_home() / "publication.lock", _no_checkpoint):
        async with store.staged_entry(LIBRARIES) as staged:
            for name in LIBRARIES.files:
                (staged.path / name).write_bytes(b"other content")
            arguments = (staged, "other", INFO, from_thread.check_cancelled)
            with move_on_after(0.1) as scope:
                await to_thread.run_sync(store.publish, *arguments)

    assert scope.cancelled_caught
    assert _names() == ["key"]


async def test_a_removal_waits_for_a_publication() -> None:
    """Otherwise what was published after a check would be removed."""
    path = (await _publish()).path
    publishing = publication_lock(path)
    removed: list[bool] = []

    async def remove_unused() -> None:
        removed.append(await to_thread.run_sync(removal.remove_unused, path, LIBRARIES))

    async with create_task_group() as tasks:
        with publishing:
            tasks.start_soon(remove_unused)
            await anyio.sleep(0.1)
            assert (removed, _names()) == ([], ["key"])

    assert (removed, _names()) == ([True], [])


async def test_an_entry_that_was_replaced_before_it_was_locked_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = (await _publish()).path

    def lock_after_a_replacement(descriptor: int) -> bool:
        (path / "model.vm").replace(path / "replaced")
        (path / "model.vm").write_bytes(b"content")
        return lock_alone(descriptor)

    monkeypatch.setattr(removal, "lock_alone", lock_after_a_replacement)

    assert not removal.remove_unused(path, LIBRARIES)
    assert _names() == ["key"]


async def test_a_link_in_place_of_an_entry_is_removed_but_not_its_target(tmp_path: Path) -> None:
    path = (await _publish()).path
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")

    await _publish()

    assert not path.is_symlink()
    assert (tmp_path / "elsewhere" / "model.vm").exists()


async def test_data_files_are_protected_against_truncation() -> None:
    path = (await _publish()).path

    assert [(path / name).stat().st_mode & 0o777 for name in LIBRARIES.files] == [0o444] * 2


async def test_the_oldest_entries_are_removed_when_the_limit_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for age, key in ((300, "oldest"), (100, "newer"), (200, "older")):
        _set_times((await _publish(key, bytes(10_000))).path, 1e9 - age)
    monkeypatch.setenv("AIOMLC_CACHE_LIMIT", "50kB")

    await _publish("new", bytes(10_000))

    assert _names() == ["new", "newer"]


async def test_a_lookup_makes_an_entry_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    for age, key in ((2, "old"), (1, "new")):
        _set_times((await _publish(key, bytes(10_000))).path, 1e9 - age)
    assert _find("old") is not None
    monkeypatch.setenv("AIOMLC_CACHE_LIMIT", "50kB")

    await _publish("third", bytes(10_000))

    assert _names() == ["old", "third"]


async def test_entries_in_use_are_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    used = await _publish("used")
    await _publish("unused")
    monkeypatch.setenv("AIOMLC_CACHE_LIMIT", "0")

    await _publish("new")
    assert _names() == ["new", "used"]

    del used
    await _publish("last")
    assert _names() == ["last"]


async def test_an_entry_that_is_being_removed_is_absent(caplog: pytest.LogCaptureFixture) -> None:
    path = (await _publish()).path
    with regular_file(path / "model.vm") as descriptor:
        assert lock_alone(descriptor)

        assert _find() is None
    assert caplog.records == []


async def test_a_start_cancelled_as_staging_finishes_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = store._stage

    with CancelScope() as scope:

        def stage(*arguments: object) -> store.Staged:
            scope.cancel()
            return original(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "_stage", stage)
        async with store.staged_entry(LIBRARIES):
            await anyio.sleep_forever()

    assert scope.cancelled_caught
    assert _names() == []


async def test_what_a_killed_process_left_is_removed_at_the_next_start() -> None:
    script = (
        "import anyio, os, signal\nfrom aiomlc.cache import store, WEIGHTS\n"
        "async def main():\n    async with store.staged_entry(WEIGHTS) as staged:\n"
        "        (staged.path / 'params.bin').touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "anyio.run(main)\n"
    )
    ended = await to_thread.run_sync(subprocess.run, [sys.executable, "-c", script])
    assert ended.returncode == -signal.SIGKILL
    directory = cache_home() / "weights"
    (leftover,) = directory.iterdir()
    assert leftover.name.startswith(".staged-")

    assert find(WEIGHTS, "key", _no_checkpoint) is None

    assert list(directory.iterdir()) == []


async def test_a_directory_that_is_being_written_stays() -> None:
    async with store.staged_entry(LIBRARIES) as staged:
        assert _find() is None
        assert staged.path.exists()


async def test_an_unlocked_leftover_is_removed_after_an_hour() -> None:
    await _publish()
    for name in (".old", ".new"):
        (cache_home() / "libraries" / name).mkdir()
    os.utime(cache_home() / "libraries" / ".old", (0, 0))

    _find()

    assert _names() == [".new", "key"]


async def test_a_read_only_cache_serves_its_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    await _publish()
    monkeypatch.setattr(entry, "is_settled", lambda _: True)
    monkeypatch.setattr(entry, "_boot_id", lambda: "another boot")

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(entry, "write_sealed", fail)
    monkeypatch.setattr(os, "utime", fail)

    assert _find() is not None


async def test_a_full_disk_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    mounted = await to_thread.run_sync(lambda: subprocess.run(mount, capture_output=True))
    if mounted.returncode != 0:
        pytest.skip("mounting a file system is not permitted")

    monkeypatch.setenv("AIOMLC_HOME", str(disk / "home"))
    try:
        async with store.staged_entry(LIBRARIES) as staged:
            (staged.path / "metadata.json").write_bytes(bytes(10_000))
            with (
                (staged.path / "model.vm").open("wb") as file,
                pytest.raises(OSError, match="No s"),
            ):
                file.write(bytes(100_000))
            with pytest.raises(ModelLoadError, match="No space left on device; free") as caught:
                store.publish(staged, "key", INFO, _no_checkpoint)
        assert caught.value.field == "AIOMLC_HOME"
        assert _names() == []
    finally:
        await to_thread.run_sync(subprocess.run, ["umount", str(disk)])


async def test_the_list_describes_the_entries() -> None:
    _set_times((await _publish("old")).path, 1e9)
    await _publish("new")
    (cache_home() / "libraries" / "new" / "manifest.json").unlink()

    new, old = list_entries()

    assert (new.stored.path.name, dict(new.info)) == ("new", {})
    assert (old.stored.path.name, dict(old.info), old.stored.last_used) == ("old", INFO, 1e9)
