"""Removal of downloaded models and of their packed weights."""

from __future__ import annotations

__all__ = ("RemovedModel", "models_named", "remove_model")

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from anyio import to_thread

from aiomlc.cache.entry import WEIGHTS
from aiomlc.cache.removal import remove_unused
from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.gguf.shards import is_gguf
from aiomlc.sources.cached_models import CachedModel, models_within
from aiomlc.sources.environment import read_environment
from aiomlc.sources.files import gguf_parts
from aiomlc.sources.reference import DEFAULT_REVISION, HubReference, ModelSource, parse_source
from aiomlc.sources.snapshots import cached_commit, forget_snapshot, repository_folder
from aiomlc.validation.arguments import check_path
from aiomlc.validation.shortages import names_shortages


@dataclass(frozen=True, slots=True)
class RemovedModel:
    """The result of `remove_model`."""

    removed: tuple[CachedModel, ...]
    kept: tuple[CachedModel, ...]  #: Packed weights that a process uses.


@names_shortages
async def remove_model(model: str | PathLike[str]) -> RemovedModel:
    """Remove what was downloaded of a model, and its packed weights.

    Of a local directory, which is not changed, only the packed weights are removed.

    Args:
        model: A repository, `user/name`; with `@revision` only this revision, with `:file.gguf`
            only this file. Or a directory.

    Raises:
        BadRequestError: If the name is malformed.
        ModelNotFoundError: If there is nothing to remove.
        ModelLoadError: If a file cannot be removed.
    """
    return await to_thread.run_sync(_remove, model)


def models_named(model: str | PathLike[str]) -> list[CachedModel]:
    """Return what `remove_model` would remove.

    Raises:
        BadRequestError: If the name is malformed.
        ModelNotFoundError: If there is nothing to remove.
    """
    check_path("model", model)
    source = parse_source(model)
    found = models_within(_selector(source))
    if not found:
        raise ModelNotFoundError(
            f"nothing of {str(source)!r} is in a cache; `aiomlc list` shows what is",
            path=str(source),
            field="model",
        )

    return found


def _selector(source: ModelSource) -> Callable[[Path], bool]:
    if isinstance(source, HubReference):
        root = _root(source)
        return lambda path: path.is_relative_to(root)

    directory = source.resolve()  # Not what is below it: `/` would mean every model.
    return lambda path: path == directory or (path.parent == directory and is_gguf(path))


def _root(reference: HubReference) -> Path:
    """Return the file, the snapshot or the folder that a reference means."""
    folder = _folder(reference)
    if reference.revision is None and reference.file is None:
        return folder

    revision = reference.revision or DEFAULT_REVISION
    commit = reference.commit or cached_commit(folder, revision) or revision
    snapshot = folder / "snapshots" / commit
    return snapshot if reference.file is None else snapshot / reference.file


def _folder(reference: HubReference) -> Path:
    return repository_folder(read_environment().cache, reference.repository).resolve()


def _remove(model: str | PathLike[str]) -> RemovedModel:
    found = models_named(model)
    source = parse_source(model)
    if isinstance(source, HubReference):
        try:
            _remove_downloads(source)
        except OSError as error:
            message = f"{error.filename}: cannot be removed: {error.strerror or error}"
            raise ModelLoadError(message, path=error.filename) from None

    kept = tuple(
        cached
        for cached in found
        if cached.kind == "packed" and not remove_unused(cached.path, WEIGHTS)
    )
    return RemovedModel(tuple(cached for cached in found if cached not in kept), kept)


def _remove_downloads(reference: HubReference) -> None:
    folder, root = _folder(reference), _root(reference)
    if root == folder:
        for snapshot in (folder / "snapshots").glob("*"):
            forget_snapshot(snapshot)
        _remove_tree(folder)
        shutil.rmtree(folder.parent / ".locks" / folder.name, ignore_errors=True)
        return

    if reference.file is None:
        forget_snapshot(root)
        _remove_tree(root)
    else:
        snapshot = root.parents[reference.file.count("/")]
        forget_snapshot(snapshot, reference.file)
        for part in gguf_parts(reference.file):
            (snapshot / part).unlink(missing_ok=True)
    _prune(folder)


def _remove_tree(directory: Path) -> None:
    """Remove a directory, which the hub's own tools may have removed already."""
    with suppress(FileNotFoundError):
        shutil.rmtree(directory)


def _prune(folder: Path) -> None:
    """Remove the blobs that no snapshot links to, and the references to removed snapshots."""
    links = [path for path in (folder / "snapshots").rglob("*") if path.is_symlink()]
    used = {path.resolve() for path in links}
    for blob in (folder / "blobs").glob("*"):
        if blob not in used and blob.suffix != ".incomplete":
            blob.unlink(missing_ok=True)
    for path in (folder / "refs").rglob("*"):
        with suppress(OSError, ValueError):
            if path.is_file() and not (folder / "snapshots" / path.read_text("ascii")).is_dir():
                path.unlink()
