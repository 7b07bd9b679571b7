"""From the name of a model to a path, by a download if needed."""

from __future__ import annotations

__all__ = ("CHECK_SECONDS", "LocalModel", "fetch", "find_local")

import logging
import time
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from anyio import to_thread
from anyio.lowlevel import checkpoint

from aiomlc.errors import ModelNotFoundError
from aiomlc.sources.download import OnDownload, download
from aiomlc.sources.environment import HubEnvironment, read_environment
from aiomlc.sources.failures import download_error
from aiomlc.sources.job import DownloadJob, DownloadProgress, Failure
from aiomlc.sources.reference import DEFAULT_REVISION, HubReference, parse_source
from aiomlc.sources.snapshots import Snapshot, cached_commit, find_snapshot, repository_folder
from aiomlc.validation.shortages import names_shortages

#: The time for which the commit of a branch or tag is not asked for again.
CHECK_SECONDS: Final = 3600.0
# What a cached snapshot does not replace: the caller names something else than what it holds.
_DECISIVE: Final = frozenset({"revision", "file", "format"})

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on this computer, which may or may not exist if its name was a path."""

    path: Path  #: A directory, or a GGUF file; of a split one, its first part.
    repository: str | None = None  #: The repository that it was downloaded from.


def find_local(model: str | PathLike[str]) -> LocalModel:
    """Return where a model is on this computer; the hub is not asked.

    Raises:
        BadRequestError: If the name is malformed.
        ModelNotFoundError: If it is a repository that was not downloaded.
        ModelLoadError: If there is no cache directory.
    """
    source = parse_source(model)
    if isinstance(source, Path):
        return LocalModel(source)

    environment = read_environment()
    snapshot = _find(source, environment)
    if snapshot is not None:
        return _local(source, snapshot.directory)

    lead = "" if source.is_explicit else "there is no such directory, and "
    raise ModelNotFoundError(
        f"cannot find model {str(source)!r}: {lead}it is not in the cache ({environment.cache}); "
        f"download it with `aiomlc pull {source}`, or open it",
        path=str(source),
        field="model",
    )


@names_shortages
async def fetch(
    model: str | PathLike[str], on_progress: OnDownload, *, is_update: bool = False
) -> LocalModel:
    """Return where a model is on this computer, after its download if it is a repository.

    The hub is not asked about a commit that is cached, and about a branch or a tag once an hour. If
    it cannot answer, what is cached is used, and a warning is logged.

    Args:
        is_update: Whether to ask the hub in any case.

    Raises:
        BadRequestError: If the name is malformed.
        ModelNotFoundError: If there is no such repository, revision or file.
        ModelAccessError: If the hub refuses access.
        ModelDownloadError: If the model cannot be downloaded for another reason.
        ModelLoadError: If a cache cannot be written.
    """
    source = parse_source(model)
    if isinstance(source, Path):
        await checkpoint()
        return LocalModel(source)

    environment = read_environment()
    cached = None if is_update else await to_thread.run_sync(_find, source, environment)
    if cached is not None and _is_current(source, cached, environment):
        return _local(source, cached.directory)

    on_progress(DownloadProgress(f"asking {environment.endpoint} for {source}"))
    try:
        commit = await download(_job(source, environment, cached), on_progress)
    except Failure as failure:
        error = download_error(source, environment, failure)
        if cached is None or failure.kind in _DECISIVE:
            raise error from None

        _logger.warning("%s; the cached commit %s is used", error, cached.commit)
        return _local(source, cached.directory)

    folder = repository_folder(environment.cache, source.repository)
    return _local(source, folder / "snapshots" / commit)


def _find(reference: HubReference, environment: HubEnvironment) -> Snapshot | None:
    folder = repository_folder(environment.cache, reference.repository)
    commit = reference.commit or cached_commit(folder, reference.revision or DEFAULT_REVISION)
    return None if commit is None else find_snapshot(folder, commit, reference.file)


def _is_current(reference: HubReference, snapshot: Snapshot, environment: HubEnvironment) -> bool:
    """Return whether a snapshot is used without asking the hub."""
    if environment.is_offline:
        return True

    age = time.time() - snapshot.checked
    # One that was verified without the hub may lack optional files.
    return snapshot.checked > 0 if reference.commit else 0 <= age < CHECK_SECONDS


def _job(
    reference: HubReference, environment: HubEnvironment, cached: Snapshot | None
) -> DownloadJob:
    return DownloadJob(
        repository=reference.repository,
        revision=reference.revision or DEFAULT_REVISION,
        file=reference.file,
        cache=str(environment.cache),
        endpoint=environment.endpoint,
        is_offline=environment.is_offline,
        is_hasty=cached is not None,
    )


def _local(reference: HubReference, directory: Path) -> LocalModel:
    path = directory if reference.file is None else directory / reference.file
    return LocalModel(path, reference.repository)
