"""Chat templates that try to compute forever or to fill the memory, and a generator of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_LONG = "'x' * 1900000"
_TWO = f"{{% set a = {_LONG} %}}{{% set b = 'x' * 1000000 + 'x' * 900000 %}}"

#: Templates that must exceed a limit, by what they do.
HOSTILE = {
    "nested ranges": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "long output": "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "constant output": "{% for a in range(99999) %}" + "y" * 10_000 + "{% endfor %}",
    "output of a set block": (
        "{% set a %}{% for i in range(99999) %}" + "y" * 10_000 + "{% endfor %}{% endset %}"
    ),
    "output of a macro": (
        "{% macro m() %}" + "y" * 10_000 + "{% endmacro %}"
        "{% set a %}{% for i in range(99999) %}{{ m() }}{% endfor %}{% endset %}"
    ),
    "output of a block": (
        "{% block a %}{% for i in range(99999) %}" + "y" * 10_000 + "{% endfor %}{% endblock %}"
    ),
    "a block that is called": (
        "{% macro m() %}{{ self.a() }}{% endmacro %}{% if false %}{% block a scoped %}"
        "{% for i in range(9999) %}" + "y" * 10_000 + "{% endfor %}{% endblock %}{% endif %}"
        "{{ self.a() | length }}"
    ),
    "comparisons of long strings": (
        _TWO + "{% for i in range(99999) %}{% if a == b %}{% endif %}{% endfor %}"
    ),
    "slices in many variables": (_TWO + "".join(f"{{% set c{i} = a[1:] %}}" for i in range(100))),
    "sums in many variables": _TWO + "".join(f"{{% set c{i} = a + 'x' %}}" for i in range(100)),
    "lists of lists": "{% set a = ['x'] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}",
    "mappings of mappings": "{% set a = {} %}" + "{% set a = dict(a=a, b=a) %}" * 60 + "{{ a }}",
    "arguments of arguments": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1, varargs, varargs) }}{% else %}{{ varargs }}"
        "{% endif %}{% endmacro %}{{ f(50, 1) }}"
    ),
    "a list of one mapped value": (
        "{% set a = ['x' * 99] * 5000 %}{{ ([''] * 5000) | map('default', a, true) | list }}"
    ),
    "a list of characters": f"{{{{ ({_LONG}) | list | length }}}}",
    "words": "{{ ('x ' * 900000).split() | length }}",
    "a join": "{{ range(99999) | map('string') | join('x' * 1000000) }}",
    "a joining method": "{{ ('x' * 100000).join(range(50000) | map('string')) }}",
    "a replacement": "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}",
    "a replacing method": "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
    "center": "{{ 'x'.center(1000000000) }}",
    "zfill": "{{ 'x'.zfill(1000000000) }}",
    "expandtabs": "{{ ('\\t' * 100000).expandtabs(10000) }}",
    "indent": "{{ ('x\\n' * 100000) | indent(1000000000) }}",
    "tojson with an indent": "{{ messages | tojson(indent=1000000000) }}",
    "tojson with separators": "{{ ([1] * 40000) | tojson(separators=('x' * 100000, 'y')) }}",
    "tojson with a string indent": "{{ ([[1]] * 40000) | tojson(indent='x' * 9000) }}",
    "a power": "{{ 9 ** 99999999 }}",
    "squares": (
        "{% set n = namespace(a=3) %}{% for i in range(99) %}{% set n.a = n.a * n.a %}{% endfor %}"
    ),
    "a width of %": "{{ '%1000000000d' % 1 }}",
    "a width as an argument": "{{ '%*d' % (1000000000, 1) }}",
    "a width of the filter": "{{ '%1000000000d' | format(1) }}",
    "a named value many times": "{{ ('%(a)s' * 200000) % {'a': 'x' * 100000} }}",
    "a width of format": "{{ '{:>1000000000}'.format(1) }}",
    "a nested width": "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "a field many times": "{{ ('{0}' * 300000).format('x' * 100000) }}",
    "digits": "{{ 5 | round(-1000000000) }}",
    "a sum of lists": "{{ ([[1]] * 1000) | sum(start=[]) }}",
    "batch": "{{ [1] | batch(1000000000, 'x') | list }}",
    "slice": "{{ [1] | slice(1000000000, 'x') | list }}",
    "calls that double": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "a loop that doubles": (
        "{% for a in [1] recursive %}{% if loop.depth < 60 %}{{ loop([1, 1]) }}{% endif %}"
        "{% endfor %}"
    ),
    "doubled text": (
        "{% set n = namespace(a='xx') %}"
        "{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}"
    ),
    "doubled lists": (
        "{% set n = namespace(a=[1]) %}"
        "{% for i in range(99) %}{% set n.a = n.a + n.a %}{% endfor %}"
    ),
    "a constant string": "{{ 'x' * 10 ** 9 }}",
    "a constant list": "{{ [0] * 10 ** 9 }}",
    "an escaped string": "{{ ('x' | e).center(1000000000) }}",
    "title": f"{{{{ ({_LONG}) | title }}}}",
}
#: Templates that are rejected when they are loaded.
INVALID = {
    "break outside of a loop": "{% break %}",
    "30 nested loops": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "negations": "{{ " + "not " * 50_000 + "1 }}",
    "nested lists": "{{ " + "[" * 500 + "]" * 500 + " }}",
    "a long sum": "{{ 1" + "*1" * 50_000 + " }}",
    "many branches": "{% if a %}" + "{% elif a %}" * 5000 + "{% endif %}",
    "many digits": "{{ " + "9" * 5000 + " }}",
    "attributes": "{{ a" + ".a" * 20_000 + " }}",
    "filters": "{{ a" + "|e" * 20_000 + " }}",
    "open tags": "{{" * 9000,
    "too many tags": "{{ a }}" * 10_001,
    "too many characters": "x" * (512 * 1024 + 1),
    "escaping of HTML": "{% autoescape true %}{% endautoescape %}",
}

_SIZES = ("2", "3", "9", "70", "900", "9999", "99999", "10 ** 9")
# Expressions by their type: {t} is text, {l} a list, {m} a mapping, {i} a number, {n} a size.
_TEXT = (
    *("'x'", "'a\\n\\t'", "messages[0].content", "({t}) * {n}", "({t}) + ({t})", "({t}) ~ ({l})"),
    *("({l}) | string", "({l}) | tojson(indent={n})", "({m}) | tojson", "({t}) | indent({n})"),
    *("({t}) | replace('', {t})", "({l}) | join({t})", "({t}) | truncate({n})", "({t}) | title"),
    *("({t}) | urlencode", "({t}).center({n})", "({t}).join({l} | map('string'))", "f({t}, {l})"),
    *("({t}).replace('x', {t})", "'{{}} {{:>9}}'.format({l}, {t})", "'%s %9s' % ({t}, {l})"),
    *("({t})[1:]", "({t}).upper()", "({t}) | trim", "({t}) | e", "'%s' | format({t})"),
    *("({t}).zfill({n})", "({t}).expandtabs({n})", "({l}) | map('string') | join({t})", "f({m})"),
)
_LIST = (
    *("[1, 2.5]", "messages", "[{t}, {l}]", "({l}) * {n}", "({l}) + ({l})", "range({n}) | list"),
    *("({l}) | batch({n}, {t}) | list", "({l}) | slice({n}) | list", "({t}) | list", "({l})[1:]"),
    *("({l}) | map('default', {l}, true) | list", "range({n}) | sort", "({t}).split()"),
    *("range({n}) | groupby('real')", "({m}) | items | list", "({m}) | dictsort"),
    *("range({n}) | select('odd') | list", "({l}) | reverse | list", "({t}) | unique | list"),
)
_MAPPING = (
    "{{'a': 1}}",
    "{{'a': {t}}}",
    "dict(a={l}, b={m})",
    "messages[0]",
    "{{'a': {m}, 'b': {m}}}",
)
_NUMBER = (
    *("1", "({i}) * ({i})", "({i}) ** {n}", "({t}) | length", "({i}) + {n}", "2.5 | round({n})"),
    *("range({n}) | sum", "({i}) % 7", "({t}) | int", "({l}) | count", "({t}).count('x')"),
)
_STATEMENTS = (
    *("{{{{ {t} }}}}", "{{{{ {l} }}}}", "{{{{ {i} }}}}", "{{{{ {m} }}}}", "{{% set n.a = {t} %}}"),
    *("{{% set a %}}{{{{ {t} }}}}{{% endset %}}", "{{% if ({t}) == ({t}) %}}{b}{{% endif %}}"),
    *("{{% for i in {l} %}}{b}{{% endfor %}}", "{{% for i in range({n}) %}}{b}{b}{{% endfor %}}"),
    *("{{% filter upper %}}{b}{{% endfilter %}}", "{{% call g() %}}{b}{{% endcall %}}", "{b}{b}"),
    "{{% for i in [1] recursive %}}{{{{ loop([1]) if loop.depth < {n} }}}}{b}{{% endfor %}}",
    *("{{% set n.a = n.a + ({t}) %}}", "{{% if {l} in {l} %}}{b}{{% else %}}{b}{{% endif %}}"),
)
_HEADER = (
    "{% set n = namespace(a='x') %}{% macro f(a) %}{{ a }}{{ varargs }}{% endmacro %}"
    "{% macro g() %}{{ caller() }}{{ caller() }}{% endmacro %}"
)


def random_templates(seed: int, number: int) -> Iterator[str]:
    """Yield templates that combine filters, operators, methods and loops."""
    rng = random.Random(seed)
    for _ in range(number):
        yield _HEADER + "".join(_statement(rng, rng.randint(0, 3)) for _ in range(2))


def _statement(rng: random.Random, depth: int) -> str:
    body = _statement(rng, depth - 1) if depth else "{{ n.a }}"
    return rng.choice(_STATEMENTS).format(**_parts(rng, rng.randint(0, 3)), b=body)


def _parts(rng: random.Random, depth: int) -> dict[str, str]:
    kinds = {"t": _TEXT, "l": _LIST, "m": _MAPPING, "i": _NUMBER}
    return {
        "n": rng.choice(_SIZES),
        **{kind: _expression(rng, choices, depth) for kind, choices in kinds.items()},
    }


def _expression(rng: random.Random, choices: Sequence[str], depth: int) -> str:
    if depth == 0:
        return choices[0].format()

    return rng.choice(choices).format(**_parts(rng, depth - 1))
