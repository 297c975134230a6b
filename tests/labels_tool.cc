// What neox-prepare-data makes of documents on stdin, for tests/oracle/chat.py: one JSON value on
// each line, a text, a conversation, or {"chat": a conversation, "tools": of its model}; on each
// line of stdout {"tokens": [...], "labels": [...]}, or {"error": "..."}. Takes the options of
// neox-prepare-data.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "prepare/document_encoder.h"
#include "prepare/prepare_options.h"

namespace {

std::vector<neox::ChatTurn> turns_of(const std::string& line, const neox::DocumentRules& rules) {
  if (!line.starts_with('{')) return rules.turns(line, "");
  auto both = nlohmann::ordered_json::parse(line);
  return rules.turns(both["chat"].dump(), both["tools"].dump());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace neox;
  return run_program("labels_tool", [&] {
    Program program = prepare_program();
    if (!program.parse(canonical_arguments({argv + 1, argv + argc}))) return 0;
    PrepareOptions options = read_prepare_options(program);
    Tokenizer tokenizer = Tokenizer::from_json(options.tokenizer.vocab);
    DocumentEncoder encoder(options, tokenizer);
    for (std::string line; std::getline(std::cin, line);) {
      std::vector<int32_t> tokens, labels;
      nlohmann::json out;
      try {
        if (options.chat)
          encoder.encode_chat(turns_of(line, options.rules), tokens, labels);
        else
          encoder.encode(nlohmann::json::parse(line).get<std::string>(),
                         DocumentEncoder::Part::kLast, tokens, labels);
        out = {{"tokens", tokens}, {"labels", labels}};
      } catch (const Error& e) { out = {{"error", e.what()}}; }
      std::cout << out.dump() << "\n";
    }
    return 0;
  });
}
