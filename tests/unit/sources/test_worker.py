"""Which files the downloading process downloads, and where they are then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download

from tests.fake_hub import FakeHub
from tests.unit.sources.downloads import FILES, NAME, Download, needed, read

BAD_NAMES = ("a/b.safetensors", "../x.safetensors", "/x.safetensors", "..", ".", "", "a\0b", 1)


def test_only_the_files_that_are_needed_are_downloaded(hub: FakeHub, download: Download) -> None:
    others = ("pytorch_model.bin", "model.pth", "onnx/model.onnx", "original/config.json", "q.gguf")
    hub.add(NAME, {**FILES, **dict.fromkeys(others, b"x"), "consolidated.safetensors": b"x"})

    assert read(download.run()) == needed()
    assert not [path for path in hub.paths() if path.endswith(("README.md", *others))]


def test_all_that_an_embedder_or_a_model_that_reads_images_has_is_downloaded(
    hub: FakeHub, download: Download
) -> None:
    names = [
        *("modules.json", "config_sentence_transformers.json", "1_Pooling/config.json"),
        *("2_Dense/config.json", "2_Dense/model.safetensors", "sparse_linear.pt"),
        *("colbert_linear.pt", "preprocessor_config.json", "processor_config.json"),
    ]
    hub.add(NAME, {**FILES, **dict.fromkeys(names, b"x")})

    directory = download.run()
    files = {path.relative_to(directory) for path in directory.rglob("*") if path.is_file()}
    assert files == {Path(name) for name in (*needed(), *names)}


def test_of_shards_those_of_the_index_are_downloaded(hub: FakeHub, download: Download) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    shards = {"model-1.safetensors": b"1", "model-2.safetensors": b"2", "other.safetensors": b"3"}
    files = {"config.json": b"{}", "tokenizer.json": b"{}"}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    hub.add(NAME, {**files, **shards})

    del shards["other.safetensors"]
    assert read(download.run()) == {**files, **shards}


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "tensor-cache.json"])
@pytest.mark.parametrize(
    ("named", "detail"),
    [
        *((name, f"it names {name!r}, which must be") for name in BAD_NAMES),
        (None, "names no files"),
    ],
)
def test_an_index_without_files_that_can_be_downloaded_is_refused(
    hub: FakeHub, download: Download, index: str, named: object, detail: str
) -> None:
    names = [] if named is None else ["model-1.safetensors", named]
    hf = {"weight_map": {str(number): name for number, name in enumerate(names)}}
    mlc = {"records": [{"dataPath": name} for name in names]}
    content = json.dumps(hf if "safetensors" in index else mlc).encode()
    hub.add(NAME, {"config.json": b"{}", index: content, "model-1.safetensors": b"1"})

    failure = download.fail()

    assert failure.kind == "format"
    assert failure.detail.startswith(index)
    assert detail in failure.detail


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "tensor-cache.json"])
@pytest.mark.parametrize("content", [b"", b"\xff", b"null", b"[1]", b"{}", b"[" * 100_000,
    b'{"weight_map": 1, "records": [1]}',
    b'{"weight_map": {"a": []}, "records": [{"dataPath": {}}]}',
])  # fmt: skip
def test_what_is_no_index_is_refused(
    hub: FakeHub, download: Download, index: str, content: bytes
) -> None:
    hub.add(NAME, {"config.json": b"{}", index: content})

    failure = download.fail()

    assert failure.kind == "format"
    assert index in failure.detail


def test_of_mlc_shards_those_of_the_index_are_downloaded(hub: FakeHub, download: Download) -> None:
    index = {"records": [{"dataPath": "params_shard_0.bin"}]}
    files = {
        "mlc-chat-config.json": b"{}",
        "ndarray-cache.json": json.dumps(index).encode(),
        "params_shard_0.bin": b"0",
        "tokenizer.json": b"{}",
    }
    hub.add(NAME, {**files, "params_shard_1.bin": b"1", "model.safetensors": b"2"})

    assert read(download.run()) == files


def test_all_parts_of_a_gguf_file_are_downloaded(hub: FakeHub, download: Download) -> None:
    parts = {f"Q4/x-0000{part}-of-00002.gguf": b"%d" % part for part in (1, 2)}
    hub.add(NAME, {**FILES, **parts, "x.gguf": b"x"})

    assert read(download.run(file=next(iter(parts))) / "Q4") == {
        Path(name).name: data for name, data in parts.items()
    }
    assert (download.run(file="x.gguf") / "x.gguf").read_bytes() == b"x"
    assert not [path for path in hub.paths() if "safetensors" in path]
    failure = download.fail(file="Q4/x-00002-of-00002.gguf")
    assert (failure.kind, "name Q4/x-00001-of-00002.gguf" in failure.detail) == ("format", True)
    failure = download.fail(file="y.gguf")
    assert failure.kind == "file"
    assert failure.detail.endswith("its GGUF files are Q4/x-00001-of-00002.gguf, x.gguf")


@pytest.mark.parametrize(
    ("files", "detail"),
    [
        ({"q8.gguf": b""}, "it has GGUF files only: name one of them after a colon: q8.gguf"),
        ({"config.json": b"", "pytorch_model.bin": b""}, "PyTorch's pickled weights"),
        ({"model.safetensors": b""}, "it contains no weights in a known format"),
        ({}, "it contains no weights in a known format"),
    ],
)
def test_a_repository_that_cannot_be_opened_is_explained(
    hub: FakeHub, download: Download, files: dict[str, bytes], detail: str
) -> None:
    hub.add(NAME, files)

    failure = download.fail()

    assert failure.kind == "format"
    assert detail in failure.detail
    assert not [path for path in hub.paths() if "resolve" in path]


def test_huggingface_hub_finds_what_was_downloaded(download: Download) -> None:
    directory = download.run()

    for revision in ("main", directory.name):
        found = snapshot_download(
            NAME, cache_dir=download.cache, revision=revision, local_files_only=True
        )
        assert Path(found) == directory


def test_what_huggingface_hub_downloaded_is_not_downloaded_again(
    hub: FakeHub, download: Download
) -> None:
    path = snapshot_download(NAME, cache_dir=download.cache, endpoint=hub.endpoint)
    hub.requests.clear()

    assert download.run() == Path(path)
    assert hub.paths() == [f"/api/models/{NAME}/revision/main"]
