#include "dataset/command_options.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace neox {

std::vector<std::string> prefixes(const Program& program) {
  check_usage(program.has("dataset"), "no dataset is named: give its path without .bin and .idx");
  auto names = program.get<std::vector<std::string>>("dataset");
  std::vector<std::string> found;
  for (std::string name : names) {
    bool bin = name.ends_with(".bin"), idx = name.ends_with(".idx");
    if (bin || idx) name.resize(name.size() - 4);
    if (idx && std::ranges::find(names, name + ".bin") != names.end()) continue;
    found.push_back(name);
  }
  return found;
}

std::string one_prefix(const Program& program) {
  auto names = prefixes(program);
  check_usage(names.size() == 1, "one dataset is wanted, but ", names.size(),
              " are named: ", join(names, ", "));
  return names.front();
}

std::string output_prefix(const Program& program) {
  check_usage(program.has("output-prefix"),
              "--output-prefix is missing: the path of the new dataset without .bin and .idx");
  return program.get<std::string>("output-prefix");
}

void add_dataset(Program& program) {
  program.options().add_options()("dataset", texts("PREFIX"),
                                  "path without .bin and .idx (--dataset may be left out)");
  program.positional("dataset", -1);
}

void add_tokenizer(Program& program) {
  auto add = program.options().add_options();
  add("vocab-file,v", text("FILE"),
      "tokenizer.json, GPT-2's vocab.json, a tokenizer.model, or tiktoken's ranks");
  add("merge-file,m", text("FILE"), "GPT-2's merges.txt");
}

std::unique_ptr<Tokenizer> read_tokenizer(const Program& program) {
  auto vocab = program.given<std::string>("vocab-file");
  auto merges = program.given<std::string>("merge-file");
  check_usage(vocab || !merges, "--merge-file needs --vocab-file beside it");
  if (!vocab) return nullptr;
  const char* type = merges                          ? "GPT2BPETokenizer"
                     : vocab->ends_with(".model")    ? "SPMTokenizer"
                     : vocab->ends_with(".tiktoken") ? "TiktokenTokenizer"
                                                     : "HFTokenizer";
  return std::make_unique<Tokenizer>(Tokenizer::of_type(type, *vocab, merges.value_or("")));
}

std::optional<int64_t> end_of_document(const Program& program, const Tokenizer* tokenizer) {
  if (auto id = program.given<int64_t>("eod")) return id;
  if (tokenizer && tokenizer->has_end_of_document()) return tokenizer->end_of_document();
  return std::nullopt;
}

std::string amounts(const Totals& totals) {
  auto counted = [](int64_t n, const char* noun) {
    return concat(with_commas(n), " ", noun, n == 1 ? ", " : "s, ");
  };
  return counted(totals.documents, "document") + counted(totals.sequences, "sequence") +
         counted(totals.tokens, "token") + human_bytes(static_cast<double>(totals.bytes));
}

}  // namespace neox
