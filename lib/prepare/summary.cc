#include <algorithm>

#include "base/text.h"
#include "config/value.h"
#include "prepare/prepare.h"

namespace neox {
namespace {

// The lines of a configuration that name the data.
std::string data_lines(const PrepareOptions& options, const PrepareResult& result) {
  const std::vector<std::string>& names = options.rules.keys;
  auto line = [&](const std::string& key, Content holds, size_t of) -> std::string {
    for (const PreparedDataset& data : result.datasets)
      if (data.holds == holds && of-- == 0)
        return concat("  ", key, ": [", yaml_text(data.prefix), "]\n");
    return "";
  };
  std::string text;
  if (options.rules.are_pairs()) {
    bool verdicts = options.chat && options.chat->learn == ChatOptions::Learn::kVerdict;
    text += concat("  train_impl: ", verdicts ? "rm" : "dpo",
                   "\n  dataset_impl: pairwise\n  pack_impl: unpacked\n");
    for (auto [side, key] : {std::pair{"pos", "chosen"}, std::pair{"neg", "rejected"}}) {
      auto at = static_cast<size_t>(std::ranges::find(names, key) - names.begin());
      text += line(concat(side, "_train_data_paths"), Content::kTokens, at) +
              line(concat(side, "_train_label_data_paths"), Content::kLabels, at);
    }
    return text;
  }
  std::string labels = line("train_label_data_paths", Content::kLabels, 0),
              rewards = line("train_reward_data_paths", Content::kRewards, 0);
  if (labels.empty() && rewards.empty())
    return concat("  data_path: ", yaml_text(result.datasets.front().prefix), "\n");
  if (!rewards.empty()) text += "  train_impl: kto\n  pack_impl: unpacked\n";
  return text + line("train_data_paths", Content::kTokens, 0) + labels + rewards;
}

}  // namespace

std::string summary(const PrepareOptions& options, const PrepareResult& result) {
  auto several = [](int64_t n, const char* noun) {
    return concat(with_commas(n), " ", noun, n == 1 ? "" : "s");
  };
  std::string text;
  bool at_limit = false;
  for (const PreparedDataset& data : result.datasets) {
    text += concat(data.prefix, ".{bin,idx}: ", several(data.documents, "document"), ", ",
                   several(data.tokens, data.holds == Content::kRewards ? "reward" : "token"), ", ",
                   human_bytes(static_cast<double>(data.bytes)), "\n");
    at_limit |= data.documents >= options.max_documents.value_or(INT64_MAX);
  }
  auto bytes = static_cast<double>(result.text_bytes), rate = bytes / result.seconds;
  text += concat(human_bytes(bytes), " of text in ", human_duration(result.seconds), ", ",
                 human_bytes(rate), "/s\n");
  if (at_limit) text += "--max-documents is reached: what follows in the input is left out\n";
  if (result.empty)
    text += concat("left out: ", several(result.empty, "empty document"),
                   options.rules.are_pairs() ? " and pairs of which an answer is empty" : "", "\n");
  for (const PreparedDataset& data : result.datasets)
    if (int64_t without = result.documents - data.documents; without > 0 && !at_limit)
      text += concat("left out of ", data.prefix, ": ", several(without, "document"),
                     " without text for it, so that documents of equal number are not the same\n");
  if (result.skipped) text += concat("left out: ", several(result.skipped, "bad line"), "\n");
  if (result.repaired)
    text += concat(several(result.repaired, "document"),
                   " had bytes that are not UTF-8, or lone surrogates; they were replaced\n");
  const TokenizerFile& tokenizer = options.tokenizer;
  text += "\nTo train on it, put into the configuration:\n";
  text += data_lines(options, result);
  text += concat("  tokenizer_type: ", tokenizer.type, "\n");
  for (auto [key, file] :
       {std::pair{"vocab_file", tokenizer.vocab}, {"merge_file", tokenizer.merges}})
    if (!file.empty()) text += concat("  ", key, ": ", yaml_text(file), "\n");
  return text;
}

}  // namespace neox
