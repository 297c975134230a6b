// Tokenizers whose words are not spelled in bytes, or whose model is not byte-pair encoding,
// against what tests/oracle/word_models.py has captured from Python's library.
#include <gmock/gmock.h>

#include "tokenizer_fixture.h"

namespace neox {
namespace {

using ::testing::HasSubstr;

class WordModels : public TokenizerTest {
 protected:
  static const json& captured() {
    static const json kCaptured =
        json::parse(read_file(NEOX_SOURCE_DIR "/tests/golden/word_models.json"));
    return kCaptured;
  }
  static json of_name(const std::string& name) {
    for (const json& one : captured()["tokenizers"])
      if (one["name"] == name) return one["tokenizer"];
    return {};
  }
};

TEST_F(WordModels, GiveTheIdsAndTextsOfTheReference) {
  ASSERT_GT(captured()["tokenizers"].size(), 25u);
  for (const json& one : captured()["tokenizers"]) {
    Tokenizer tokenizer = load(one["tokenizer"]);
    for (size_t i = 0; i < captured()["texts"].size(); ++i) {
      const auto text = captured()["texts"][i].get<std::string>();
      const auto ids = one["ids"][i].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.encode(text), ids) << one["name"] << ": " << text;
      EXPECT_EQ(tokenizer.decode(ids), one["decoded"][i].get<std::string>()) << one["name"];
      EXPECT_EQ(tokenizer.decode(ids, Tokenizer::Special::kKeep),
                one["with_special"][i].get<std::string>())
          << one["name"];
    }
  }
}

// As a server prints a text while it is made. What depends on the end of a text, or on the token
// before, is left out.
TEST_F(WordModels, TokenByTokenGivesTheSameText) {
  for (const char* name :
       {"BPE of words", "BPE with a prefix", "BPE with marks", "BPE of spelled bytes, some unknown",
        "WordPiece, cased", "pieces", "pieces with bytes", "words"}) {
    Tokenizer tokenizer = load(of_name(name));
    std::vector<int32_t> ids;
    tokenizer.encode_plain("the hello, world. to  him", ids);
    std::string text;
    bool begins = true;
    for (int32_t id : ids) {
      std::string bytes = tokenizer.token_bytes(id);
      if (begins) begins = tokenizer.strip_begin(id, bytes);
      if (!tokenizer.is_special(id)) text += bytes;
    }
    EXPECT_EQ(text, tokenizer.decode(ids)) << name;
  }
}

// As `tokenizers` 0.23.3 does.
TEST_F(WordModels, PartsMergeAcrossAMarkThatIsLost) {
  json root = of_name("BPE that loses the unknown");
  root["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  Tokenizer tokenizer = load(root);
  EXPECT_EQ(tokenizer.encode("the\u2581of"), (std::vector<int32_t>{65}));
  EXPECT_EQ(tokenizer.encode("hi\u2581\u2581s"), (std::vector<int32_t>{45, 24}));
}

// As `tokenizers` 0.23.3 does.
TEST_F(WordModels, WhatCtcLeavesEmptyIsNoTokenOfTheNextStep) {
  json root = of_name("characters by CTC");
  json pieces = {{"type", "WordPiece"}, {"prefix", "h"}, {"cleanup", false}};
  root["decoder"] = {{"type", "Sequence"}, {"decoders", {root["decoder"], pieces}}};
  Tokenizer tokenizer = load(root);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("that")), "t t");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("atahe")), "t e");
  EXPECT_EQ(tokenizer.token_bytes(tokenizer.encode("a")[0]), "");
}

TEST_F(WordModels, SayWhatBecomesOfTheUnknown) {
  auto loss = [&](const char* name) { return load(of_name(name)).loss(); };
  EXPECT_EQ(loss("BPE of words"), "text that no token stands for becomes [UNK] (0)");
  EXPECT_EQ(loss("BPE that loses the unknown"), "text that no token stands for is lost");
  EXPECT_EQ(loss("BPE with bytes, whole words"), "");
  EXPECT_EQ(loss("pieces with bytes"), "");
  EXPECT_EQ(loss("words"), "text that no token stands for becomes [UNK] (0)");
  json none = of_name("pieces without words");
  none["model"]["unk_id"] = nullptr;
  Tokenizer tokenizer = load(none);
  EXPECT_EQ(tokenizer.loss(), "text that no token stands for is an error");
  EXPECT_THAT(error_of([&] { tokenizer.encode("\u0434"); }),
              HasSubstr("no piece for \"\u0434\", nor one for what is unknown"));
}

TEST_F(WordModels, AreRefusedByName) {
  auto error = [&](const char* name, auto change) {
    json root = of_name(name);
    change(root);
    return error_of(root);
  };
  EXPECT_THAT(error("words", [](json& r) { r["model"]["unk_token"] = "?"; }),
              HasSubstr("no token \"?\", which is to stand for what is unknown"));
  EXPECT_THAT(error("BPE of words", [](json& r) { r["model"]["unk_token"] = "?"; }),
              HasSubstr("no token \"?\", which is to stand for what is unknown"));
  EXPECT_THAT(error("BPE with a suffix", [](json& r) { r["model"]["byte_fallback"] = true; }),
              HasSubstr("end_of_word_suffix is not supported"));
  EXPECT_THAT(error("pieces", [](json& r) { r["model"]["unk_id"] = 1000; }),
              HasSubstr("unk_id: 1000 is none of"));
  EXPECT_THAT(error("pieces", [](json& r) { r["model"]["vocab"][3] = "a"; }),
              HasSubstr("vocab[3]: expected a token and its score, found \"a\""));
  EXPECT_THAT(error("BPE with marks", [](json& r) { r["pre_tokenizer"]["replacement"] = "ab"; }),
              HasSubstr("replacement: expected one character, found \"ab\""));
  EXPECT_THAT(
      error("BPE with marks", [](json& r) { r["pre_tokenizer"]["prepend_scheme"] = "last"; }),
      HasSubstr("prepend_scheme last is none of always, first, never"));
  EXPECT_THAT(error("words of a length", [](json& r) { r["pre_tokenizer"]["length"] = 0; }),
              HasSubstr("length: expected a whole number from 1 on, found 0"));
  auto map = [](const char* text) {
    return [text](json& r) { r["normalizer"]["precompiled_charsmap"] = text; };
  };
  EXPECT_THAT(error("pieces of precompiled characters", map("a*")), HasSubstr("it is not base64"));
  EXPECT_THAT(error("pieces of precompiled characters", map("//////8=")),
              HasSubstr("its table of characters (precompiled_charsmap) is damaged"));
  EXPECT_THAT(error("pieces of precompiled characters", map("AAAAAPAA")),
              HasSubstr("it makes texts that are not UTF-8"));
}

}  // namespace
}  // namespace neox
