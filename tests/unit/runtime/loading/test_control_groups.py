"""Control groups, versions 1 and 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.runtime.loading.control_groups import free_memory, quota_cpus
from tests.files import write_files

MIB = 1 << 20


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"},
        {
            "proc/self/cgroup": "0::/pod/container\n",
            "sys/fs/cgroup/pod/cpu.max": "50000 50000\n",
            "sys/fs/cgroup/pod/container/cpu.max": "max 100000\n",
        },
        {
            "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "100000\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        },
    ],
)
def test_a_control_group_of_one_core_is_found(tmp_path: Path, files: dict[str, str]) -> None:
    assert quota_cpus(write_files(tmp_path, files)) == 1


def test_no_quota_is_no_limit(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}

    assert quota_cpus(write_files(tmp_path, files)) is None


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        ({"memory.max": "max", "memory.current": "5"}, None),
        ({"memory.max": f"{8 * MIB}", "memory.current": f"{2 * MIB}"}, 6 * MIB),
        ({"memory.max": f"{8 * MIB}", "memory.current": f"{9 * MIB}"}, 0),
    ],
)
def test_memory_that_is_left(tmp_path: Path, files: dict[str, str], free: int | None) -> None:
    root = write_files(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    write_files(tmp_path, {"proc/self/cgroup": "0::/\n"})

    assert free_memory(root) == free


@pytest.mark.parametrize(
    ("group", "limit", "used", "prefix"),
    [
        ("0::/pod/container", "pod/memory.max", "pod/memory.current", ""),
        (
            "5:memory:/pod/container",
            "memory/pod/memory.limit_in_bytes",
            "memory/pod/memory.usage_in_bytes",
            "total_",
        ),
    ],
)
def test_files_in_the_page_cache_are_not_used_memory(
    tmp_path: Path, group: str, limit: str, used: str, prefix: str
) -> None:
    stat = f"anon {MIB}\n{prefix}active_file {2 * MIB}\n{prefix}inactive_file {3 * MIB}\n"
    files = {
        "proc/self/cgroup": f"{group}\n",
        f"sys/fs/cgroup/{limit}": f"{8 * MIB}\n",
        f"sys/fs/cgroup/{used}": f"{6 * MIB}\n",
        f"sys/fs/cgroup/{Path(limit).parent}/memory.stat": stat,
    }

    assert free_memory(write_files(tmp_path, files)) == 7 * MIB
