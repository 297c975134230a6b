#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "tokenizer/bpe_merger.h"
#include "tokenizer/bpe_words.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

void check_config(const BpeTrainerConfig& config) {
  const std::vector<std::string>& special = config.special_tokens;
  auto least = static_cast<int64_t>(special.size()) + 256;
  check_usage(config.vocab_size >= least && config.vocab_size <= INT32_MAX, "a vocabulary of ",
              config.vocab_size, " entries: ", special.size(),
              " special tokens and the 256 bytes need at least ", least);
  std::string storage;
  for (auto token = special.begin(); token != special.end(); ++token) {
    check_usage(!token->empty(), "a special token is empty");
    check_usage(unicode::repair(*token, storage) == *token, "the special token \"", storage,
                "\" is not UTF-8");
    check_usage(std::find(special.begin(), token, *token) == token, "the special token \"", *token,
                "\" is given twice");
  }
}

using nlohmann::json;

std::string quoted(const std::string& text) { return json(text).dump(); }

std::string added_token(size_t id, const std::string& content) {
  return concat(
      "    {\n      \"id\": ", id, ",\n      \"content\": ", quoted(content),
      ",\n      \"single_word\": false,\n      \"lstrip\": false,\n      \"rstrip\": false"
      ",\n      \"normalized\": false,\n      \"special\": true\n    }");
}

std::string byte_level(const char* key, const char* add_prefix_space) {
  return concat("  \"", key,
                "\": {\n    \"type\": \"ByteLevel\",\n    \"add_prefix_space\": ", add_prefix_space,
                ",\n    \"trim_offsets\": true,\n    \"use_regex\": true\n  },\n");
}

// "[\n<items, one after another>\n<indent>]", or "[]" without items.
template <class Items, class Item>
std::string block(char open, char close, const char* indent, const Items& items, Item item) {
  std::string text(1, open);
  for (size_t i = 0; i < items.size(); ++i) (text += i ? ",\n" : "\n") += item(i);
  if (!items.empty()) (text += '\n') += indent;
  return text += close;
}

}  // namespace

TrainedBpe train_bpe(const BpeTrainerConfig& config, const NextDocument& next_document) {
  check_config(config);
  return BpeMerger(config, count_words(config, next_document)).run();
}

void write_tokenizer_json(const std::filesystem::path& path, const TrainedBpe& trained) {
  const auto &tokens = trained.tokens, &special_tokens = trained.special_tokens;
  const auto& merges = trained.merges;
  auto token = [&](int32_t id) { return quoted(tokens[static_cast<size_t>(id)]); };
  bool is_nfc = trained.normalizer == BpeTrainerConfig::Normalizer::kNfc;
  std::string text = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  text += "  \"added_tokens\": ";
  text += block('[', ']', "  ", special_tokens,
                [&](size_t id) { return added_token(id, special_tokens[id]); });
  text += is_nfc ? ",\n  \"normalizer\": {\n    \"type\": \"NFC\"\n  },\n"
                 : ",\n  \"normalizer\": null,\n";
  text += byte_level("pre_tokenizer", "false");
  text += byte_level("post_processor", "true");
  text += byte_level("decoder", "true");
  text +=
      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
      "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
      "    \"vocab\": ";
  text += block('{', '}', "    ", tokens,
                [&](size_t id) { return concat("      ", quoted(tokens[id]), ": ", id); });
  text += ",\n    \"merges\": ";
  text += block('[', ']', "    ", merges, [&](size_t i) {
    return concat("      [\n        ", token(merges[i].left), ",\n        ", token(merges[i].right),
                  "\n      ]");
  });
  write_file_atomically(path, text + "\n  }\n}");
}

void write_gpt2_files(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                      const TrainedBpe& trained) {
  std::string text = "{";
  for (size_t id = 0; id < trained.tokens.size(); ++id)
    text += concat(id ? "," : "", quoted(trained.tokens[id]), ":", id);
  write_file_atomically(vocab, text + "}");
  text = "#version: 0.2\n";
  for (const BpeMerge& merge : trained.merges)
    text += concat(trained.tokens[static_cast<size_t>(merge.left)], " ",
                   trained.tokens[static_cast<size_t>(merge.right)], "\n");
  write_file_atomically(merges, text);
}

}  // namespace neox
