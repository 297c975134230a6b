// Coverage-guided: any bytes as a tokenizer.json or a tokenizer.model, which then
// encodes and decodes texts, of which the last stands behind a zero byte. Built and run by fuzz.sh
// with libFuzzer.
// Words: "model" "vocab" "merges" "type" "BPE" "Unigram" "WordPiece" "WordLevel" "unk_token"
// Words: "unk_id" "added_tokens" "content" "normalizer" "normalizers" "pre_tokenizer"
// Words: "pretokenizers" "decoder" "decoders" "post_processor" "processors" "Sequence"
// Words: "Precompiled" "precompiled_charsmap" "NFC" "NFKD" "Replace" "pattern" "Regex" "String"
// Words: "Prepend" "Strip" "strip_left" "BertNormalizer" "Lowercase" "StripAccents" "Nmt"
// Words: "ByteLevel" "add_prefix_space" "use_regex" "Metaspace" "replacement" "prepend_scheme"
// Words: "Split" "behavior" "invert" "Digits" "individual_digits" "Punctuation" "Whitespace"
// Words: "FixedLength" "UnicodeScripts" "CharDelimiterSplit" "ByteFallback" "Fuse" "CTC"
// Words: "TemplateProcessing" "single" "special_tokens" "byte_fallback" "fuse_unk"
// Words: "continuing_subword_prefix" "end_of_word_suffix" "ignore_merges" "lstrip" "rstrip"
// Words: "single_word" "normalized" "<0x0A>" "\x0a\x0e\x0a\x05<unk>\x15"
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace neox;

// A file in memory.
class File {
 public:
  explicit File(std::string_view content) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (::write(fd_, content.data(), content.size()) < 0) std::abort();
  }
  ~File() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void use(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text);
  tokenizer.encode_next(text, ids);
  ids.insert(ids.end(), {-1, 0, 1, 2, INT32_MAX});
  tokenizer.decode(ids);
  tokenizer.decode(ids, Tokenizer::Special::kKeep);
  for (int32_t id : ids) {
    std::string bytes = tokenizer.token_bytes(id);
    tokenizer.strip_begin(id, bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view all(reinterpret_cast<const char*>(data), size);
  bool json = all.starts_with('{');  // a model has zero bytes of its own
  size_t end = std::min(json ? all.find('\0') : all.rfind('\0'), size);
  File file(all.substr(0, end));
  try {
    Tokenizer tokenizer =
        json ? Tokenizer::from_json(file.path()) : Tokenizer::from_sentencepiece(file.path());
    for (std::string_view text : {"", "a", " Hello  World's 12345\r\n\t", "e\xCC\x81\xE4\xB8\xAD",
                                  "<s>\xF0\x9F\x98\x80</s>\xFF\xE2\x96\x81"})
      use(tokenizer, text);
    use(tokenizer, all.substr(std::min(end + 1, size)));
  } catch (const Error&) {}
  return 0;
}
