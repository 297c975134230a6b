// A tokenizer with the tokens of ChatML, and what the options of neox-prepare-data make of
// documents.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data_files.h"
#include "generated_text.h"
#include "prepare/document_encoder.h"
#include "prepare/prepare_options.h"

namespace neox::testing {

using Ids = std::vector<int32_t>;
using Arguments = std::vector<std::string>;

inline constexpr int32_t kMasked = -100;

struct Encoded {
  Ids tokens, labels;
};

class Labels : public ::testing::Test {
 protected:
  Labels() {
    write_tokenizer_json(dir_ / "plain.json",
                         train_bpe({.vocab_size = 280}, each({"the cat and the hat"})));
    auto json = nlohmann::json::parse(read_file(dir_ / "plain.json"));
    nlohmann::json token = json["added_tokens"][0];
    auto next = Tokenizer::from_json(dir_ / "plain.json").vocab_size();
    for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
      token["id"] = next++;
      token["content"] = content;
      json["added_tokens"].push_back(token);
    }
    dir_.put("tokenizer.json", json.dump());
    tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::from_json(dir_ / "tokenizer.json"));
  }

  PrepareOptions options(const Arguments& more) const {
    Arguments arguments = {"--output-prefix", dir_ / "out", "--tokenizer-path",
                           dir_.path(),       "--input",    dir_ / "in.jsonl"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Program program = prepare_program();
    check(program.parse(canonical_arguments(arguments)), "help was asked");
    return read_prepare_options(program);
  }
  std::string refusal(const Arguments& more) const {
    return error_of([&] {
      PrepareOptions wanted = options(more);
      DocumentEncoder encoder(wanted, *tokenizer_);
    });
  }
  static void add(const DocumentEncoder& encoder, const PrepareOptions& wanted,
                  const std::string& text, Encoded& to) {
    if (wanted.chat)
      encoder.encode_chat(wanted.rules.turns(text, ""), to.tokens, to.labels);
    else
      encoder.encode(text, DocumentEncoder::Part::kLast, to.tokens, to.labels);
  }
  Encoded encode(const std::string& text, const Arguments& more) const {
    PrepareOptions wanted = options(more);
    DocumentEncoder encoder(wanted, *tokenizer_);
    Encoded e;
    add(encoder, wanted, text, e);
    EXPECT_EQ(e.labels.size(), encoder.has_labels() ? e.tokens.size() : 0);
    for (size_t i = 0; i < e.labels.size(); ++i)
      EXPECT_TRUE(e.labels[i] == kMasked || e.labels[i] == e.tokens[i]) << i;
    return e;
  }
  std::string text(Ids ids) const {
    std::erase(ids, kMasked);
    return tokenizer_->decode(ids, Tokenizer::Special::kKeep);
  }
  // The id of a character.
  std::string id(const std::string& character) const {
    return std::to_string(tokenizer_->encode(character).at(0));
  }

  Directory dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace neox::testing
