"""Compares templates of chats in Jinja with what transformers renders by them: templates of the ways in which models' templates
are written, and expressions and blocks by chance.

  jinja.py JINJA_TOOL [--cases 8000]
"""
import argparse
import copy
import json
import random
import subprocess
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template as compile_template

TEMPLATES = [
    # White space around tags, comments, raw text, macros with defaults, a namespace, calls with blocks.
    "{%- for m in messages -%}\n  {# who #}\n  {%+ if m.role == 'user' %}\nU: {{ m.content | trim }}\n  {%- else -%}\n A:{{- m['content'] -}}\n"
    "  {% endif %}\n{% endfor %}\n{% raw %}{{ {% raw }}{% endraw %}\n",
    "{%- macro tag(name, text='none', end=True) -%}<{{ name }}>{{ text }}{% if end %}</{{ name }}>{% endif %}{%- endmacro -%}\n"
    "{{ tag('a') }}{{ tag('b', end=false) }}{{ tag(text=messages | length, name='c') }}",
    "{% set ns = namespace(seen=false, n=0, last='') %}{% for m in messages if m.role != 'system' %}{% set ns.n = ns.n + loop.index0 %}"
    "{% if not ns.seen and loop.last %}{% set ns.seen = true %}{% endif %}{% set ns.last = m.role %}{% else %}nobody{% endfor %}"
    "{{ ns.n }} {{ ns.seen }} {{ ns.last }} {{ n is defined }}",
    "{% macro box(title) %}[{{ title }}:{{ caller(1, k='z') }}]{% endmacro %}{% call(a, k='y') box('T') %}{{ a }}{{ k }}{{ messages | length }}{% endcall %}",
    "{% for m in messages %}{{ loop.previtem.role if not loop.first }}|{{ loop.nextitem.role | default('end') }}|{{ loop.revindex }}|"
    "{{ loop.cycle('x', 'y') }};{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}",
    "{% for a, b in {'x': 1, 'y': [2, 'q']}.items() %}{% if b == 1 %}{% continue %}{% endif %}{{ a }}={{ b }}{% endfor %}",
    "{% set text %}one{% for m in messages %}, {{ m.role }}{% endfor %}{% endset %}{{ text | upper }}{% filter replace('o', '0') | trim %} foo {% endfilter %}",
    "{% with a = 3, b = messages[0] %}{{ a }}{{ b.role }}{% endwith %}{{ a is defined }}{% generation %}gen{% endgeneration %}",
    "{{ tools | tojson }}\n{{ tools | tojson(indent=2) }}\n{{ tools[0].function | tojson(indent=4) }}{{ tools }}",
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set s = messages[0].content %}{% else %}{% set rest = messages %}"
    "{% endif %}{{ rest | length }}{{ s is defined }}{{ (s or 'none')[:5] }}{% for m in rest[::-1] %}{{ m.role[0] }}{% endfor %}",
    "{{ messages | map(attribute='role') | unique | join('+') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} "
    "{{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='content') | first }}",
    "{% if messages[0].role != 'system' %}{{ raise_exception('a system message must come first, not ' ~ messages[0].role) }}{% endif %}ok",
    "{{ '<a href=\"x\">&' | e }}{{ messages | length | escape }}", "{{ missing }}{{ missing.x }}", "{% if %}", "{% for x in %}{% endfor %}", "{{ 1 / 0 }}", "{{ messages[7].role }}", "{{ messages[7] }}.",
    "{% for m in messages %}{{ m.tool_calls[0].function.name if m.tool_calls is defined and m.tool_calls else m.content | string }}{% endfor %}",
    "{{ dict([('role', messages | length), ['n', 1]], n=2) }}{{ namespace([('a', 3)], b=4).b }}", "{{ dict(messages) }}",
    *("{{ " + call + " }}" for call in [
        "'a' | upper(1)", "'abc'.strip('a', 'b')", "[1] | join(',', none, 5)", "'a'.find(sub='a')", "[{}] | map(attribute='a', zz=1) | list",
        "'a' | replace('a', 'b', old='c')", "'a' | replace('a')", "1 is defined(2)", "messages | map('upper', zz=1) | list", "range(1, stop=2)",
        "'a,b'.split(maxsplit=1, sep=',')", "'a' | replace(new='b', old='a')", "'a'.startswith(['a'])", "[1, 2, 1].index(1, 1)", "[1].index(1, 1)",
        "raise_exception('a', 'b')", "dict(a=1, a=2)", "[1, 2] | tojson(indent=-1)", "[1, {}] | tojson(indent='  ')", "[1] | tojson(separators=[';'])"]),
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}", "{% for m in messages %}{% if m.role == 'system' %}{% break %}{% endif %}x{% else %}none{% endfor %}",
    "{% for m in messages %}{% if loop.index < 3 %}{% continue %}{% endif %}x{% else %}none{% endfor %}",
    "  {% if true %}\n    kept\n  {% endif %}\n  end  \n\n", "a{%- if true -%}  b  {%- endif +%}\nc", "{{ 'a' -}}  \n b {{- 'c' }}\n", "x\n\n",
]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "now \"é\" <b>", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "n": {"default": 1.5}}, "required": ["city"], "strict": True, "x": None}}}]
CHATS = [
    [{"role": "system", "content": " Be kind.\n"}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo é漢😀"}],
    [{"role": "user", "content": ""}], [],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
     {"role": "tool", "content": "3"}],
]
VALUES = {"i": 7, "j": -3, "f": 2.5, "g": 1e-7, "t": "a b, é漢 \tc", "u": "Title case", "e": "", "l": [3, 1, 2], "k": ["b", "A", "c", "a"], "m": {"x": 1, "y": None},
          "n": None, "yes": True, "no": False, "o": [{"a": 1, "b": "q"}, {"a": 0, "b": "p"}, {"b": "r"}], "big": 123456, "s": "  pad\n", "r": "a\r\n\u00a0b\u2028c\x1c\u0085d\u200b\n"}
NUMBERS, TEXTS, LISTS = ["i", "j", "f", "g", "big", "3", "0", "2.0", "1_000", "yes"], ["t", "u", "e", "s", "r", "'x\\n\\'y'", '"é"'], ["l", "k", "o", "[1, 'two']", "[]"]
ANY = NUMBERS + TEXTS + LISTS + ["m", "n", "no", "nothing", "{'k': 1}", "(1, 2)"]


def bounds(r):
    return r.choice(["", ", 1", ", -3", ", 2, 5", ", 0, -1", ", none, 4", ", 3, 1", ", 0, 99"])


def number(r, depth):
    if depth == 0:
        return r.choice(NUMBERS)
    a, b = number(r, depth - 1), number(r, depth - 1)
    return r.choice([f"({a} {r.choice(['+', '-', '*', '//', '%', '/'])} {b})", f"-{r.choice(['i', 'f', 'j'])}", f"{some_list(r, depth - 1)} | length",
                     f"{text(r, depth - 1)}.count('a')", f"({a} | abs)", f"({text(r, depth - 1)} | int(3))", f"({a} | round(1))", f"({b} | float)",
                     f"{text(r, depth - 1)}.{r.choice(['find', 'rfind', 'count'])}({r.choice(TEXTS)}{bounds(r)})", f"({r.choice(['i', 'j'])} ** 2)", f"({LISTS[0]} | sum)", "(l | max)", "(k | min)"])


def text(r, depth):
    if depth == 0:
        return r.choice(TEXTS)
    a, b = text(r, depth - 1), text(r, depth - 1)
    word = r.choice(["' '", "','", "'a'", "'é'", "'zz'"])
    return r.choice([f"({a} + {b})", f"({a} ~ {anything(r, depth - 1)})", f"({a} | {r.choice(['trim', 'upper', 'lower', 'title', 'capitalize', 'string'])})",
                     f"{a}.{r.choice(['strip()', 'lstrip()', 'rstrip()', 'upper()', 'title()', 'capitalize()', 'lower()'])}", f"({a} | replace({word}, 'R'))",
                     f"{a}.replace({word}, 'R', 1)", f"{a}[{r.choice(['1:', ':2', '::2', '::-1', '-2:', '1:-1'])}]", f"{a}.split({word})[0]", f"{a}.split({word})[-1]",
                     f"({some_list(r, depth - 1)} | join({word}))", f"({a} | indent({r.choice(['2', '4, true', 'width=1'])}))", f"{a}.strip({word})", f"{a}.lstrip('\\n')",
                     f"({a} * {r.choice(['2', '0'])})", f"{a}.removeprefix({word})", f"('%s is %d' % ({a}, 4))", f"({anything(r, depth - 1)} | tojson)", f"{a}[0]",
                     f"('{{}}'.replace('{{}}', {a}))", f"({a} if {truth(r, depth - 1)} else {b})", f"({a} or {b})", f"({anything(r, depth - 1)} | string)"])


def some_list(r, depth):
    if depth == 0:
        return r.choice(LISTS)
    a = some_list(r, depth - 1)
    return r.choice([f"({a} + {r.choice(LISTS)})", f"{a}[{r.choice(['1:', ':1', '::-1'])}]", f"({a} | list)", f"({r.choice(['l', 'k'])} | sort)", "(k | sort(reverse=true))",
                     f"{text(r, depth - 1)}.split()", f"{text(r, depth - 1)}.splitlines()", f"({a} | reverse | list)", f"({a} | map('string') | list)", "(k | unique | list)",
                     "((l + k + [1.0, true, 'B', none, (1, 'x'), (1.0, 'x')]) | unique | list)",
                     "(o | map(attribute='a', default=9) | list)", f"(l | select('{r.choice(['odd', 'even'])}') | list)", f"(l | reject('gt', {number(r, 0)}) | list)",
                     "(o | selectattr('a') | list)", "(o | rejectattr('a', 'defined') | list)", "(m | dictsort)", "(m | items | list)", "m.keys() | list", "(m.values() | list)",
                     f"(range({r.choice(['3', '1, 4', '4, 0, -2'])}) | list)", f"(o | sort(attribute='b') | map(attribute='b') | list)", f"({text(r, depth - 1)} | list)"])


def truth(r, depth):
    if depth == 0:
        return r.choice(["yes", "no", "i > 3", "nothing is defined", "n is none", "t"])
    a, b = anything(r, depth - 1), anything(r, depth - 1)
    return r.choice([f"({a} == {b})", f"({a} != {b})", f"({number(r, depth - 1)} {r.choice(['<', '<=', '>', '>='])} {number(r, depth - 1)})", f"(not {a})",
                     f"({a} and {b})", f"({a} or {b})", f"({text(r, 0)} in {text(r, depth - 1)})", f"({a} not in {some_list(r, depth - 1)})", f"('x' in m)",
                     f"({a} is {r.choice(['', 'not '])}{r.choice(['string', 'none', 'number', 'mapping', 'iterable', 'defined', 'true', 'boolean', 'integer', 'float', 'sequence'])})",
                     f"{text(r, depth - 1)}.startswith({r.choice(TEXTS)}{bounds(r)})", f"{text(r, depth - 1)}.endswith(('x', 'c'))", f"(i is divisibleby {r.choice(['7', '2'])})", f"(1 < {r.choice(NUMBERS)} <= 7)"])


def anything(r, depth):
    if depth == 0:
        return r.choice(ANY)
    return r.choice([number, text, some_list, truth])(r, depth)


def block(r, depth):
    space = lambda: r.choice(["", " ", "\n", "\n  ", "  \n"])
    tag = lambda body: "{%" + r.choice(["", "-", "", "+"]) + f" {body} " + r.choice(["", "-", "", "+"]) + "%}"
    out = lambda: "{{" + r.choice(["", "-"]) + f" {anything(r, r.randint(0, 3))} " + r.choice(["", "-"]) + "}}"
    if depth == 0:
        return space() + r.choice([out(), "text", "{#- note -#}", "{# note #}", "x"]) + space()
    inner = "".join(block(r, depth - 1) for _ in range(r.randint(1, 2)))
    other = block(r, depth - 1)
    return space() + r.choice([
        tag(f"if {truth(r, 1)}") + inner + tag("else") + other + tag("endif"), tag(f"for x in {some_list(r, 1)}") + inner + "{{ x }}{{ loop.index }}" + tag("endfor"),
        tag(f"set v = {anything(r, 2)}") + inner + "{{ v }}", tag(f"if {truth(r, 0)}") + inner + tag(f"elif {truth(r, 1)}") + other + tag("endif"),
        tag("set w") + inner + tag("endset") + "{{ w | length }}", inner + other]) + space()


def jobs(cases):
    r = random.Random(7)
    for template in TEMPLATES:
        for chat in CHATS:
            yield template, {"messages": chat, "tools": TOOLS, "bos_token": "<s>", "add_generation_prompt": True}
    for i in range(cases):
        yield ("{{ " + anything(r, r.randint(1, 4)) + " }}" if i % 2 else "".join(block(r, 2) for _ in range(2))), VALUES


def render(template, values):
    try:
        return compile_template(template).render(**copy.deepcopy(values))
    except Exception as e:
        return e


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tool")
    p.add_argument("--cases", type=int, default=8000)
    a = p.parse_args()
    all_jobs = list(jobs(a.cases))
    lines = "".join(json.dumps({"template": t, "values": v}) + "\n" for t, v in all_jobs)
    answers = subprocess.run([a.tool], input=lines, capture_output=True, text=True, check=True).stdout.rstrip("\n").split("\n")
    assert len(answers) == len(all_jobs)
    equal = refused = wrong = 0
    for (template, values), line in zip(all_jobs, answers):
        ours, theirs = json.loads(line), render(template, values)
        if isinstance(theirs, Exception) and "error" in ours:
            refused += 1
        elif ours.get("text") == theirs:
            equal += 1
        else:
            wrong += 1
            if wrong <= 20:
                print(f"{template!r}\n  transformers: {theirs!r}\n  ours:         {ours}")
    print(f"jinja: {equal} texts as transformers renders them, {refused} refused by both, {wrong} differ")
    sys.exit(wrong > 0 or equal < len(all_jobs) / 3)


if __name__ == "__main__":
    main()
