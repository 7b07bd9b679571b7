"""Completion with the Tab key."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.cli.terminal.completion import complete_path
from tests.unit.cli.scene import make_scene


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/re", ["/reset", "/regen", "/retry"]),
        ("/help", ["/help"]),
        ("/s", ["/set ", "/system ", "/show", "/stats", "/save "]),
        ("/nothing", []),
        ("/set top", ["top_p ", "top_k "]),
        ("/set seed=1;top_", ["top_p ", "top_k "]),
        ("/set top_p ", []),
        ("/set top_p=", []),
        ("/clear ", []),
        ("top", []),
        ("/etc/hos", []),
    ],
)
def test_commands_and_parameters_are_completed(line: str, words: list[str]) -> None:
    with make_scene() as scene:
        assert scene.chat.complete(line, line.replace(";", " ").split(" ")[-1]) == words


def test_set_lists_all_parameters() -> None:
    with make_scene() as scene:
        assert {"temperature ", "seed "} <= set(scene.chat.complete("/set ", ""))


def test_paths_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chat.json").touch()
    (tmp_path / "chats").mkdir()
    (tmp_path / ".chat").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert complete_path("ch") == ["chat.json", "chats/"]
    assert complete_path("") == ["chat.json", "chats/"]
    assert complete_path(".c") == [".chat"]
    assert complete_path("~/chats") == ["~/chats/"]
    assert complete_path(f"{tmp_path}/chat.") == [f"{tmp_path}/chat.json"]
    assert complete_path("missing/x") == complete_path("~nobody-at-all/x") == []
    with make_scene() as scene:
        assert scene.chat.complete("/load chat.", "chat.") == ["chat.json"]
