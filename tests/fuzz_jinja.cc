// Coverage-guided: any bytes as a template are refused, or write a conversation, or say what they
// cannot. Built and run by fuzz.sh with libFuzzer.
// Words: "{%" "%}" "{{" "}}" "{#" "#}" "{%-" "-%}" "if " "elif " "else" "endif" "for " " in "
// Words: "endfor" "set " "endset" "macro " "endmacro" "call " "endcall" "filter " "endfilter"
// Words: "with " "endwith" "raw" "endraw" "generation" "endgeneration" "break" "continue" "not "
// Words: "and " "or " "is " "loop." "namespace(" "messages" "range(" "dict(" "raise_exception("
// Words: "strftime_now(" "tojson" "|join" "|map(" "|select(" "|sort" "|length" ".split("
// Words: ".replace(" "[::-1]" "**" "//" "~"
#include "base/error.h"
#include "jinja/template.h"

namespace {

using namespace neox;

const jinja::Value& values() {
  static const jinja::Value all = jinja::value_of(nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": " S\n"},
                 {"role": "user", "content": [{"type": "text", "text": "Ä'\"<"}], "n": 1.5},
                 {"role": "assistant", "content": "a</think>b", "tool_calls": [{"id": 7}]}],
    "tools": null, "documents": [[], {}], "add_generation_prompt": true, "bos_token": "<s>",
    "n": 9223372036854775807, "x": -1e300})"));
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    std::string source(reinterpret_cast<const char*>(data), size);
    jinja::Template(std::move(source), "fuzz.jinja").render(*values().map());
  } catch (const Error&) {}
  return 0;
}
