// A tokenizer.json with byte_fallback, as of LLaMA, Mistral and Gemma, against what
// tests/oracle/fallback_tokenizers.py has captured from Python's library.
#include <gmock/gmock.h>

#include "tokenizer_fixture.h"

namespace neox {
namespace {

using testing::HasSubstr;

const json& captured() {
  static const json kCaptured =
      json::parse(read_file(NEOX_SOURCE_DIR "/tests/golden/fallback_tokenizers.json"));
  return kCaptured;
}

json of_form(const std::string& form) {
  json root = captured()[form]["parts"];
  root["model"] = captured()["model"];
  return root;
}

class FallbackBpe : public TokenizerTest, public testing::WithParamInterface<const char*> {};

void expect_texts(const Tokenizer& tokenizer, const json& one) {
  std::vector<int32_t> ids = one["ids"];
  EXPECT_EQ(tokenizer.decode(ids), one["decoded"].get<std::string>()) << one;
  EXPECT_EQ(tokenizer.decode(ids, Tokenizer::Special::kKeep),
            one["with_special"].get<std::string>())
      << one;
}

TEST_P(FallbackBpe, GivesTheIdsAndTextsOfTheReference) {
  Tokenizer tokenizer = load(of_form(GetParam()));
  for (const json& one : captured()[GetParam()]["cases"]) {
    EXPECT_EQ(tokenizer.encode(one["text"].get<std::string>()),
              one["ids"].get<std::vector<int32_t>>())
        << one;
    expect_texts(tokenizer, one);
  }
  for (const json& one : captured()[GetParam()]["rows"]) expect_texts(tokenizer, one);
}

// The space in front of a text is not written again where the text goes on, but for what each form
// writes behind added tokens.
TEST_P(FallbackBpe, OfATextThatGoesOnAreThoseOfTheWhole) {
  Tokenizer tokenizer = load(of_form(GetParam()));
  for (const auto& [first, second] :
       std::vector<std::pair<std::string, std::string>>{{"a man\n", "the king\n"},
                                                        {"a man</s>", "the king"},
                                                        {"<|im_end|>\n", "<|im_start|>a"}}) {
    std::vector<int32_t> whole, parts;
    tokenizer.encode_plain(first + second, whole);
    tokenizer.encode_plain(first, parts);
    tokenizer.encode_next(second, parts);
    EXPECT_EQ(parts, whole) << first << "|" << second;
  }
}

// As GPT-NeoX's detokenize(): without special tokens, and without the space that stands in front.
TEST_P(FallbackBpe, TokenByTokenGivesTheSameText) {
  Tokenizer tokenizer = load(of_form(GetParam()));
  for (const json& one : captured()[GetParam()]["cases"]) {
    std::string text;
    bool begins = true;
    for (int32_t id : one["ids"].get<std::vector<int32_t>>()) {
      if (tokenizer.is_special(id)) continue;
      std::string bytes = tokenizer.token_bytes(id);
      if (begins) begins = tokenizer.strip_begin(id, bytes);
      text += bytes;
    }
    EXPECT_EQ(text, one["decoded"].get<std::string>()) << one;
  }
}

TEST_P(FallbackBpe, EndsDocumentsAsItsModelDoes) {
  EXPECT_EQ(load(of_form(GetParam())).end_of_document(), 2);  // </s>
  EXPECT_FALSE(load(of_form(GetParam())).parts_at_words());
}

INSTANTIATE_TEST_SUITE_P(Forms, FallbackBpe,
                         testing::Values("LLaMA 2", "Mistral 0.3", "always", "Gemma"),
                         [](const auto& form) {
                           std::string name = form.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

TEST_F(TokenizerTest, RefusesWhatDoesNotBelongToByteFallback) {
  auto says = [&](const std::string& form, const std::function<void(json&)>& spoil) {
    json root = of_form(form);
    spoil(root);
    return error_of(root);
  };
  auto renamed = [](json& r) {
    json vocab = json::object();
    for (const auto& [token, id] : r["model"]["vocab"].items())
      vocab[token == "<0x41>" ? "unused" : token] = id;
    r["model"]["vocab"] = vocab;
  };
  EXPECT_THAT(says("Gemma", renamed), HasSubstr("there is none for 65"));
  EXPECT_THAT(says("Gemma", [](json& r) { r["normalizer"] = nullptr; }),
              HasSubstr("pre_tokenizer: the type is Split; supported with byte_fallback is"));
  EXPECT_THAT(says("LLaMA 2", [](json& r) { r["normalizer"] = nullptr; }),
              HasSubstr("neither the normalizer nor the pre_tokenizer writes spaces as"));
  EXPECT_THAT(says("Mistral 0.3", [](json& r) { r["pre_tokenizer"]["split"] = true; }),
              HasSubstr("\"split\": false"));
  EXPECT_THAT(says("Mistral 0.3", [](json& r) { r["pre_tokenizer"]["prepend_scheme"] = "last"; }),
              HasSubstr("prepend_scheme last is none of"));
  EXPECT_THAT(says("LLaMA 2", [](json& r) { r["decoder"]["decoders"].erase(1); }),
              HasSubstr("decoder: a Sequence of Replace, Fuse, Strip; supported"));
  EXPECT_THAT(says("LLaMA 2", [](json& r) { r["decoder"]["decoders"][3]["start"] = 2; }),
              HasSubstr("the Strip of one space"));
  EXPECT_THAT(says("LLaMA 2", [](json& r) { r["model"]["ignore_merges"] = true; }),
              HasSubstr("ignore_merges is not supported with byte_fallback"));
}

}  // namespace
}  // namespace neox
