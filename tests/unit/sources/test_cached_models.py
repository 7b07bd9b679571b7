"""What is on this computer, and its removal: the commands `list` and `rm` and their functions."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
from pathlib import Path

import anyio
import pytest
from huggingface_hub import scan_cache_dir, snapshot_download
from typer.testing import CliRunner, Result

from aiomlc import ModelLoadError, ModelNotFoundError, list_models, remove_model
from aiomlc.cache import WEIGHTS, Entry, publish, staged_entry
from aiomlc.cli.app import app
from aiomlc.runtime.native.library import load_native
from tests.fake_hub import FakeHub, hub_in_use

LLAMA = {
    "config.json": b'{"dtype": "bfloat16"}',
    "model.safetensors": b"s" * 1000,
    "tokenizer.json": b"t",
    "README.md": b"r",
}
PEBBLE = {
    "mlc-chat-config.json": b'{"quantization": "q4f16_1"}',
    "tensor-cache.json": b'{"records": []}',
}
GGUF = {
    "b-Q8_0.gguf": b"8" * 80,
    "Q4_K_M/b-Q4_K_M-00001-of-00002.gguf": b"4" * 30,
    "Q4_K_M/b-Q4_K_M-00002-of-00002.gguf": b"4" * 10,
}


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Download three repositories, by huggingface_hub; return its cache."""
    directory = tmp_path_factory.mktemp("downloaded")
    with hub_in_use(directory) as hub:
        for name, files in {"ada/llama": LLAMA, "ada/pebble": PEBBLE, "bob/b": GGUF}.items():
            hub.add(name, files)
            snapshot_download(name, cache_dir=directory, endpoint=hub.endpoint)
    return directory


@pytest.fixture(autouse=True)
def downloads(downloaded: Path, hub: FakeHub, cache: Path) -> None:
    """Use a copy of the downloads."""
    load_native()
    shutil.copytree(downloaded, cache, symlinks=True)
    for name, files in {"ada/llama": LLAMA, "ada/pebble": PEBBLE}.items():
        hub.add(name, files)


def snapshot(cache: Path, repository: str) -> Path:
    (path,) = (cache / f"models--{repository.replace('/', '--')}" / "snapshots").iterdir()
    return path.resolve()


def pack(origin: Path, key: str | None = None) -> Entry:
    """Publish packed weights of a directory."""

    async def main() -> Entry:
        async with staged_entry(WEIGHTS) as staged:
            (staged.path / "params.bin").write_bytes(b"p" * 500)
            info = {"model": str(origin), "quantization": "q4f16_1"}
            return publish(staged, key or origin.name, info, lambda: None)

    return anyio.run(main)


def pack_unused(origin: Path) -> Path:
    """Publish packed weights that nothing uses; return their path."""
    path = pack(origin).path
    gc.collect()  # The task of the event loop may still refer to the entry, and so to its lease.
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def names(cache: Path) -> set[str]:
    return {repository.repo_id for repository in scan_cache_dir(cache).repos}


async def test_the_list_has_every_model_that_can_be_opened(cache: Path) -> None:
    models = {model.name: model for model in await list_models()}

    assert {name: (m.kind, m.quantization, m.nbytes) for name, m in models.items()} == {
        "ada/llama": ("Hugging Face", "bfloat16", 1023),
        "ada/pebble": ("MLC", "q4f16_1", 42),
        "bob/b:b-Q8_0.gguf": ("GGUF", "Q8_0", 80),
        "bob/b:Q4_K_M/b-Q4_K_M-00001-of-00002.gguf": ("GGUF", "Q4_K_M", 40),
    }
    assert models["bob/b:b-Q8_0.gguf"].path == snapshot(cache, "bob/b") / "b-Q8_0.gguf"


def test_the_list_has_packed_weights_other_revisions_and_partial_files(
    hub: FakeHub, cache: Path, tmp_path: Path
) -> None:
    pack(snapshot(cache, "ada/llama"))
    pack(tmp_path / "local")
    for revision in ("v2", "v3"):
        hub.add("ada/pebble", {**PEBBLE, "merges.txt": revision.encode()}, revision)
        snapshot_download("ada/pebble", revision=revision, cache_dir=cache, endpoint=hub.endpoint)
    (cache / "models--ada--pebble" / "refs" / "v3").unlink()
    commit = hub.repositories["ada/pebble"].revisions["v3"]
    (cache / "models--bob--b" / "blobs" / "abc.incomplete").write_bytes(b"x" * 7)

    rows = json.loads(run("list", "--json").stdout)

    others = {(row["name"], row["kind"]): row["nbytes"] for row in rows}
    assert others["ada/llama", "packed"] > 500
    assert others[str(tmp_path / "local"), "packed"] > 500
    assert others["ada/pebble@v2", "MLC"] == others[f"ada/pebble@{commit}", "MLC"] == 44
    assert others["bob/b", "incomplete"] == 7
    used = [row["last_used"] for row in rows]
    assert used == sorted(used, reverse=True)


def test_the_bundled_model_of_another_environment_has_its_name(cache: Path, tmp_path: Path) -> None:
    pack(tmp_path / "site-packages" / "aiomlc" / "bundled" / "pebble")

    names = [row["name"] for row in json.loads(run("list", "--json").stdout)]

    assert "pebble" in names
    assert not any("site-packages" in name for name in names)


def test_copies_of_packed_weights_are_one_row(cache: Path, tmp_path: Path) -> None:
    for environment in ("one", "two"):
        origin = tmp_path / environment / "aiomlc" / "bundled" / "pebble"
        pack(origin, key=environment)

    rows = [re.split("  +", line) for line in run("list").stdout.splitlines()]

    (pebble,) = (row for row in rows if row[0] == "pebble")
    assert pebble[1:3] == ["packed, 2 copies", "q4f16_1"]
    packed = [row for row in json.loads(run("list", "--json").stdout) if row["name"] == "pebble"]
    assert len({row["path"] for row in packed}) == 2


def test_the_list_is_a_table(cache: Path) -> None:
    os.utime(snapshot(cache, "ada/llama"), (1e9, 1e9))

    header, *lines, total = run("list").stdout.splitlines()

    assert re.split("  +", header) == ["model", "kind", "quantization", "size", "last used"]
    assert re.split("  +", lines[-1])[:4] == ["ada/llama", "Hugging Face", "bfloat16", "1.0 kB"]
    assert lines[-1].split()[-2].startswith("2001-09-0")
    assert total == "1.2 kB in all"


def test_nothing_at_all_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "none"))

    assert run("list").stdout == "nothing yet: the bundled model, pebble, needs no download\n"
    assert json.loads(run("list", "--json").stdout) == []


def test_packed_weights_of_a_repository_that_is_gone_are_removed(cache: Path) -> None:
    packed = pack_unused(snapshot(cache, "ada/llama"))
    shutil.rmtree(cache / "models--ada--llama")

    result = run("rm", "ada/llama", "--yes")

    assert result.exit_code == 0, result.output
    assert not packed.exists()


def test_a_repository_is_removed_with_its_packed_weights(cache: Path, tmp_path: Path) -> None:
    own, other = pack_unused(snapshot(cache, "ada/llama")), pack_unused(tmp_path / "local")

    result = run("rm", "ada/llama", "--yes")

    assert result.exit_code == 0
    assert re.fullmatch(r"removed 2 items, \d\.\d kB\n", result.stdout)
    assert names(cache) == {"ada/pebble", "bob/b"}
    assert (own.exists(), other.exists()) == (False, True)
    assert not (cache / ".locks" / "models--ada--llama").exists()


def test_packed_weights_in_use_are_kept(cache: Path) -> None:
    entry = pack(snapshot(cache, "ada/llama"))

    result = run("rm", "ada/llama", "--yes", "--json")

    assert [row["kind"] for row in json.loads(result.stdout)] == ["Hugging Face"]
    assert re.fullmatch(r"kept 1 item, .* in use\n", result.stderr)
    assert entry.path.exists()


def test_of_a_directory_only_the_packed_weights_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "local"
    directory.mkdir()
    path = pack_unused(directory)

    removal = anyio.run(remove_model, directory)

    assert [model.kind for model in removal.removed] == ["packed"]
    assert (path.exists(), directory.exists()) == (False, True)


def test_the_packed_weights_of_directories_below_are_kept(tmp_path: Path) -> None:
    directory = tmp_path / "all" / "local"
    directory.mkdir(parents=True)
    path = pack_unused(directory)

    with pytest.raises(ModelNotFoundError, match=r"nothing of .* is in a cache"):
        anyio.run(remove_model, tmp_path / "all")

    assert path.exists()


def test_a_revision_is_removed_alone(hub: FakeHub, cache: Path) -> None:
    hub.add("ada/llama", {**LLAMA, "tokenizer.json": b"t2"}, "v2")
    kept = snapshot(cache, "ada/llama")
    snapshot_download("ada/llama", revision="v2", cache_dir=cache, endpoint=hub.endpoint)

    assert run("rm", "ada/llama@v2", "--yes").stdout == "removed 1 item, 1.0 kB\n"
    assert snapshot(cache, "ada/llama") == kept
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == LLAMA
    assert len(list((cache / "models--ada--llama" / "blobs").iterdir())) == len(LLAMA)
    assert not (cache / "models--ada--llama" / "refs" / "v2").exists()


def test_a_gguf_file_is_removed_alone(cache: Path) -> None:
    name = "bob/b:Q4_K_M/b-Q4_K_M-00001-of-00002.gguf"

    assert run("rm", name, "--yes").stdout == "removed 1 item, 40 B\n"
    assert [path.name for path in snapshot(cache, "bob/b").rglob("*.gguf")] == ["b-Q8_0.gguf"]
    assert len(list((cache / "models--bob--b" / "blobs").iterdir())) == 1


@pytest.mark.parametrize("name", ["ada/none", "ada/llama@v9", "bob/b:none.gguf", "/none"])
def test_what_is_not_there_cannot_be_removed(cache: Path, name: str) -> None:
    with pytest.raises(ModelNotFoundError, match=f"nothing of '{name}' is in a cache"):
        anyio.run(remove_model, name)

    result = run("rm", name, "--yes")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert len(names(cache)) == 3


def test_what_cannot_be_removed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("shutil.rmtree", fail)

    with pytest.raises(ModelLoadError, match="models--ada--llama: cannot be removed: Permission"):
        anyio.run(remove_model, "ada/llama")


def test_without_a_terminal_the_removal_must_be_confirmed_by_an_option(cache: Path) -> None:
    result = run("rm", "ada/llama")

    assert (result.exit_code, result.stderr.split(": ")[1]) == (
        2,
        "standard input is not a terminal",
    )
    assert len(names(cache)) == 3


@pytest.mark.parametrize(("answer", "number"), [("y", 2), ("n", 3)])
def test_at_a_terminal_the_removal_is_asked_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch, answer: str, number: int
) -> None:
    monkeypatch.setattr("aiomlc.cli.commands.models._is_terminal", lambda: True)

    result = CliRunner().invoke(app, ["rm", "ada/llama"], input=f"{answer}\n")

    assert "Remove 1 item, 1.0 kB? [y/N]" in result.stderr
    assert len(names(cache)) == number
