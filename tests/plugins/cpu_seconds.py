"""A table at the end of a run: CPU seconds by folder, and the tests that take most of them.

The seconds are those of the process and of its children that have ended, fixtures included, so the
first user of a shared fixture pays for it.
"""

from __future__ import annotations

__all__ = ()

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import PurePosixPath

import pytest

_DEAREST = 15
_FOLDER_PARTS = 3
_PROPERTY = "cpu_seconds"

Seconds = defaultdict[str, float]


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _dearest(seconds: Seconds) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])


class CpuSeconds:
    """Measures the tests of a process, and reports those of all processes."""

    def __init__(self) -> None:
        self.by_test = Seconds(float)
        self.collections: list[float] = []
        self._began = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._began = _cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            report.user_properties.append((_PROPERTY, _cpu_seconds() - self._began))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, float):
                self.by_test[report.nodeid.partition("[")[0]] += value

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is None:
            self.collections.append(_cpu_seconds())
        else:
            output["collection_seconds"] = _cpu_seconds()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        output = getattr(node, "workeroutput", {})
        self.collections.append(output.get("collection_seconds", 0.0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.by_test or terminalreporter.config.getoption("collectonly"):
            return

        folders = Seconds(float)
        for test, seconds in self.by_test.items():
            path = PurePosixPath(test.partition("::")[0]).parent
            folders["/".join(path.parts[:_FOLDER_PARTS])] += seconds
        terminalreporter.section("CPU seconds")
        for folder, seconds in _dearest(folders):
            terminalreporter.write_line(f"{seconds:8.1f}  {folder}")
        terminalreporter.write_line(f"{sum(self.collections):8.1f}  collection")
        total = sum(folders.values()) + sum(self.collections)
        terminalreporter.write_line(f"{total:8.1f}  in all")
        terminalreporter.write_line(f"the {_DEAREST} dearest:")
        for test, seconds in _dearest(self.by_test)[:_DEAREST]:
            terminalreporter.write_line(f"{seconds:8.1f}  {test}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuSeconds(), "cpu_seconds_of_tests")
