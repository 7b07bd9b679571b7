"""The budget of chat templates: hostile ones are refused, plain ones render as in Jinja."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import jinja2
import pytest
from jinja2.ext import LoopControlExtension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.templates.render_budget import (
    MAX_TEXT,
    QUICK,
    RenderBudget,
    RenderLimits,
    TemplateLimitError,
)
from tests.unit.runtime.templates.hostile_templates import HOSTILE, INVALID, random_templates

USER = {"role": "user", "content": "Hello"}
# Counts alone end the hostile templates, except where the time is the limit.
_BY_TIME = ("comparisons of long strings",)
_COUNTS = RenderLimits(steps=50_000, seconds=30, text=MAX_TEXT, memory=48_000_000)
_NUM_RANDOM = int(os.environ.get("AIOMLC_FUZZ_TEMPLATES", "200"))


def render(source: str, limits: RenderLimits = _COUNTS, **variables: Any) -> str:  # noqa: ANN401
    with RenderBudget(limits).active():
        return ChatTemplate(source).render([USER], **variables)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_exceeds_a_limit(name: str) -> None:
    limits = RenderLimits(1_000_000, 0.05, MAX_TEXT, 48_000_000) if name in _BY_TIME else _COUNTS

    with pytest.raises(TemplateLimitError, match="the model's chat template ") as caught:
        render(HOSTILE[name], limits)

    assert caught.value.param == "messages"
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", INVALID)
def test_a_template_that_cannot_be_compiled_is_a_load_error(name: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        ChatTemplate(INVALID[name])

    assert caught.value.field == "chat_template"
    assert len(str(caught.value)) < 600


def test_random_templates_render_or_raise_typed_errors() -> None:
    outcomes = Counter(map(_outcome, random_templates(seed=1, number=_NUM_RANDOM)))

    assert outcomes.keys() == {"prompt", "limit", "error"}
    assert min(outcomes.values()) > _NUM_RANDOM // 20, outcomes


def _outcome(source: str) -> str:
    try:
        prompt = render(source)
    except TemplateLimitError:
        return "limit"
    except (BadRequestError, ModelLoadError) as error:
        return "error" if len(str(error)) < 700 else f"a long error of {source}"

    return "prompt" if len(prompt) <= MAX_TEXT else f"a long prompt of {source}"


def test_random_templates_render_as_in_jinja() -> None:
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension]
    )
    num_equal = 0
    for source in random_templates(seed=2, number=_NUM_RANDOM):
        # `tojson` and `e` differ: they return plain strings.
        if any(part in source for part in ("10 ** 9", "99999", "| tojson", "| e")):
            continue

        try:
            prompt = render(source, RenderLimits(20_000, 30, 200_000, 4_000_000))
        except (BadRequestError, ModelLoadError):
            continue

        assert environment.from_string(source).render(messages=[USER]) == prompt, source
        num_equal += 1

    assert num_equal > _NUM_RANDOM // 20


@pytest.mark.parametrize("name", ["lipsum", "cycler", "joiner"])
def test_globals_that_no_template_needs_are_undefined(name: str) -> None:
    assert render(f"{{{{ {name} is defined }}}}") == "False"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x'.encode() }}",
        "{{ {}.fromkeys }}{{ {}.fromkeys(messages) }}",
        "{{ (5).to_bytes(1000000000) }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ '{a[__class__].x}'.format(a=1) }}",
        "{{ 'x'.maketrans('a', 'b') }}",
        "{{ strftime_now('%1000000000d') }}",
        "{{ strftime_now('%Y' * 100) }}",
        "{{ ('x' * 1000) | truncate(10, false, 'y' * 1000) }}",
    ],
)
def test_methods_outside_of_the_list_are_rejected(source: str) -> None:
    with pytest.raises(BadRequestError, match="rejected the messages"):
        render(source)


def test_a_template_that_is_not_quick_exceeds_the_quick_limits_only() -> None:
    source = "{% for i in range(2000) %}{{ messages[0].content * 20 }}{% endfor %}"

    with pytest.raises(TemplateLimitError):
        render(source, QUICK)

    assert len(render(source)) == 200_000


def test_a_cancelled_rendering_ends() -> None:
    readings = iter([False, True])
    budget = RenderBudget(is_cancelled=lambda: next(readings))
    template = ChatTemplate("{% for i in range(99999) %}{% endfor %}")

    with budget.active(), pytest.raises(TemplateLimitError, match="was cancelled"):
        template.render([USER])

    assert next(readings, None) is None


def test_the_error_of_a_template_is_cut() -> None:
    with pytest.raises(BadRequestError) as caught:
        render("{{ raise_exception('x' * 100000) }}")

    assert len(str(caught.value)) < 600


def test_loops_keep_their_variables() -> None:
    source = (
        "{% for m in 'abc' %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}"
        "{% endfor %}{% for i in messages | selectattr('role', 'equalto', 'user') %}{{ i.role }}"
        "{% endfor %}{% if messages | selectattr('role', 'equalto', 'tool') %}yes{% endif %}"
        "{% for x in undefined_name %}{% else %}none{% endfor %}"
    )

    assert render(source) == "1False32False3a3True3b" + "useryesnone"


def test_plain_operations_work() -> None:
    source = (
        "{{ 1 + 2 }}{{ [1] + [2] }}{{ 'a' + 'b' + 'c' }}{{ '%s-%d' % ('a', 3) }}"
        "{{ '{} {b:>3}'.format(1, b=2) }}{{ ', '.join(messages | map(attribute='role')) }}"
        "{{ ['a', 'b'] | join(', ') }}{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}"
        "{{ 'x' | center_ if false else 7 * 6 }}{{ [3, 1] | sort }}{{ 2 ** 10 }}{{ 'ab' * 2 }}"
    )

    assert render(source) == "3[1, 2]abca-31   2usera, bb42[1, 3]1024abab"


@pytest.mark.parametrize(
    "expression",
    [
        "m | safe",
        "(m | safe) + '<b>'",
        "'<b>' + (m | safe)",
        "(m | safe) + '<' + (m | safe) + '&'",
        "'<' + (m | e) + '>' + ('x' | safe)",
        "(m | safe) ~ '<'",
        "m | e | e",
        "m | safe | e",
        "(m | safe) * 2",
        "[m | safe, '<'] | join",
        "(m | safe) | replace('a', '<') + '<'",
        "(m | safe).strip() ~ '<'",
    ],
)
def test_text_that_is_marked_as_html_is_added_as_in_jinja(expression: str) -> None:
    source = f"{{{{ {expression} }}}}"
    expected = ImmutableSandboxedEnvironment().from_string(source).render(m="<a>&")
    template = ChatTemplate(f"{{% set m = messages[0].content %}}{source}")

    assert template.render([{"role": "user", "content": "<a>&"}]) == expected


@pytest.mark.parametrize("other", ["1", "none", "[]"])
def test_only_text_is_added_to_html(other: str) -> None:
    for sum_ in (f"('a' | safe) + {other}", f"{other} + ('a' | safe)"):
        with pytest.raises(BadRequestError):
            ChatTemplate(f"{{{{ {sum_} }}}}").render([{"role": "user", "content": "x"}])
