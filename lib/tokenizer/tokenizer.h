// Tokenizers with the ids of Hugging Face's Python library `tokenizers`, those of SentencePiece and
// tiktoken, and one of bytes. Immutable after loading, so any number of
// threads may encode at once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

class Tokenizer {
 public:
  // A Hugging Face tokenizer.json. Throws Error naming the file and the part that is not supported.
  static Tokenizer from_json(const std::filesystem::path& path);
  // GPT-2's vocab.json and merges.txt. "<|endoftext|>" in a text is that one token, as in Hugging
  // Face's GPT2 tokenizers (GPT-NeoX's GPT2BPETokenizer takes it for ordinary text).
  static Tokenizer from_gpt2(const std::filesystem::path& vocab,
                             const std::filesystem::path& merges);

  // SentencePiece's tokenizer.model (bpe or unigram), with the ids of its encode(), whose control
  // pieces are ordinary text; kBegin: behind "<s>", as LLaMA's and Megatron-LM's Llama2Tokenizer.
  // decode() leaves out the space that encode() put in front.
  enum class Pieces { kAlone, kBegin };
  static Tokenizer from_sentencepiece(const std::filesystem::path& path,
                                      Pieces pieces = Pieces::kAlone);

  // GPT-NeoX's CharLevelTokenizer: the ids of a text are the bytes of its UTF-8, of 512 entries the
  // first ends documents. decode() gives the text again, where GPT-NeoX's detokenize() gives a
  // character for each byte.
  static Tokenizer characters();
  // tiktoken's file of ranks, such as cl100k_base.tiktoken: the ids of its encode() with
  // allowed_special="all"; of LLaMA 3's tokenizer.model behind "<|begin_of_text|>".
  static Tokenizer from_tiktoken(const std::filesystem::path& path);
  // By GPT-NeoX's tokenizer_type: HFTokenizer, GPT2BPETokenizer (with merges), SPMTokenizer,
  // TiktokenTokenizer, or CharLevelTokenizer (without files); or Megatron's Llama2Tokenizer.
  static Tokenizer of_type(std::string_view type, const std::filesystem::path& vocab,
                           const std::filesystem::path& merges);
  // The type with the same ids of one that Megatron-LM or Megatron-DeepSpeed names, others as they
  // are.
  static std::string same_type(const std::string& type);
  static bool reads_files(std::string_view type) { return type != "CharLevelTokenizer"; }
  static bool is_tiktoken(std::string_view type) { return type == "TiktokenTokenizer"; }
  // Whether a type reads a tokenizer.model.
  static bool is_sentencepiece(std::string_view type) {
    return type == "SPMTokenizer" || type == "Llama2Tokenizer";
  }

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Bytes that are not UTF-8 are read as U+FFFD, as Python's errors="replace" does. With the tokens
  // that the tokenizer puts around a text, as LLaMA's in front of it.
  std::vector<int32_t> encode(std::string_view text) const;
  // The same, appended to `ids`.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;
  // Without those.
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const;
  // The same for what goes on behind a text whose ids end `ids`, and shares no token with it: the
  // space that LLaMA's writes in front of texts stands there only behind an added token.
  void encode_next(std::string_view text, std::vector<int32_t>& ids) const;
  // Whether a text may be cut before a space between ASCII letters or digits, and behind a line end
  // between characters that are no white space: the ids of the parts, joined, are those of the
  // text.
  bool parts_at_words() const;
  // Bytes that do not form UTF-8 become U+FFFD. kSkip leaves out special added tokens. Ids that the
  // tokenizer does not have (a model's vocabulary may be padded) give no text.
  enum class Special { kKeep, kSkip };
  std::string decode(const std::vector<int32_t>& ids, Special special = Special::kSkip) const;
  // The raw bytes of one token, for printing text as it comes; "" for an id it does not have.
  std::string token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  // Takes out of the bytes of a text's first token what decode() leaves out. Whether the same is to
  // be done with those of the next one, as behind an id that the tokenizer does not have.
  bool strip_begin(int32_t id, std::string& bytes) const;
  // Of the bytes of all tokens in their order: of two tokenizers that are not the same it differs.
  uint64_t fingerprint() const;

  int64_t vocab_size() const;  // 1 + the greatest id
  // "<|endoftext|>"; else a special token that is known for it, as LLaMA's "</s>" or DeepSeek's;
  // else the eos_token of the tokenizer_config.json beside a tokenizer.json; of SentencePiece the
  // end of a text, "</s>" (GPT-NeoX takes the unknown piece there); 0 of characters(). Throws where
  // the tokenizer has none.
  int32_t end_of_document() const;
  bool has_end_of_document() const;
  // What becomes of text that no token stands for, in words; "" where there is no such text.
  std::string loss() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neox
