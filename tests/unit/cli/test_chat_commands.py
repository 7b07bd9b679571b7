"""The commands of an interactive chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.cli.chat.commands import is_command
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore
from tests.unit.api.chat.vision import PARTS_TEMPLATE, vision_model
from tests.unit.cli.scene import make_scene
from tests.unit.runtime.images.pictures import encoded, gradient


def notes_of(*script: str, replies: tuple[str, ...] = ("Hello!",)) -> str:
    """Return what a chat writes besides the answers."""
    with make_scene(FakeCore(replies)) as scene:
        scene.type(*script)
    return scene.notes.getvalue()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/help", True),
        ("/set temperature 0", True),
        ("/?", True),
        ("/", True),
        (" /help", False),
        ("/etc/hosts: what is it?", False),
        ("// a comment", False),
        ("/help\nme", False),
        ("help", False),
    ],
)
def test_a_line_with_a_slash_and_a_word_is_a_command(line: str, expected: bool) -> None:
    assert is_command(line) is expected


def test_commands_are_not_sent_to_the_model() -> None:
    with make_scene() as scene:
        scene.type("/help", "/stats", "/set", "/nonsense", "", "/bye", "never read")

    assert scene.core.prompts == []


@pytest.mark.parametrize("leave", ["/bye", "/quit", "/exit", "exit", "quit", "exit()"])
def test_leaving_ends_the_chat(leave: str) -> None:
    with make_scene() as scene:
        scene.type(leave, "never read")

    assert scene.core.prompts == []


def test_help_lists_every_command() -> None:
    names = {
        "/help",
        "/image",
        "/set",
        "/system",
        "/show",
        "/retry",
        "/stats",
        "/clear",
        "/reset",
        "/regen",
        "/save",
        "/load",
    }

    assert names <= set(notes_of("/help").replace(",", " ").split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/sats", "unknown command /sats; did you mean /stats"),
        ("/hlep", "unknown command /hlep; did you mean /help?\n"),
        ("/xyzzy", "unknown command /xyzzy; /help lists the commands"),
        ("/clear all", "/clear takes no argument, got 'all'"),
        ("/save", "the argument is missing; type /save FILE"),
        ("/set temprature 1", "unknown parameter 'temprature'; did you mean temperature?"),
        ("/set xyzzy 1", "unknown parameter 'xyzzy'; /set lists them all"),
        ("/set temperature", "temperature: the value is missing; type /set temperature VALUE"),
        ("/set temperature -1", "temperature: should be non-negative, got -1"),
        ("/set top_p much", "top_p: must be a number, got 'much'"),
        ("/regen", "there is no answer to generate again"),
        ("/save ~nobody-at-all/x", "cannot find ~nobody-at-all/x"),
    ],
)
def test_a_mistake_is_explained_in_one_line(line: str, message: str) -> None:
    notes = notes_of(line)

    assert notes.startswith("aiomlc: ")
    assert message in notes
    assert notes.count("\n") == 1


def test_set_changes_the_next_request() -> None:
    with make_scene() as scene:
        scene.type("/set temperature 0.5", "Hi", "/set temperature=0;seed=7", "Hi", "/set")

    first, second = scene.core.options
    assert (first.temperature, first.max_tokens, first.seed) == (0.5, 50, None)
    assert (second.temperature, second.max_tokens, second.seed) == (0, 50, 7)
    assert "temperature = 0.5\n" in scene.notes.getvalue()
    assert "seed                 7         set      integer\n" in scene.notes.getvalue()


def test_set_default_selects_the_default_of_the_model() -> None:
    with make_scene() as scene:
        scene.type("/set max_tokens default", "/set ignore_eos True", "Hi")

    assert scene.core.options[0].ignore_eos is True
    assert scene.core.options[0].max_tokens is None


def test_a_default_is_shown_with_its_value_and_source() -> None:
    notes = notes_of("/set temperature default", "/set max_tokens 3", "/set")

    assert notes.startswith("temperature = 0.7 (model)\nmax_tokens = 3\n")
    assert "temperature          0.7       model    number >= 0\n" in notes
    assert "top_p                1.0       default  number >= 0 and <= 1\n" in notes
    assert "seed                 default   default  integer\n" in notes


def test_an_invalid_value_changes_nothing() -> None:
    with make_scene() as scene:
        scene.type("/set temperature=0.5;top_p=2", "Hi")

    assert scene.core.options[0].temperature is None


def test_stats_are_a_few_readable_lines() -> None:
    lines = notes_of("Hi", "Hi", "/stats").splitlines()

    assert "conversation  2 questions" in lines
    assert "context       128 of 1,024 tokens" in lines
    assert "answers       12 tokens" in lines
    assert len(lines) < 10


@pytest.mark.parametrize("command", ["/clear", "/reset"])
def test_a_new_conversation_keeps_only_the_system_message(command: str) -> None:
    with make_scene() as scene:
        scene.configure(system="Be brief.")
        scene.type("Hi", command)

    assert scene.contents == ["Be brief."]


def test_regen_replaces_the_last_answer() -> None:
    with make_scene(FakeCore(["One.", "Two.", "Three."])) as scene:
        scene.type("Hi", "And?", "/regen")

    assert scene.contents == ["Hi", "One.", "And?", "Three."]
    assert scene.core.prompts[1] == scene.core.prompts[2]


def test_a_failed_regen_keeps_the_last_answer() -> None:
    with make_scene(FakeCore(["One."], failures={2: "no luck"})) as scene:
        scene.type("Hi", "/regen")

    assert "aiomlc: no luck" in scene.notes.getvalue()
    assert scene.contents == ["Hi", "One."]


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_a_saved_conversation_is_loaded_by_another_chat(tmp_path: Path, quote: str) -> None:
    path = tmp_path / "my chat.json"
    with make_scene() as scene:
        scene.configure(system="Be brief.")
        scene.type("Hi", f"/save {quote}{path}{quote}")

    with make_scene() as other:
        other.type("Old", f"/load {path}", "Again")

    assert f"saved 1 question to {path}" in scene.notes.getvalue()
    assert other.contents == ["Be brief.", "Hi", "Hello!", "Again", "Hello!"]


def test_a_file_that_cannot_be_loaded_leaves_the_conversation(tmp_path: Path) -> None:
    with make_scene() as scene:
        scene.type("Hi", f"/load {tmp_path / 'missing'}")

    assert "No such file or directory" in scene.notes.getvalue()
    assert scene.contents == ["Hi", "Hello!"]


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """The file of a picture."""
    path = tmp_path / "a b.png"
    path.write_bytes(encoded(gradient(5, 3), "PNG"))
    return path


def test_an_image_goes_with_the_next_question(picture: Path, tmp_path: Path) -> None:
    template, saved = ChatTemplate(PARTS_TEMPLATE), tmp_path / "chat.json"
    core, second = FakeCore(), FakeCore()
    with make_scene(core, model=vision_model(core, template)) as scene:
        scene.type(f"/image {picture}", f"/image '{picture}'", "Compare.", "And?", f"/save {saved}")
    with make_scene(second, model=vision_model(second, template)) as other:
        other.type(f"/load {saved}", "/regen")

    prompts = [bytes(prompt).decode() for prompt in [*core.prompts, *second.prompts]]
    assert prompts[0] == "[user]" + " " * 10 + "Compare."
    assert prompts[1] == prompts[2] == prompts[0] + "[assistant]Hello![user]And?"
    shown = scene.notes.getvalue()
    assert "a b.png goes with the next question (2 images)" in shown
    assert scene.session.images == []


def test_an_image_that_cannot_be_read_is_explained(picture: Path, tmp_path: Path) -> None:
    notes = notes_of(f"/image {tmp_path}/none.png", f"/image {tmp_path}", "/image")
    assert f"cannot read {tmp_path}/none.png: No such file or directory" in notes
    assert f"cannot read {tmp_path}: not a regular file" in notes
    assert "the argument is missing; type /image FILE" in notes

    with make_scene() as scene:
        scene.type(f"/image {picture}", "What?", "And now?")
    assert "does not read images" in scene.notes.getvalue()
    assert len(scene.core.prompts) == 1


def test_a_new_conversation_has_no_image_to_send(picture: Path) -> None:
    with make_scene() as scene:
        scene.type(f"/image {picture}", "/clear", "Hello?")

    assert len(scene.core.prompts) == 1


def test_the_system_message_can_be_changed_and_is_shown() -> None:
    with make_scene(FakeCore(["Hello!"] * 3)) as scene:
        scene.type("/system You are a pirate.", "Hi", "/show", '/system ""', " exit", "/system")

        assert b"You are a pirate." in bytes(scene.core.prompts[0])
        assert b"pirate" not in bytes(scene.core.prompts[1])
        # With a space before it, a word that leaves is a question.
        assert scene.contents == ["Hi", "Hello!", "exit", "Hello!"]

    notes = scene.notes.getvalue()
    assert notes.count("system: You are a pirate.\n") == 2
    assert "a fake model\n" in notes
    assert notes.rstrip().endswith("system: none")
