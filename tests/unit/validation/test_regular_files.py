"""Files that are not regular are refused by every reader, without waiting and without a leak."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from aiomlc.batch.run import _open_input
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.runtime.audio.limits import AudioLimits
from aiomlc.runtime.audio.sources import load_audio
from aiomlc.runtime.images.reference import ImageReference
from aiomlc.runtime.images.sources import ImageSources
from aiomlc.validation.model_files import file_size, read_bytes

pytestmark = pytest.mark.timeout(20)
Reader = Callable[[Path], Awaitable[object]]
KINDS = {
    "directory": "a directory",
    "fifo": "a FIFO",
    "zero": "a character device",
    "socket": r"a socket|No such device",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file of each kind."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        yield tmp_path


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def read_audio(path: Path) -> None:
    await load_audio(path, AudioLimits())


async def read_image(path: Path) -> None:
    sources = ImageSources(local_path="/")
    await sources.load([("image", ImageReference(path.as_uri()))])


async def read_model_file(path: Path) -> None:
    read_bytes(path)


async def measure_model_file(path: Path) -> None:
    file_size(path)


async def read_batch(path: Path) -> None:
    _open_input(path)


READERS: list[Reader] = [read_audio, read_image, read_model_file, measure_model_file, read_batch]


# The command line prints the error of the system for a socket.
CASES = [
    (kind, read) for kind in KINDS for read in READERS if (kind, read) != ("socket", read_batch)
]


@pytest.mark.parametrize(("kind", "read"), CASES)
async def test_every_reader_refuses_every_other_kind(folder: Path, kind: str, read: Reader) -> None:
    path = folder / kind

    for _ in range(2):  # The first time may open files that stay open, of libraries.
        before = num_descriptors()
        with pytest.raises((BadRequestError, ModelLoadError), match=KINDS[kind]) as caught:
            await read(path)

    assert num_descriptors() == before
    assert kind in str(caught.value) or "/dev/zero" in str(caught.value)
