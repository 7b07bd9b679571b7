"""The checks of `aiomlc doctor`: the machine's resources for an engine, and faults in them."""

from __future__ import annotations

__all__ = (
    "Finding",
    "check_cache",
    "check_cores",
    "check_huge_pages",
    "check_memory",
    "check_processor",
    "check_versions",
)

import importlib.metadata
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aiomlc.cache import cache_home, cache_limit, list_entries
from aiomlc.cli.terminal.tables import format_bytes
from aiomlc.errors import AiomlcError
from aiomlc.runtime.loading.control_groups import quota_cpus
from aiomlc.runtime.loading.memory_budget import memory_budget
from aiomlc.runtime.native.platform import active_isa, physical_cores

_ROOT = Path("/")
_THP = "sys/kernel/mm/transparent_hugepage/enabled"
_MIN_FREE_BYTES = 2 << 30
# The flags of each tier in /proc/cpuinfo beyond those of the portable one, in ascending order.
_X86_TIERS: Mapping[str, tuple[str, ...]] = {
    "avx2": ("avx2", "fma", "f16c"),
    "avxvnni": ("avx2", "fma", "f16c", "avx_vnni"),
    "avx512": ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"),
    "amx": ("avx512f", "avx512_vnni", "amx_tile", "amx_int8"),
}
_ARM_TIERS: Mapping[str, tuple[str, ...]] = {"neon": ("asimddp",), "i8mm": ("asimddp", "i8mm")}
_PACKAGES = ("aiomlc", "apache-tvm", "apache-tvm-ffi", "llguidance", "tokenizers")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check."""

    topic: str
    text: str
    remedy: str | None = None  #: The change to make; None if nothing is wrong.


def check_processor(root: Path = _ROOT) -> Finding:
    """Return the tier of the kernels, and what the processor lacks for the next one.

    Raises:
        BadRequestError: If `AIOMLC_ISA` has an unknown value.
    """
    tier, flags = active_isa(), _processor_flags(root)
    limit = os.environ.get("AIOMLC_ISA")
    tiers = _ARM_TIERS if "asimd" in flags else _X86_TIERS
    names = list(tiers)
    above = names[names.index(tier) + 1 :] if tier in names else names
    available = [name for name in above if flags.issuperset(tiers[name])]
    if available and limit:
        return Finding(
            "processor",
            f"{tier}, because AIOMLC_ISA is {limit}",
            f"unset AIOMLC_ISA: the processor has {available[-1]}",
        )

    if not above:
        return Finding("processor", f"{tier}, the highest tier")

    missing = ((name, [flag for flag in tiers[name] if flag not in flags]) for name in above)
    lacks = "; ".join(f"{name} needs {', '.join(wanted)}" for name, wanted in missing if wanted)
    return Finding("processor", f"{tier}; {lacks}" if lacks else tier)


def _processor_flags(root: Path) -> frozenset[str]:
    with suppress(OSError):
        for line in (root / "proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return frozenset(value.split())

    return frozenset()


def check_cores(root: Path = _ROOT) -> Finding:
    """Return the threads of an engine, and what limits them."""
    allowed, online = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    quota = quota_cpus(root)
    text = f"{physical_cores()} by default; {allowed} of {online} processors allowed"
    if quota is not None:
        text += f", quota of the control group {quota:g}"
    if quota is not None and quota < min(allowed, 2):
        remedy = (
            f"the control group allows {quota:g} of {allowed} processors: raise its quota "
            f"(docker --cpus={allowed}, Kubernetes resources.limits.cpu, systemd CPUQuota)"
        )
        return Finding("threads", text, remedy)

    if allowed < min(online, 2):
        remedy = "this process may run on one processor: widen its affinity (taskset, cpuset)"
        return Finding("threads", text, remedy)

    return Finding("threads", text)


def check_memory() -> Finding:
    """Return the memory that a model may use."""
    budget = memory_budget(None)
    text = f"{format_bytes(budget.free_bytes)}: {budget.source}"
    if budget.free_bytes < _MIN_FREE_BYTES:
        remedy = "end other programs, raise the limit of the control group, or use a smaller model"
        return Finding("memory", text, remedy)

    return Finding("memory", text)


def check_huge_pages(root: Path = _ROOT) -> Finding:
    """Return whether weights and KV caches get huge pages."""
    path = root / _THP
    try:
        setting = path.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        remedy = "use a kernel with transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)"
        return Finding("huge pages", "the kernel has none", remedy)

    if setting == "never":
        remedy = f"as root: echo madvise > /{_THP}"
        return Finding("huge pages", "never: weights are read through small pages", remedy)

    return Finding("huge pages", setting)


def check_versions() -> Finding:
    """Return the versions of the packages that compute."""
    versions = (f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    return Finding("versions", ", ".join(versions))


def check_cache() -> Finding:
    """Return the size of the cache, after writing a file where entries are written."""
    try:
        home, limit = cache_home(), cache_limit()
        _write_below(home)
    except (AiomlcError, OSError) as error:
        place = os.environ.get("AIOMLC_HOME", "the user's cache directory")
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        remedy = "set AIOMLC_HOME to a directory that can be written"
        return Finding("cache", f"{place} cannot be written: {reason}", remedy)

    size = format_bytes(sum(entry.stored.nbytes for entry in list_entries()))
    bound = "" if limit is None else f" of {format_bytes(limit)}"
    return Finding("cache", f"{size}{bound} in {home}")


def _write_below(home: Path) -> None:
    existing = next(path for path in (home, *home.parents) if path.exists())
    with tempfile.TemporaryFile(dir=existing) as file:
        file.write(b"\0")
