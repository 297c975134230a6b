// Ids and texts of SentencePiece's models: tests/golden/sentencepiece.json, which
// tests/oracle/sentencepiece_golden.py has captured from its Python library.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "hex.h"
#include "tokenizer/tokenizer.h"

namespace neox {
namespace {

using nlohmann::json;

class SentencePiece : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/neox_" +
            testing::UnitTest::GetInstance()->current_test_info()->name() + ".model";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Tokenizer tokenizer(const std::string& model) const {
    std::ofstream(path_, std::ios::binary) << model;
    return Tokenizer::from_sentencepiece(path_);
  }
  std::string error(const std::string& model) const {
    try {
      tokenizer(model);
      return "";
    } catch (const Error& e) { return e.what(); }
  }
  static const json& golden() {
    static const json kGolden =
        json::parse(read_file(NEOX_SOURCE_DIR "/tests/golden/sentencepiece.json"));
    return kGolden;
  }
  static std::string model(size_t i) { return from_hex(golden().at(i).at("model")); }

  std::string path_;
};

// As sentencepiece's encode(text, add_bos=True).
TEST_F(SentencePiece, BeginsTextsWhereAskedTo) {
  tokenizer(model(0));
  Tokenizer plain = Tokenizer::of_type("SPMTokenizer", path_, ""),
            llama = Tokenizer::of_type("Llama2Tokenizer", path_, "");
  std::vector<int32_t> ids = {1}, inner;  // <s>
  plain.encode("a text", ids);
  EXPECT_EQ(llama.encode("a text"), ids);
  EXPECT_EQ(llama.encode(""), std::vector<int32_t>{1});
  EXPECT_EQ(llama.decode(ids), "a text");
  llama.encode_plain("a text", inner);
  EXPECT_EQ(inner, plain.encode("a text"));
}

// As a model's vocabulary has, which is padded.
TEST_F(SentencePiece, HasNoTextForIdsThatItDoesNotHave) {
  Tokenizer t = tokenizer(model(0));
  for (auto id : {-1, static_cast<int32_t>(t.vocab_size()), INT32_MAX}) {
    std::string bytes = t.token_bytes(id);
    EXPECT_EQ(bytes, "");
    EXPECT_TRUE(t.strip_begin(id, bytes)) << id;
  }
}

TEST_F(SentencePiece, GivesTheIdsAndTextsOfItsLibrary) {
  ASSERT_EQ(golden().size(), 7u);
  std::string long_text;
  for (int i = 0; i < 60000; ++i) long_text += "ab";
  for (const json& made : golden()) {
    SCOPED_TRACE(made.at("name").get<std::string>());
    Tokenizer t = tokenizer(from_hex(made.at("model")));
    EXPECT_EQ(t.vocab_size(), made.at("pieces"));
    uint32_t checksum = 0;
    for (int32_t id : t.encode(long_text)) checksum = checksum * 31 + static_cast<uint32_t>(id) + 1;
    EXPECT_EQ(checksum, made.at("of_long").get<uint32_t>());
    for (const json& one : made.at("texts")) {
      std::string text = one.at("text");
      EXPECT_EQ(t.encode(text), one.at("ids").get<std::vector<int32_t>>()) << text;
      EXPECT_EQ(one.at("decoded"), t.decode(t.encode(text))) << text;
      EXPECT_EQ(t.encode(text), t.encode(text)) << text;  // from what the thread remembers
    }
  }
}

TEST_F(SentencePiece, RemembersWordsOfOneModelInEachThread) {
  Tokenizer first = tokenizer(model(0)), second = tokenizer(model(1));
  for (const json& one : golden().at(0).at("texts")) {
    std::string text = one.at("text");
    std::vector<int32_t> there;
    std::thread([&] { there = second.encode(text), there = first.encode(text); }).join();
    second.encode(text);
    EXPECT_EQ(first.encode(text), there) << text;
  }
}

TEST_F(SentencePiece, EndsDocumentsWithItsPieceForThatOrTheEndOfText) {
  EXPECT_EQ(tokenizer(model(0)).end_of_document(), 2);  // </s>
  Tokenizer own = tokenizer(model(1));
  EXPECT_EQ(own.encode("<|endoftext|>").back(), own.end_of_document());
  EXPECT_EQ(own.token_bytes(own.end_of_document()), "<|endoftext|>");
  EXPECT_EQ(own.token_bytes(2), "");  // a control piece
  EXPECT_EQ(own.token_bytes(1 << 20), "");
  EXPECT_FALSE(own.parts_at_words());
}

// A field of the wire format: of bytes, or a number.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string field(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}
std::string piece(const std::string& text, int type) {
  return field(1, field(1, text) + field(3, type));
}

TEST_F(SentencePiece, RefusesWhatItCannotRead) {
  std::string whole = model(0);
  for (size_t size : {size_t{1}, size_t{2}, whole.size() - 1})
    EXPECT_NE(error(whole.substr(0, size)), "") << size;
  for (size_t size = 0; size < whole.size(); size += 41) error(whole.substr(0, size));  // no crash
  EXPECT_NE(error("").find("it has no pieces"), std::string::npos);
  EXPECT_NE(error("{\"model\": 1}").find("is no model of SentencePiece"), std::string::npos);
  EXPECT_NE(error("IQ== 0\nIg== 1\n").find("holds ranks of tiktoken"), std::string::npos);
  EXPECT_NE(error(piece("<unk>", 2) + field(2, field(3, 3))).find("of kind word"),
            std::string::npos);
  EXPECT_NE(error(piece("a", 1)).find("no piece for what is unknown"), std::string::npos);
  EXPECT_NE(error(piece("<unk>", 2) + piece("a", 1) + piece("a", 4)).find("stands there twice"),
            std::string::npos);
  EXPECT_NE(error(piece("<unk>", 2) + field(3, field(2, "xyz"))).find("precompiled_charsmap"),
            std::string::npos);
  for (int type : {1, 4})
    EXPECT_NE(error(piece("<unk>", 2) + piece("\xE2\x96", type)).find("piece 1 is not UTF-8"),
              std::string::npos);
  EXPECT_EQ(error(piece("<unk>", 2) + piece("a", 1)), "");
}

// Its text is "", from which no space can be taken.
TEST_F(SentencePiece, DecodesAControlPieceThatBeginsWithASpace) {
  Tokenizer t = tokenizer(piece("<unk>", 2) + piece("\u2581s", 3) + piece("\u2581a", 1));
  EXPECT_EQ(t.decode({1}, Tokenizer::Special::kKeep), "");
  EXPECT_EQ(t.decode({1, 2, 2}, Tokenizer::Special::kKeep), "a a");
}

}  // namespace
}  // namespace neox
