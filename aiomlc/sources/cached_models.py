"""The models on this computer: those in the hub's cache, and the weights that were packed."""

from __future__ import annotations

__all__ = ("CachedModel", "ModelKind", "list_models", "models_within")

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import orjson
from anyio import to_thread

from aiomlc.cache.entry import WEIGHTS
from aiomlc.cache.maintenance import list_entries
from aiomlc.config import BUNDLED_FOLDER, BUNDLED_MODEL, BUNDLED_NAME
from aiomlc.sources.environment import read_environment
from aiomlc.sources.files import gguf_names, gguf_parts, weights_index
from aiomlc.sources.reference import DEFAULT_REVISION, HubReference
from aiomlc.sources.snapshots import last_use, modification_time
from aiomlc.validation.shortages import names_shortages

ModelKind: TypeAlias = Literal["MLC", "Hugging Face", "GGUF", "packed", "incomplete"]

_FOLDER = re.compile(r"models--(?P<user>(?:(?!--).)+)--(?P<name>(?:(?!--).)+)")
_MLC_CONFIG: Final = "mlc-chat-config.json"
_GGUF_TYPE = re.compile(
    r".*[.-](?P<type>(?:I?Q|TQ)\d\w*|BF16|F16|F32|MXFP4\w*)(?:-\d{5}-of-\d{5})?\.gguf",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model on this computer, or what an interrupted download has left."""

    name: str  #: The name that opens it: a repository, or the directory whose weights were packed.
    kind: ModelKind  #: Its format; "packed" for weights that were packed for the kernels.
    quantization: str | None  #: As the files say; None if they do not.
    nbytes: int
    last_used: float  #: In seconds since the epoch.
    path: Path  #: Its directory, or its GGUF file.
    origin: Path  #: The directory or the file that packed weights were made from; else `path`.


@names_shortages
async def list_models() -> list[CachedModel]:
    """Return the models on this computer, the last used one first.

    These are the models in the cache of huggingface_hub that can be opened, whichever program
    downloaded them, and the weights that were packed for the kernels, also those of directories.

    Raises:
        BadRequestError: If `AIOMLC_HOME` is invalid.
        ModelLoadError: If there is no cache directory.
    """
    return await to_thread.run_sync(models_within, lambda _: True)


def models_within(is_meant: Callable[[Path], bool]) -> list[CachedModel]:
    """Return the models whose origin is meant, the last used one first; see `list_models`."""
    names = {BUNDLED_MODEL.resolve(): BUNDLED_NAME}
    found: list[CachedModel] = []
    for folder, repository in _repositories():
        for model in _downloads(folder, repository):
            names[model.origin] = model.name
            found.append(model)
    found += _packed(names)
    return sorted(
        (model for model in found if is_meant(model.origin)),
        key=lambda model: model.last_used,
        reverse=True,
    )


def _repositories() -> Iterator[tuple[Path, str]]:
    """Yield the directory and the name of each repository in the hub's cache."""
    with suppress(OSError):
        for folder in sorted(read_environment().cache.iterdir()):
            if match := _FOLDER.fullmatch(folder.name):
                yield folder.resolve(), f"{match['user']}/{match['name']}"


def _downloads(folder: Path, repository: str) -> Iterator[CachedModel]:
    commits = _revisions(folder)
    for directory in _children(folder / "snapshots"):
        revision = commits.get(directory.name, directory.name)
        reference = HubReference(repository, None if revision == DEFAULT_REVISION else revision)
        yield from _snapshot(directory, reference)

    partial = [path for path in _children(folder / "blobs") if path.suffix == ".incomplete"]
    if partial:
        size, used = sum(map(_size, partial)), max(map(modification_time, partial))
        path = folder / "blobs"
        yield CachedModel(repository, "incomplete", None, size, used, path, path)


def _snapshot(directory: Path, reference: HubReference) -> Iterator[CachedModel]:
    """Yield the model directory that a snapshot is, and its GGUF files."""
    names = {path.relative_to(directory).as_posix() for path in directory.rglob("*")}
    if weights_index(names) is not None:
        kind: ModelKind = "MLC" if _MLC_CONFIG in names else "Hugging Face"
        others = [name for name in names if not name.lower().endswith(".gguf")]
        size = sum(_size(directory / name) for name in others)
        used = last_use(directory, None)
        quantization = _quantization(directory, kind)
        yield CachedModel(str(reference), kind, quantization, size, used, directory, directory)

    for file in gguf_names(names):
        path = directory / file
        size = sum(_size(directory / part) for part in gguf_parts(file))
        named = HubReference(reference.repository, reference.revision, file)
        match = _GGUF_TYPE.fullmatch(file)
        type_ = match["type"].upper() if match else None
        yield CachedModel(str(named), "GGUF", type_, size, last_use(directory, file), path, path)


def _packed(names: dict[Path, str]) -> Iterator[CachedModel]:
    for entry in list_entries():
        if entry.stored.kind is WEIGHTS:
            origin = _origin(Path(entry.info.get("model", "(damaged)")))
            yield CachedModel(
                names.get(origin, str(origin)),
                "packed",
                entry.info.get("quantization"),
                entry.stored.nbytes,
                entry.stored.last_used,
                entry.stored.path,
                origin,
            )


def _origin(directory: Path) -> Path:
    """Return the directory that weights were packed from.

    Environments share the cache: the bundled model of another one is the one of this.
    """
    is_bundled = directory.parent.parts[-2:] == BUNDLED_FOLDER.parts[-2:]
    return BUNDLED_FOLDER.resolve() / directory.name if is_bundled else directory


def _revisions(folder: Path) -> dict[str, str]:
    """Return the branch or tag of each commit; the default branch, if it is one of them."""
    references = folder / "refs"
    revisions: dict[str, str] = {}
    for path in sorted(references.rglob("*")):
        with suppress(OSError, ValueError):
            name = path.relative_to(references).as_posix()
            commit = path.read_text("ascii").strip()
            if name == DEFAULT_REVISION or commit not in revisions:
                revisions[commit] = name
    return revisions


def _quantization(directory: Path, kind: ModelKind) -> str | None:
    """Return what the config says of the weights."""
    config = _read(directory / (_MLC_CONFIG if kind == "MLC" else "config.json"))
    method = config.get("quantization_config")
    value = config.get("quantization")
    if kind != "MLC":
        dtype = config.get("dtype", config.get("torch_dtype"))
        value = method.get("quant_method") if isinstance(method, dict) else dtype
    return value if isinstance(value, str) else None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}  # Reported when the model is opened.

    return content if isinstance(content, dict) else {}


def _children(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size if path.is_file() else 0
    return 0
