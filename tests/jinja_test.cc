// Templates in Jinja: texts that transformers 5.23 (Jinja2 3.1.6) renders; tests/oracle/jinja.py
// compares many more.
#include "jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data_files.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string rendered(const std::string& source, const std::string& values = "{}") {
  auto json = nlohmann::ordered_json::parse(values);
  return jinja::Template(source, "t.jinja").render(*jinja::value_of(json).map());
}

std::string refusal(const std::string& source, const std::string& values = "{}") {
  return error_of([&] { rendered(source, values); });
}

TEST(Jinja, WhiteSpaceAroundTags) {
  EXPECT_EQ(rendered("  {% if true %}\n    kept\n  {% endif %}\n  end\n\n"), "    kept\n  end\n");
  EXPECT_EQ(rendered("a {%- if true -%}  b  {%- endif +%}\nc"), "ab\nc");
  EXPECT_EQ(rendered("x\n  {{ 1 }}\n  {{- 2 -}}  \n y"), "x\n  12y");
  EXPECT_EQ(rendered("a\n  {# note #}\nb {#- note -#} c"), "a\nbc");
  EXPECT_EQ(rendered("{% raw %}{{ x }}{% endraw %}\r\n!"), "{{ x }}!");
  EXPECT_EQ(rendered("  {%+ if true %}\nx{% endif %}"), "  x");
}

TEST(Jinja, NamesOfBlocks) {
  EXPECT_EQ(
      rendered("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"),
      "231");
  EXPECT_EQ(rendered("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}"
                     "{% endfor %}{{ ns.n }}"),
            "3");
  EXPECT_EQ(
      rendered("{% macro f(a, b='z') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(b=2, a=3) }}"),
      "1z32");
  EXPECT_EQ(rendered("{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% else %}none{% endfor %}"
                     "{% for i in [] %}{% else %}none{% endfor %}"),
            "x1none");
  EXPECT_EQ(rendered("{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}in{% endcall %}"),
            "<in>");
}

// As in Jinja2, whose marker is cleared at the end of the body.
TEST(Jinja, ElseOfALoopWhereNoItemRanToTheEnd) {
  EXPECT_EQ(rendered("{% for i in [1, 2] %}{{ i }}{% break %}{% else %}none{% endfor %}"), "1none");
  EXPECT_EQ(rendered("{% for i in [1, 2] %}{{ i }}{% continue %}{% else %}none{% endfor %}"),
            "12none");
  EXPECT_EQ(rendered("{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% else %}"
                     "none{% endfor %}"),
            "1");
}

TEST(Jinja, ValuesAreThoseOfPython) {
  EXPECT_EQ(rendered("{{ [1, 2.0, 'a', none, true, {'k': (1,)}] }}"),
            "[1, 2.0, 'a', None, True, {'k': (1,)}]");
  EXPECT_EQ(rendered("{{ 1e-7 }} {{ 1e22 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 7 / 2 }}"),
            "1e-07 1e+22 -4 2 3.5");
  EXPECT_EQ(
      rendered("{{ t[::-1] }} {{ t[1:3] }} {{ t | length }} {{ t | upper }}", R"({"t": "aé漢"})"),
      "漢éa é漢 3 AÉ漢");
  EXPECT_EQ(
      rendered("{{ m | tojson }} {{ m | tojson(indent=1) }}", R"({"m": {"b": "é\"", "a": [1.5]}})"),
      "{\"b\": \"é\\\"\", \"a\": [1.5]} {\n \"b\": \"é\\\"\",\n \"a\": [\n  1.5\n ]\n}");
  EXPECT_EQ(
      rendered("{{ a or 'x' }}{{ a and 'y' }}{{ 'q' if b }}|{{ b is defined }}{{ 1 < 2 < 3 }}",
               R"({"a": 0})"),
      "x0|FalseTrue");
}

TEST(Jinja, SaysWhereItCannotGoOn) {
  EXPECT_EQ(refusal("a\n{% if x %}\nb"),
            "64: t.jinja:3: {% endif %} is missing, of what began in line 3");
  EXPECT_EQ(refusal("\n{{ x | nonsense }}"), "64: t.jinja:2: there is no filter 'nonsense'");
  EXPECT_THAT(refusal("{{ (1, 2 }}"), StartsWith("64: t.jinja:1: "));
  EXPECT_THAT(refusal("{% include 'x' %}"), HasSubstr("{% include %} is not known"));
  EXPECT_EQ(refusal("x\n{% for m in l %}\n{{ m.a.b }}{% endfor %}", R"({"l": [{}]})"),
            "74: t.jinja:3: 'dict object' has no attribute 'a'");
  EXPECT_EQ(refusal("{{ raise_exception('say ' ~ 2) }}"), "74: t.jinja: say 2");
  EXPECT_THAT(refusal("{{ l.append(1) }}", R"({"l": []})"), HasSubstr("append() is not allowed"));
}

// What is given beyond what a function takes is an error, as in Python, and not left out.
TEST(Jinja, FunctionsTakeWhatPythonsTake) {
  auto says = [](const char* call, const char* what) {
    EXPECT_EQ(refusal(concat("{{ ", call, " }}")), concat("74: t.jinja:1: ", what)) << call;
  };
  says("'a' | upper(1, 2)", "upper() takes 0 values at most, but 2 are given");
  says("'abc'.strip('a', 'b')", "strip() takes 1 value at most, but 2 are given");
  says("[1] | join(',', none, 5)", "join() takes 2 values at most, but 3 are given");
  says("'a'.find(sub='a')", "find() takes nothing by the name sub");
  says("[] | map(attribute='a', zz=1)", "map() takes nothing by the name zz");
  says("['a'] | map('upper', zz=1)", "upper() takes nothing by the name zz");
  says("'1' | int(base=2)", "int() takes nothing by the name base");
  says("'a' | replace('a', 'b', old='c')", "replace() is given its old twice");
  says("'a' | replace('a')", "replace() lacks its new");
  says("'a'.startswith()", "startswith() lacks its prefix");
  says("1 is defined(2)", "defined() takes 0 values at most, but 1 is given");
  says("[1] | select('eq') | list", "eq() lacks its other");
  says("raise_exception()", "raise_exception() lacks its message");
  says("range(1, stop=2)", "range() takes nothing by the name stop");
  says("'a'.startswith(['a'])", "a value of type list stands where a str must");
  says("[] | tojson(separators=[','])", "tojson() takes two separators");
  EXPECT_THAT(refusal("{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}"),
              HasSubstr("macro f has no parameter a without a value"));
  EXPECT_THAT(refusal("{{ dict(a=1, a=2) }}"), HasSubstr("a call gives its a twice"));
  EXPECT_EQ(rendered("{{ 'a' | replace(new='b', old='a') }}{{ 'a,b'.split(maxsplit=1, sep=',') }}"),
            "b['a', 'b']");
}

TEST(Jinja, PartsOfTextsAndListsAreLookedThrough) {
  EXPECT_EQ(rendered("{{ t.find('</t>', 3) }} {{ t.rfind('é', 0, -3) }} {{ t.find('c', 11) }} "
                     "{{ 'abcabc'.count('a', 1) }} {{ 'abc'.count('', 1) }} {{ ''.find('', 1) }}",
                     R"({"t": "é</t>é</t>c"})"),
            "6 5 -1 1 3 -1");
  EXPECT_EQ(rendered("{{ 'xab'.startswith('a', 1) }} {{ 'xab'.endswith(('b', 'a'), 0, -1) }} "
                     "{{ 'a'.startswith('', 2) }} {{ [1, 2, 1].index(1, 1) }}"),
            "True True False 2");
  EXPECT_THAT(refusal("{{ [1, 2].index(1, 1) }}"), HasSubstr("the list has no such item"));
}

TEST(Jinja, MapsAreMadeOfMapsAndOfPairs) {
  EXPECT_EQ(rendered("{{ dict([('role', 'x'), ['n', 1]], n=2) }} {{ dict({'a': 1}) }} {{ dict() }}"
                     "{{ namespace([('a', 3)]).a }}"),
            "{'role': 'x', 'n': 2} {'a': 1} {}3");
  EXPECT_THAT(refusal("{{ dict(1) }}"), HasSubstr("a value of type int is no map, nor pairs"));
  EXPECT_THAT(refusal("{{ dict([(1, 2, 3)]) }}"), HasSubstr("made of pairs, not of tuple"));
  EXPECT_THAT(refusal("{{ dict(x) }}"), HasSubstr("'x' is undefined"));
}

TEST(Jinja, JsonIsIndentedByATextOrBlanks) {
  EXPECT_EQ(rendered("{{ [1] | tojson(indent=-1) }}{{ [1] | tojson(indent='--') }}"
                     "{{ [1, 2] | tojson(none, none, (';', ':')) }}"),
            "[\n1\n][\n--1\n][1;2]");
}

TEST(Jinja, LinesEndAsPythonsDo) {
  const char* values = R"({"t": "a\r\nb\u2028\u0085\u000b\u001c\u00c5\u2027\n"})";
  EXPECT_EQ(rendered("{{ t | indent(1) }}|{{ '\\r' | indent(1) }}|{{ '' | indent(1, first=true) }}",
                     values),
            "a\n b\n\n\n\n Å\u2027\n|| ");
  EXPECT_EQ(rendered("{{ t.splitlines() }} {{ t.splitlines(true) | length }} {{ ''.splitlines() }}",
                     values),
            "['a', 'b', '', '', '', 'Å‧'] 6 []");
  EXPECT_EQ(rendered("{{ t.splitlines(true) | join == t }}", values), "True");
}

TEST(Jinja, WordsAreBetweenPythonsSpaces) {
  EXPECT_EQ(rendered("{{ t | title }}", R"({"t": "a\u00a0bC\u2028d\u001ce-f"})"),
            "A\u00a0Bc\u2028D\u001cE-F");
}

TEST(Jinja, WhatPythonDoesNotPrintStandsByItsNumber) {
  EXPECT_EQ(
      rendered(
          "{{ [t] }}{{ {t[:1]: 1} }}",
          R"({"t": "\u00a0\u00adé\u0085\u007f\u200b\u3000\ue000\ud83d\ude00\udb40\udc01 \u0378\t"})"),
      "['\\xa0\\xadé\\x85\\x7f\\u200b\\u3000\\ue000😀\\U000e0001 \\u0378\\t']{'\\xa0': 1}");
}

TEST(Jinja, AnEmptyTextStandsAroundEachCharacter) {
  EXPECT_EQ(rendered("{{ 'aé漢'.replace('', '-') }} {{ 'abc' | replace('', 'x', 2) }} "
                     "{{ ''.replace('', 'x') }} {{ 'abc'.replace('', 'x', 0) }}"),
            "-a-é-漢- xaxbc x abc");
}

TEST(Jinja, SlicesTakeStepsOfAnySize) {
  EXPECT_EQ(rendered("{{ 'abc'[1::9223372036854775807] }}{{ 'abc'[1::-9223372036854775807] }}"
                     "{{ [1, 2][::9223372036854775807] }}"),
            "bb[1]");
}

// Whatever a file says, it ends.
TEST(Jinja, HasBounds) {
  EXPECT_THAT(refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("without end"));
  EXPECT_THAT(refusal("{{ 'x' * 99999999999 }}"), HasSubstr("too long"));
  EXPECT_THAT(refusal("{% for i in range(100001) %}{% endfor %}"), HasSubstr("more than 100000"));
  EXPECT_THAT(refusal("{{ 9223372036854775807 + 1 }}"), HasSubstr("too large"));
  EXPECT_THAT(refusal("{{ a.9223372036854775808 }}"),
              HasSubstr("9223372036854775808 is too large"));
  EXPECT_THAT(refusal("{{ " + std::string(1000, '(')), HasSubstr("no end"));
  EXPECT_THAT(refusal("{{ " + std::string(300, '[') + std::string(300, ']') + " }}"),
              HasSubstr("too deep"));
  std::string sum = "1";
  for (int i = 0; i < 2400; ++i) sum += " + -1";
  EXPECT_THAT(refusal("{{ " + sum + sum + " }}"), HasSubstr("too long"));
  EXPECT_EQ(rendered("{{ " + sum.substr(0, 1 + 5 * 1600) + " }}"), "-1599");
  EXPECT_THAT(refusal("{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}"),
              HasSubstr("64 MiB"));
  const std::string round =
      "{% set ns = namespace() %}{% set ns.a = [ns] %}"
      "{% set other = namespace() %}{% set other.a = [other] %}";
  for (const char* use : {"{{ ns }}", "{{ ns | tojson }}", "{{ ns == other }}"})
    EXPECT_THAT(refusal(round + use), HasSubstr("nested too deep")) << use;
  EXPECT_EQ(rendered(round + "{{ ns == ns }}"), "True");
  EXPECT_THAT(refusal("{% for i in [1] %}{% set loop.x = loop %}{% endfor %}"),
              HasSubstr("'loop' is no namespace"));
  std::string deep, inverted;
  for (int i = 0; i < 10000; ++i) deep += "{% if 1 %}";
  EXPECT_THAT(refusal(deep), HasSubstr("too deep"));
  for (int i = 0; i < 4000; ++i) inverted += "not ";
  EXPECT_THAT(refusal("{{ " + inverted + "1 }}"), HasSubstr("too deep"));
  EXPECT_THAT(refusal("{{ " + std::string(4000, '-') + "1 }}"), HasSubstr("too deep"));
}

// Lists and maps within each other are taken apart one in the other, however they came to be so.
TEST(Jinja, ValuesAreNestedToABound) {
  auto nested = [](const std::string& step, int times) {
    return concat("{% set ns = namespace(x=[]) %}{% for i in range(", times,
                  ") %}{% set ns.x = ", step, " %}{% endfor %}");
  };
  for (const char* step : {"[ns.x]", "(ns.x,)", "{'a': ns.x}", "dict(a=ns.x)", "[ns.x].index",
                           "{'a': ns.x}.get", "[ns.x] + [1]", "{'a': ns.x} | items"})
    EXPECT_THAT(refusal(nested(step, 99999)), HasSubstr("nested too deep")) << step;
  EXPECT_EQ(rendered(nested("[ns.x]", 599) + "{{ ns.x | tojson | length }}"), "1200");
  // Namespaces go away for themselves.
  EXPECT_EQ(rendered(nested("[namespace(x=ns.x)]", 99999) + "{{ ns.x | length }}"), "1");
}

TEST(Jinja, TextsAreOfABoundedSize) {
  const std::string large = "{% set x = ('x' * 1000) * 40000 %}";
  const std::string of_much = "{% set x = 'x' * 1000000 %}{% set n = [1] * 70 %}";
  auto refused = [](const std::string& source) {
    EXPECT_THAT(refusal(source), HasSubstr("the text is too long: more than 64 MiB")) << source;
  };
  for (const char* made : {"{{ (x ~ x) | length }}", "{{ (x + x) | length }}"})
    refused(large + made);
  for (const char* made :
       {"{{ n | join(x) | length }}", "{{ x.join('n' * 70) | length }}",
        "{{ ('a' * 70).replace('a', x) | length }}", "{{ ('a' * 70) | replace('', x) | length }}",
        "{{ ('%s' * 3 % (x * 30, x * 30, x * 30)) | length }}", "{{ ([x] * 70) | string }}",
        "{{ ([x] * 70) | tojson }}", "{{ ('\n' * 70) | indent(x, blank=true) | length }}",
        "{{ n | tojson(indent=9223372036854775807) }}", "{{ 'x' * 9223372036854775807 }}"})
    refused(of_much + made);
  // What stands in several places of a value.
  const std::string twice =
      "{% set ns = namespace(x='x' * 99999) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  for (const char* made : {"{{ ns.x }}", "{{ ns.x | tojson }}"})
    EXPECT_THAT(refusal(twice + made), HasSubstr("more than 64 MiB")) << made;
}

// Whatever it goes through: blocks, macros, comparisons, texts.
TEST(Jinja, TakesABoundedTime) {
  const std::string twice =
      "{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}{% for i in range(60) %}"
      "{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}";
  const std::string texts = "{% set x = 'x' * 9999999 %}{% set y = x[1:] ~ 'y' %}";
  const std::string often = "{% for i in range(99999) %}", end = "{% endfor %}";
  const std::vector<std::string> sources = {
      often + often + end + end,
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
      twice + "{{ a.x == b.x }}",
      "{% set l = range(99999) | list %}{{ l | select('in', l) | list | length }}",
      "{% set l = range(99999) | list %}" + often + "{% set m = l[1:] %}" + end,
      texts + often + "{{ y in x }}{{ x.count('xy') }}" + end,
      texts + "{{ x.strip(y ~ 'x') }}"};
  for (const std::string& source : sources)
    EXPECT_THAT(refusal(source),
                AllOf(StartsWith("74: t.jinja:1: "), HasSubstr("takes more than 10,000,000 steps")))
        << source;
}

// In a time that grows with the list, but for what Python's set refuses.
TEST(Jinja, UniqueValuesOfManyAreFoundAtOnce) {
  EXPECT_EQ(rendered("{{ [1, 1.0, true, 'a', 'A', none, 0, none, false, (1, 'x'), (1.0, 'x'), "
                     "(1, 'X'), ((2,),), ((2,),), '1'] | unique | list }}"),
            "[1, 'a', None, 0, (1, 'x'), (1, 'X'), ((2,),), '1']");
  EXPECT_EQ(rendered("{{ [[1], [1.0], (1,), [2], {'a': 1, 'b': 2}, {'b': 2, 'a': 1.0}, {'a': 1}] | "
                     "unique | list }}"),
            "[[1], (1,), [2], {'a': 1, 'b': 2}, {'a': 1}]");
  EXPECT_EQ(rendered("{% set l = range(50000) | list %}{{ (l + l) | unique | list | length }} "
                     "{{ (l + l) | map('string') | unique | list | length }} "
                     "{{ dict(a=1, b=1).items() | unique(attribute=1) | list }}"),
            "50000 50000 [('a', 1)]");
  nlohmann::json maps;
  for (int i = 0; i < 5000; ++i) maps.push_back({{"a", i}});
  EXPECT_THAT(refusal("{{ l | unique | list | length }}", nlohmann::json{{"l", maps}}.dump()),
              HasSubstr("takes more than 10,000,000 steps"));
}

TEST(Jinja, TakesABoundedMemory) {
  const std::string large = "{% set x = 'x' * 9999999 %}{% set ns = namespace(x=[]) %}",
                    often = "{% for i in range(9999) %}", end = "{% endfor %}";
  const std::string nested = "{% for i in range(400) %}{% set ns.x = [x, ns.x] %}{% endfor %}";
  const std::vector<std::string> sources = {
      large + often + "{% set ns.x = ns.x + [x ~ i] %}" + end,
      large + often + "{% set ns.x = ns.x + [{x ~ i: 1}] %}" + end,
      large + "{% macro f(n) %}{{ x }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
      large + nested + "{{ ns.x }}",
      "{{ ([1] * 60000000) | length }}",
      "{{ ('x' * 60000000) | list | length }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(26) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}"};
  for (const std::string& source : sources)
    EXPECT_THAT(refusal(source), AllOf(StartsWith("74: t.jinja:1: "),
                                       HasSubstr("values take more than 256 MB at once")))
        << source;
  // What goes is no longer counted, nor what is seen in many places.
  EXPECT_EQ(rendered(large + "{% for i in range(30) %}{% set y = x ~ i %}{% set ns.x = [x, x, y] %}"
                             "{% endfor %}{{ ns.x | length }}"),
            "3");
  // What is missing is said by the beginning of its name.
  EXPECT_THAT(refusal(large + "{{ {}[x].a }}").size(), ::testing::Lt(200));
}

}  // namespace
}  // namespace neox
