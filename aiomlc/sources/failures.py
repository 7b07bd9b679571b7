"""The errors of downloads: what is wrong, and what to do."""

from __future__ import annotations

__all__ = ("download_error",)

import os

from aiomlc.errors import (
    ModelAccessError,
    ModelDownloadError,
    ModelLoadError,
    ModelNotFoundError,
)
from aiomlc.sources.environment import HubEnvironment
from aiomlc.sources.job import Failure, FailureKind
from aiomlc.sources.reference import DEFAULT_REVISION, HubReference

_NOT_FOUND: frozenset[FailureKind] = frozenset({"repository", "revision", "file", "format"})
_DENIED: frozenset[FailureKind] = frozenset({"gated", "access"})
_LOG_IN = "set HF_TOKEN, or run `hf auth login`"


def download_error(
    reference: HubReference, environment: HubEnvironment, failure: Failure
) -> ModelLoadError:
    """Return the error for a failed download."""
    verb = "find" if failure.kind in _NOT_FOUND else "download"
    # One error for both: the name may be that of a directory or of a repository.
    lead = "" if reference.is_explicit else "there is no such directory, and "
    reason = _reason(reference, environment, failure)
    message = f"cannot {verb} model {str(reference)!r}: {lead}{reason}"
    if failure.kind in _NOT_FOUND:
        return ModelNotFoundError(message, path=str(reference), field="model")

    if failure.kind == "disk":
        return ModelLoadError(message, path=environment.cache, field="HF_HOME")

    kind = ModelAccessError if failure.kind in _DENIED else ModelDownloadError
    return kind(
        message,
        path=str(reference),
        field="model",
        repository=reference.repository,
        status=failure.status,
        retry_after=failure.retry_after,
    )


def _reason(reference: HubReference, environment: HubEnvironment, failure: Failure) -> str:
    page = f"{environment.endpoint}/{reference.repository}"
    revision = reference.revision or DEFAULT_REVISION
    has_token = bool(os.environ.get("HF_TOKEN"))
    texts: dict[FailureKind, str] = {
        "repository": f"{environment.endpoint} has no repository {reference.repository!r} that "
        f"{'HF_TOKEN may' if has_token else 'everyone may'} read; check the name, or, if it is "
        f"private, {_LOG_IN}",
        "revision": f"{page} has no revision {revision!r}; check its branches and tags",
        "file": f"{failure.detail} at revision {revision!r} ({page})",
        "format": f"{page} cannot be opened: {failure.detail}",
        "gated": f"{page} is gated; accept its conditions on that page, and {_LOG_IN}",
        "access": f"{environment.endpoint} refuses access to {reference.repository} (status "
        f"{failure.status}); check that HF_TOKEN is valid and may read it",
        "rate": f"{environment.endpoint} limits the rate of requests (status 429); try again "
        f"{_when(failure.retry_after)}{'' if has_token else ', or set HF_TOKEN'}",
        "network": f"{environment.endpoint} cannot be used: {failure.detail}; check the "
        "connection, HF_ENDPOINT and the proxy, or try again later",
        "offline": f"{failure.detail or 'it is not in the cache'} ({environment.cache}), and "
        "HF_HUB_OFFLINE is set; unset it to download the model",
        "damaged": f"what {environment.endpoint} sent is damaged: {failure.detail}; try again "
        "later, or check HF_ENDPOINT and the proxy",
        "disk": f"{environment.cache} cannot be written: {failure.detail}; free some space, for "
        "example with `aiomlc rm`, or set HF_HOME to another directory",
        "worker": f"the downloading process failed: {failure.detail}",
    }
    return texts[failure.kind]


def _when(seconds: float | None) -> str:
    return "later" if seconds is None else f"in {seconds:.0f} s"
