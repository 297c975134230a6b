// Parts of the extraction of articles: characters, braces, expressions, lines.
#include <gtest/gtest.h>

#include "wiki/braces.h"
#include "wiki/expression.h"
#include "wiki/links.h"
#include "wiki/parser_functions.h"
#include "wiki/prose.h"
#include "wiki/tags.h"
#include "wiki/text.h"

namespace neox::wiki {
namespace {

std::string value_of(std::string_view expression) {
  std::optional<Number> value = evaluate(expression);
  return value ? to_string(*value) : "error";
}

TEST(WikiExpression, HasPythonsNumbers) {
  for (auto [expression, value] : std::vector<std::pair<std::string, std::string>>{
           {"1 + 2 * 3", "7"},
           {"7 / 2", "3.5"},
           {"6 div 2", "3.0"},
           {"-7 mod 3", "2"},
           {"2 ** -1", "0.5"},
           {"1e16 * 1.0", "1e+16"},
           {"1/3", "0.3333333333333333"},
           {"0.1 + 0.2", "0.30000000000000004"},
           {"2.675 round 2", "2.67"},
           {"1250 round -2", "1200"},
           {"2.5 round 0", "2.0"},
           {"trunc (-7.9)", "-7"},
           {"not 0", "1"},
           {"1 = 1.0", "1"},
           {"3 > 2 and 5", "5"},
           {"0 or 0.0", "0"},
           {"0 and x", "0"},
           {"-2 ** 2", "-4"},
           {"9223372036854775807 + 1", "error"},
           {"9223372036854775807 round -1", "error"},
           {"0 - 9223372036854775807 round -18", "-9000000000000000000"},
           {"5 round (0-9223372036854775807-1)", "0"},
           {"-15 round -1", "-20"},
           {"-25 round -1", "-20"}}) {
    EXPECT_EQ(value_of(expression), value) << expression;
  }
}

TEST(WikiExpression, RefusesWhatPythonRefuses) {
  for (std::string_view expression :
       {"", "1 +", "(1", "1)", "abc", "1/0", "007", "1 2", "1 < 2 < 3", "2 ^ 3", "1 = = 1",
        "0 ** -1", "3.5()", "$", "5mod 3", "1._5", "1._5e2"}) {
    EXPECT_EQ(value_of(expression), "error") << expression;
  }
  EXPECT_EQ(value_of(std::string(100'000, '(')), "error");
  EXPECT_EQ(value_of(std::string(100'000, '-') + "1"), "error");
}

TEST(WikiFunctions, GiveNothingWithTooFewArguments) {
  std::vector<std::string_view> one = {"x"};
  for (std::string_view name : {"#if", "#ifeq", "padleft", "#invoke", "#unknown"}) {
    EXPECT_EQ(call_parser_function(name, one, nullptr), "") << name;
  }
  std::vector<std::string_view> long_one = {"a", "1000000000", "b"};
  EXPECT_EQ(call_parser_function("padleft", long_one, nullptr), "");
}

// As Python's int() and float().
TEST(WikiFunctions, ReadDigitsOfAllScripts) {
  auto called = [](std::string_view name, std::vector<std::string_view> arguments) {
    return call_parser_function(name, arguments, nullptr);
  };
  EXPECT_EQ(called("formatnum", {"12345٥"}), "123,455");
  EXPECT_EQ(called("#sub", {"abcdefgh", "1", "५"}), "bcdef");
  EXPECT_EQ(called("padleft", {"a", "𝟓", "x"}), "xxxxa");
  EXPECT_EQ(called("formatnum", {"二"}), "二");  // a number, and no digit
}

TEST(WikiFunctions, ChangeTheCaseOfAllScripts) {
  EXPECT_EQ(to_upper("straße ﬁn élan"), "STRASSE FIN ÉLAN");
  EXPECT_EQ(to_lower("ΣΑΣ ΑΣ.Α ÄÖ İ"), "σας ασ.α äö i̇");
  EXPECT_EQ(upper_first("река"), "Река");
}

TEST(WikiBraces, BelongToParametersWhereThreeClose) {
  auto parts = [](std::string_view text, Braces which) {
    std::string out;
    for (Span s : match_braces(text, which)) {
      out += std::string(text.substr(s.begin, s.end - s.begin)) + ";";
    }
    return out;
  };
  EXPECT_EQ(parts("a{{b}}c{{{d}}}", Braces::kCalls), "{{b}};{{{d}}};");
  EXPECT_EQ(parts("{{{{a}}}}", Braces::kParameters), "{{{a}}};");
  EXPECT_EQ(parts("{{{{{a}}} }}", Braces::kParameters), "{{{a}}};");
  EXPECT_EQ(parts("{{a", Braces::kCalls), "");
  EXPECT_EQ(split_parts("a|[[b|c]]|{{d|e}}f|{{{g|h}}}").size(), 4);
  EXPECT_EQ(split_parts("").size(), 1);
}

TEST(WikiLinks, BecomeTheirLabels) {
  EXPECT_EQ(replace_internal_links("[[a]]s [[b|c]] [[File:x|y [[z]]]] [[:w:q]] [[d"),
            "as c  :w:q [[d");
  EXPECT_EQ(replace_internal_links("[[[[a]]]] [[[b]]"), "a b");
  EXPECT_EQ(replace_external_links("[http://a b c] [x] [http://a\nb] [http://a"),
            "b c [x] b [http://a");
  EXPECT_EQ(replace_external_links("[http://a http://b/c.png]"), "");
}

TEST(WikiTags, MayHoldQuotedSigns) {
  std::string text = "a<ref name=\"x > y\" />b<ref>c</ref>d<br>e<!-- f --><b>g</b>";
  replace_break_tags(text);
  drop_tags(text);
  drop_elements(text);
  EXPECT_EQ(text, "abd eg");
}

TEST(WikiTags, OfTablesEncloseEachOther) {
  std::string text = "a{|b{|c|}d|}e{|f|}g{|h";
  drop_tables(text);
  EXPECT_EQ(text, "aeg{|h");
}

TEST(WikiProse, HasTitlesOfSectionsWithLines) {
  EXPECT_EQ(prose_lines("== A ==\n=== B ===\ntext\n== C ==\n* item\n== D? ==\nmore\n| x\n(y)\n:z"),
            "A.\nB.\ntext\nD?\nmore\nz");
}

TEST(WikiProse, LosesSpacesAtPunctuation) {
  std::string text = "a , b ( c ) \t d.....\n,;\n« e » <<f>> ,, g,.";
  tidy_punctuation(text);
  EXPECT_EQ(text, "a, b (c) d...\n«e» «f», g.");
}

TEST(WikiText, ResolvesReferencesOnce) {
  EXPECT_EQ(unescape("&lt;&amp;lt;&#65;&#x42;&#X43;&nosuch;&#1114112;&eacute;&"),
            "<&lt;AB&#X43;&nosuch;&#1114112;é&");
}

}  // namespace
}  // namespace neox::wiki
