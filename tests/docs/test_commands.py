"""Every shell command of the pages has a known form: options, targets, extras and files exist."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from aiomlc.cli.app import app
from aiomlc.ray import RayOptions
from tests.docs.pages import PAGES, ROOT, blocks, name_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROGRAM: Any = typer.main.get_command(app)  # Of the copy of click that typer contains.
INLINE = re.compile(r"`(aiomlc [a-z][^`]*)`")
OPERATORS = {"|", "||", "&&", ";", "&"}


def _check_aiomlc(arguments: Sequence[str]) -> None:
    """Parse the arguments as the program does, without running it."""
    context = PROGRAM.make_context("aiomlc", list(arguments))
    command, rest = PROGRAM, list(arguments)
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, list(rest), parent=context)


def _check_python(arguments: Sequence[str]) -> None:
    if arguments[0] == "-m" and arguments[1] == "pytest":
        _check_pytest(arguments[2:])
    elif arguments[0] == "-m":
        path = ROOT / arguments[1].replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file() or arguments[1] == "venv"
        _check_options(path, arguments[1], arguments[2:])


def _check_options(path: Path, module: str, arguments: Sequence[str]) -> None:
    """Check that each option stands in the sources of the module's package, or in its help."""
    folder = path if path.is_dir() else path.parent
    sources = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    options = {argument for argument in arguments if argument.startswith("--")}
    if missing := {option for option in options if f'"{option}"' not in sources}:
        command = [sys.executable, "-m", module, "--help"]
        text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert missing <= set(re.findall(r"--[\w-]+", text)), missing


def _check_pytest(arguments: Sequence[str]) -> None:
    for argument in arguments:
        assert argument.startswith("-") or (ROOT / argument).exists(), argument


def _check_pip(arguments: Sequence[str]) -> None:
    assert arguments[0] in ("install", "uninstall")
    for position, argument in enumerate(arguments):
        if extras := re.fullmatch(r"(?:aiomlc|\.|dist/aiomlc-.*\.whl)\[([\w,]+)\]", argument):
            for extra in extras[1].split(","):
                assert extra in PROJECT["project"]["optional-dependencies"], extra
        elif argument == "--group":
            assert arguments[position + 1] in PROJECT["dependency-groups"]


def _check_make(arguments: Sequence[str]) -> None:
    for argument in arguments:
        if re.fullmatch(r"[A-Z_]+=.*", argument):
            assert re.search(rf"\b{argument.partition('=')[0]}\b", MAKEFILE), argument
        else:
            assert re.search(rf"^{argument}:", MAKEFILE, re.M), argument


def _check_files(arguments: Sequence[str]) -> None:
    """Check the files that `-f` names, of docker and kubectl."""
    for option, value in pairwise(arguments):
        if option == "-f":
            assert (ROOT / value).exists(), value


def _check_serve(arguments: Sequence[str]) -> None:
    """Check an application of Ray Serve, and the arguments of its builder."""
    if arguments[0] == "run":
        module, _, name = arguments[1].partition(":")
        assert callable(getattr(importlib.import_module(module), name))
        for argument in arguments[2:]:
            assert argument.partition("=")[0] in {"model", "mode", *RayOptions.__slots__}, argument


CHECKS: dict[str, Callable[[Sequence[str]], None]] = {
    "aiomlc": _check_aiomlc,
    "docker": _check_files,
    "kubectl": _check_files,
    "make": _check_make,
    "pip": _check_pip,
    "python": _check_python,
    "python3": _check_python,
    "serve": _check_serve,
    **dict.fromkeys(("apt", "cat", "cd", "curl", "export", "llm", "time"), lambda _: None),
}


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command, without variables, redirections and comments."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        skips = False
        for word in [*lexer, ";"]:
            if word in OPERATORS:
                while words and re.match(r"[A-Z_]+=", words[0]):
                    words.pop(0)

                if words:
                    yield words

                words = []
            elif skips or re.fullmatch(r"[<>]+", word):
                skips = not skips
            else:
                words.append(word)


def _shell_commands(page: Path) -> list[tuple[str, list[str]]]:
    """Return the commands of a page, each with its place."""
    commands = []
    for block in blocks(page):
        text = block.text if block.language == "sh" else ""
        if block.language == "console":
            text = "\n".join(re.findall(r"^\$ (.*)$", block.text, re.M))

        commands += [(block.place, command) for command in _commands(text)]

    return commands


@pytest.mark.parametrize("page", [page for page in PAGES if _shell_commands(page)], ids=name_of)
def test_commands_have_a_known_form(page: Path) -> None:
    for place, (program, *arguments) in _shell_commands(page):
        name = re.sub(r"^(\.venv|build/ray)/bin/", "", program)
        assert name in CHECKS, f"{place}: {program} has no check"
        try:
            CHECKS[name](arguments)
        except Exception as error:
            raise AssertionError(f"{place}: {program} {shlex.join(arguments)}: {error}") from error


def test_every_extra_can_be_found() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    extras = PROJECT["project"]["optional-dependencies"]
    assert [extra for extra in extras if f"'aiomlc[{extra}]'" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_in_the_text_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for command in INLINE.findall(text):
        (_, name, *rest), *_ = _commands(command)
        subcommand = PROGRAM.commands.get(name)
        assert subcommand is not None, command
        known = {option for parameter in subcommand.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("-")} <= known | {"--help", "-"}, command


def test_every_block_names_its_language() -> None:
    known = {"", "console", "json", "python", "sh", "text", "yaml"}
    for page in PAGES:
        found = blocks(page)
        assert page.read_text(encoding="utf-8").count("```") == 2 * len(found), name_of(page)
        for block in found:
            assert block.language in known, block.place
