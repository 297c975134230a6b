// tiktoken's files of ranks, and LLaMA 3's.
#include "tokenizer/tokenizer_files.h"
#include "tokenizer_fixture.h"

namespace neox {
namespace {

std::string to_base64(std::string_view bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t value = 0;
    for (size_t i = 0; i < 3; ++i)
      value = value << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i)
      text += at + i > bytes.size() ? '=' : kDigits[value >> (18 - 6 * i) & 63];
  }
  return text;
}

// The bytes, the last ones first, then some tokens.
std::string ranks_of(const std::vector<std::string>& tokens) {
  std::string text;
  for (int rank = 0; rank < 256; ++rank)
    text += to_base64(std::string(1, static_cast<char>(255 - rank))) + " " + std::to_string(rank) +
            "\n";
  for (size_t i = 0; i < tokens.size(); ++i)
    text += to_base64(tokens[i]) + " " + std::to_string(256 + i) + "\n";
  return text;
}

TEST_F(TokenizerTest, ReadsTiktokensRanks) {
  std::string ranks = ranks_of({"abc", "bc", "ab", " cab", "\n\n", "xyz"});
  Tokenizer t = Tokenizer::from_tiktoken(file(ranks, "cl100k_base.tiktoken"));
  auto byte = [](char c) { return 255 - static_cast<uint8_t>(c); };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(t.encode("ab"), Ids{258});
  EXPECT_EQ(t.encode("zabc"), (Ids{byte('z'), 256}));  // of "bc" and "a", or "ab" and "c"
  EXPECT_EQ(t.encode("ababcd"), (Ids{258, 256, byte('d')}));
  EXPECT_EQ(t.encode("xyz"), Ids{261});  // a word, which no two tokens make
  EXPECT_EQ(t.encode("xyzxyz"),
            (Ids{byte('x'), byte('y'), byte('z'), byte('x'), byte('y'), byte('z')}));
  EXPECT_EQ(t.encode("a cab<|endoftext|>\n\n"), (Ids{byte('a'), 259, 100257, 260}));
  EXPECT_EQ(t.vocab_size(), 100277);
  EXPECT_EQ(t.end_of_document(), 100257);
  EXPECT_EQ(t.decode({258, 100257, 259}), "ab cab");
  EXPECT_EQ(t.decode({100256}), "");
  Tokenizer json =
      Tokenizer::from_json(file(tokenizer_json_of(read_tiktoken(dir_ / "cl100k_base.tiktoken"))));
  std::string text = "zabcab xyz cab<|fim_middle|>\n\n<|endoftext|>";
  EXPECT_EQ(json.encode(text), t.encode(text));
  stdfs::path cached = file(ranks, "fb374d419588a4632f3f557e76b4b70aebbca790");
  EXPECT_EQ(Tokenizer::from_tiktoken(cached).end_of_document(), 199999);
  EXPECT_EQ(Tokenizer::of_type("TiktokenTokenizer", cached, "").encode("zabc"), t.encode("zabc"));
}

// All tokens of two bytes, and as many of three as there are.
TEST_F(TokenizerTest, ReadsLlama3sRanks) {
  std::vector<std::string> tokens;
  for (int a = 0; a < 256 && std::ssize(tokens) < 128000 - 256; ++a)
    for (int b = 0; b < 256; ++b) tokens.push_back({static_cast<char>(a), static_cast<char>(b)});
  for (int a = 0; std::ssize(tokens) < 128000 - 256; ++a)
    tokens.push_back({'a', static_cast<char>(a >> 8), static_cast<char>(a & 255)});
  Tokenizer t = Tokenizer::from_tiktoken(file(ranks_of(tokens), "tokenizer.model"));
  auto byte = [](char c) { return 255 - static_cast<uint8_t>(c); };
  auto pair = [](char a, char b) { return 256 + 256 * a + b; };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(t.encode("xy z1234"),
            (Ids{128000, pair('x', 'y'), pair(' ', 'z'), pair('1', '2'), byte('3'), byte('4')}));
  EXPECT_EQ(t.encode("<|eot_id|><|reserved_special_token_247|>"), (Ids{128000, 128009, 128255}));
  EXPECT_EQ(t.end_of_document(), 128001);
  EXPECT_EQ(t.vocab_size(), 128256);
  TokenizerFiles files = read_tiktoken(dir_ / "tokenizer.model");
  Tokenizer json = Tokenizer::from_json(file(tokenizer_json_of(files)));
  std::string text = "xy z\n\n<|python_tag|>xyz<|finetune_right_pad_id|>";
  EXPECT_EQ(json.encode(text), t.encode(text));
}

TEST_F(TokenizerTest, RefusesRanksThatAreNone) {
  std::string good = ranks_of({"ab"});
  auto error = [&](const std::string& content, const char* name = "cl100k_base.tiktoken") {
    return error_of([&] { Tokenizer::from_tiktoken(file(content, name)); });
  };
  auto has = [](const std::string& text, const char* part) { return text.find(part) != text.npos; };
  EXPECT_TRUE(has(error(good, "ranks.model"), "known are r50k_base.tiktoken, p50k_base"));
  EXPECT_TRUE(has(error(good, "tokenizer.model"), "has 257 ranks, but llama3's are 128000"));
  for (const char* line : {"YWI=", "YWI= x", "YW= 257", "YWJ= 257", "Y!I= 257", " 257"})
    EXPECT_TRUE(has(error(good + line), "cl100k_base.tiktoken:258: expected a token in base64"))
        << line << ": " << error(good + line);
  EXPECT_TRUE(has(error(good + "YWI= 256"), ":258: the rank 256 stands twice"));
  EXPECT_TRUE(has(error(good + "YWI= 257"), "the ranks 256 and 257 are of one token"));
  EXPECT_TRUE(has(error(good + "YWJj 258"), "the rank 257 is missing"));
  EXPECT_TRUE(has(error(good + "YWJj 999999"), "rank 999999 in a file of"));
  EXPECT_TRUE(has(error("YQ== 0\n"), "no token for the byte"));
}

}  // namespace
}  // namespace neox
