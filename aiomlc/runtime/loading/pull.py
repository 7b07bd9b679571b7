"""Downloads of models that are not opened."""

from __future__ import annotations

__all__ = ("pull",)

from os import PathLike
from pathlib import Path

from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.progress import OnProgress, download_progress, ignore_progress
from aiomlc.sources.resolve import fetch
from aiomlc.validation.arguments import check_callable, check_path


async def pull(model: str | PathLike[str], *, on_progress: OnProgress | None = None) -> Path:
    """Download a model, or what has changed of it since; nothing is compiled or converted.

    Args:
        model: A repository of the hub: `user/name`, `user/name@revision`, `user/name:file.gguf`.
            What is on this computer is not downloaded.
        on_progress: Called with the progress.

    Returns:
        The directory of the model, or its GGUF file.

    Raises:
        BadRequestError: If an argument is invalid.
        ModelNotFoundError: If there is no such repository, revision, file or directory.
        ModelAccessError: If the hub refuses access.
        ModelDownloadError: If the model cannot be downloaded for another reason.
        ModelLoadError: If a directory on this computer has several GGUF models.
    """
    check_path("model", model)
    check_callable("on_progress", on_progress)
    report = on_progress or ignore_progress
    local = await fetch(model, lambda done: report(download_progress(done)), is_update=True)
    return find_model(model).path if local.repository is None else local.path
