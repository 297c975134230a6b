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

class CharacterBpeForms : public TokenizerTest, public testing::WithParamInterface<const char*> {};

void expect_texts(const Tokenizer& tokenizer, const json& one) {
  std::vector<int32_t> ids = one["ids"];
  EXPECT_EQ(tokenizer.decode(ids), one["decoded"].get<std::string>()) << one;
  EXPECT_EQ(tokenizer.decode(ids, Tokenizer::Special::kKeep),
            one["with_special"].get<std::string>())
      << one;
}

TEST_P(CharacterBpeForms, GivesTheIdsAndTextsOfTheReference) {
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
TEST_P(CharacterBpeForms, OfATextThatGoesOnAreThoseOfTheWhole) {
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
TEST_P(CharacterBpeForms, TokenByTokenGivesTheSameText) {
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

TEST_P(CharacterBpeForms, EndsDocumentsAsItsModelDoes) {
  EXPECT_EQ(load(of_form(GetParam())).end_of_document(), 2);  // </s>
  EXPECT_FALSE(load(of_form(GetParam())).parts_at_words());
}

INSTANTIATE_TEST_SUITE_P(Forms, CharacterBpeForms,
                         testing::Values("LLaMA 2", "Mistral 0.3", "always", "Gemma"),
                         [](const auto& form) {
                           std::string name = form.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

// As `tokenizers` 0.23.3 does: the unknown, where not every byte has a token.
TEST_F(TokenizerTest, WritesTheUnknownWhereAByteHasNoToken) {
  json root = of_form("Gemma"), vocab = json::object();
  for (const auto& [token, id] : root["model"]["vocab"].items())
    vocab[token == "<0xE4>" ? "unused" : token] = id;
  root["model"]["vocab"] = vocab;
  Tokenizer tokenizer = load(root);
  EXPECT_EQ(tokenizer.loss(), "text that no token stands for becomes <unk> (0)");
  EXPECT_EQ(tokenizer.encode("\u4e2d"), (std::vector<int32_t>{1, 0}));
}

}  // namespace
}  // namespace neox
