"""What a usual run leaves out, and that the eight shares are everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugins.selection import SHARES, Selection

_TESTS = """
import pytest

@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request): ...

def test_plain(): ...

@pytest.mark.thorough
@pytest.mark.parametrize("n", range(12))
def test_thorough(n): ...

@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", range(10))
def test_counted(n, anyio_backend): ...

@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("n", range(9))
def test_of_one_loop(n, anyio_backend): ...

@pytest.mark.sampled(n=[2, 5])
@pytest.mark.parametrize("m", range(2))
@pytest.mark.parametrize("n", range(10))
def test_named(n, m): ...
"""

Select = Callable[..., set[str]]


@pytest.fixture(autouse=True)
def _no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def select(pytester: pytest.Pytester) -> Select:
    """Return a function that returns the names of the tests that the options select."""
    pytester.makepyfile(**{"unit/test_sample": _TESTS, "e2e/test_sample": _TESTS})
    options = ("-p", "tests.plugins.selection", "--import-mode=importlib")
    items, _ = pytester.inline_genitems(*options)

    def run(thorough: str = "all", *whole: str) -> set[str]:
        left_out = Selection.parse(thorough, whole).left_out(items)
        return {item.nodeid for item in items if item not in left_out}

    return run


def _count(names: set[str], part: str) -> int:
    return sum(part in name for name in names)


def test_pytest_alone_runs_everything(select: Select) -> None:
    assert len(select()) == len(select("all")) == 2 * (1 + 12 + 20 + 9 + 20)


def test_a_usual_run_has_what_the_marks_name(select: Select) -> None:
    usual = select("none")

    assert _count(usual, "unit/test_sample.py::test_plain") == 1
    assert _count(usual, "test_thorough") == 0
    assert _count(usual, "unit/test_sample.py::test_counted") == 6
    assert _count(usual, "e2e/test_sample.py::test_counted") == 3
    assert _count(usual, "test_of_one_loop") == 18
    assert _count(usual, "test_named[2-") == _count(usual, "test_named[5-") == 4
    assert _count(usual, "test_named") == 8


def test_the_shares_are_everything_and_disjoint_beyond_the_usual_run(select: Select) -> None:
    usual = select("none")
    shares = [select(f"{index}/{SHARES}") for index in range(SHARES)]

    assert set.union(*shares) == select()
    assert all(usual <= share < select() for share in shares)
    beyond = [share - usual for share in shares]
    assert sum(map(len, beyond)) == len(set.union(*beyond))


def test_a_whole_folder_runs_whatever_the_share_is(select: Select) -> None:
    selected = select("none", "e2e")

    assert {name for name in selected if name.startswith("e2e")} == {
        name for name in select() if name.startswith("e2e")
    }
    assert _count(selected, "unit/test_sample.py::test_thorough") == 0


@pytest.mark.parametrize("share", ["some", "8/8", "1/7", "-1/8", "1/"])
def test_other_shares_are_refused(share: str) -> None:
    with pytest.raises(pytest.UsageError, match="must be all, none, or 0/8 to 7/8, got '"):
        Selection.parse(share)


@pytest.mark.parametrize("arguments", ["", "0", "n='x', m=[1]", "'3'"])
def test_wrong_marks_are_refused(pytester: pytest.Pytester, arguments: str) -> None:
    pytester.makepyfile(
        "import pytest\n"
        f"@pytest.mark.sampled({arguments})\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test(n): ..."
    )

    items, _ = pytester.inline_genitems("-p", "tests.plugins.selection")

    with pytest.raises(pytest.UsageError, match="sampled "):
        Selection.parse("none").left_out(items)


def test_the_options_select(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(**{"unit/test_sample": _TESTS})

    options = ("-p", "tests.plugins.selection", "--thorough", "none", "--collect-only", "-q")
    result = pytester.runpytest_inprocess(*options)

    result.stdout.fnmatch_lines(["20/62 tests collected (42 deselected)*"])
