#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/bpe_cache.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/spm.h"
#include "tokenizer/tokenizer_files.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

constexpr const char *kReplacement = "\xEF\xBF\xBD", *kEndOfDocument = "<|endoftext|>";
// LLaMA 3, LLaMA 2, Gemma, DeepSeek, and others.
constexpr std::array kEndsOfText = {"<|end_of_text|>",       "</s>",    "<eos>",
                                    "<｜end▁of▁sentence｜>", "<|eos|>", "[EOS]"};

enum class Stage { kRaw, kNormalized };

// The ids of runs of blanks by their length, where the tokens are all such runs, of 2 blanks up to
// some number, without conditions; else none.
std::vector<int32_t> blank_runs(const std::vector<AddedToken>& tokens) {
  std::vector<int32_t> ids(tokens.empty() ? 0 : tokens.size() + 2, -1);
  for (const AddedToken& token : tokens) {
    size_t length = token.content.size();
    bool is_run = token.content.find_first_not_of(' ') == std::string::npos && length > 1;
    if (!is_run || length >= ids.size() || token.single_word || token.lstrip || token.rstrip)
      return {};
    ids[length] = token.id;
  }
  return ids;
}

// What is wrong with the files is said where they are needed.
std::string eos_token_in(const std::filesystem::path& directory) try {
  std::map<std::string, std::string> named = named_tokens_in(directory);
  auto found = named.find("eos_token");
  return found == named.end() ? "" : found->second;
} catch (const Error&) { return ""; }

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerFiles described);
  Impl(std::unique_ptr<const Spm> pieces, Pieces around);
  static std::unique_ptr<Impl> make(TokenizerFiles described);
  using Place = PiecePlace;
  void encode(std::string_view text, Place place, std::vector<int32_t>& ids) const;
  void encode_piece(std::string_view text, Place place, std::vector<int32_t>& ids) const;
  void encode_normalized(std::string_view text, Place place, std::vector<int32_t>& ids) const;
  std::string_view normalize(std::string_view text, Place place, std::string& storage) const;
  std::string text_of(std::string_view token) const;
  std::string decode_by_steps(const std::vector<int32_t>& ids, Special skipped) const;
  std::vector<AddedToken> added(Stage stage) const;
  std::vector<int32_t> runs() const;
  int32_t find_end_of_text() const;
  void set_text(const AddedToken& token);

  TokenizerFiles files;
  AddedTokenMatcher raw, normalized;       // for texts before and after normalization
  std::shared_ptr<const WordRules> words;  // null where the files have another model
  std::unique_ptr<const Spm> spm;          // instead of all that, or null
  std::vector<std::string> bytes;          // of each id
  std::vector<std::string> texts;          // of each id, for the steps of a decoder
  std::vector<bool> special;
  int32_t end_of_document = -1;
};

Tokenizer::Impl::Impl(TokenizerFiles described)
    : files(std::move(described)), raw(added(Stage::kRaw)), normalized(added(Stage::kNormalized)) {
  if (!files.model)
    words = std::make_shared<WordRules>(
        WordRules{.bpe = Bpe(files.tokens, files.merges, files.whole_words, files.lacking_bytes),
                  .words = files.words,
                  .blank_runs = runs()});
  special.resize(files.tokens.size());
  for (const std::string& token : files.tokens) {
    if (token == kEndOfDocument) end_of_document = static_cast<int32_t>(bytes.size());
    bytes.push_back(text_of(token));
  }
  if (!files.decoder.empty()) texts = files.tokens;
  for (const AddedToken& token : files.added) set_text(token);
  if (end_of_document < 0) end_of_document = find_end_of_text();
}

// One of the special tokens that are known as such, else what the files say.
int32_t Tokenizer::Impl::find_end_of_text() const {
  for (std::string_view end : kEndsOfText)
    for (const AddedToken& token : files.added)
      if (token.special && token.content == end) return token.id;
  const std::string named = files.beside ? eos_token_in(*files.beside) : "";
  if (named.empty()) return -1;
  for (const AddedToken& token : files.added)
    if (token.content == named) return token.id;
  auto known = std::ranges::find(files.tokens, named);
  return known == files.tokens.end() ? -1 : static_cast<int32_t>(known - files.tokens.begin());
}

std::string_view Tokenizer::Impl::normalize(std::string_view text, Place place,
                                            std::string& storage) const {
  return neox::normalize(files.normalizers, text, place != Place::kInside, storage);
}

std::string Tokenizer::Impl::text_of(std::string_view token) const {
  std::string text(token);
  if (!files.decoder.empty()) return decode_token(files.decoder, text, TokenPlace::kInside);
  return from_byte_level(token, text) ? text : std::string(token);
}

Tokenizer::Impl::Impl(std::unique_ptr<const Spm> pieces, Pieces around)
    : files{.name = pieces->model().name},
      raw(std::vector<AddedToken>()),
      normalized(std::vector<AddedToken>()),
      spm(std::move(pieces)) {
  for (const SpmPiece& piece : spm->model().pieces) {
    auto id = static_cast<int32_t>(bytes.size());
    bytes.push_back(spm->text_of(id));
    special.push_back(piece.type == SpmPiece::kControl);
    if (piece.text == kEndOfDocument) end_of_document = id;
  }
  const SpmModel& model = spm->model();
  if (end_of_document < 0) end_of_document = model.control_piece(model.end_of_text);
  if (around == Pieces::kAlone) return;
  files.begin = {model.control_piece(model.begin_of_text)};
  check_io(files.begin[0] >= 0, files.name, ": there is no control piece ", model.begin_of_text,
           " for texts to begin with");
}

std::unique_ptr<Tokenizer::Impl> Tokenizer::Impl::make(TokenizerFiles described) {
  std::string name = described.name;
  try {
    return std::make_unique<Impl>(std::move(described));
  } catch (const Error& e) { fail(e.exit(), name, ": ", e.what()); }
}

// The added tokens to look for in texts of one stage.
std::vector<AddedToken> Tokenizer::Impl::added(Stage stage) const {
  std::vector<AddedToken> chosen;
  std::string storage;
  for (AddedToken token : files.added) {
    if (token.normalized != (stage == Stage::kNormalized)) continue;
    if (token.normalized)
      token.content = std::string(normalize(token.content, Place::kFirst, storage));
    chosen.push_back(std::move(token));
  }
  return chosen;
}

// `tokenizers` decodes an added token in its normalized form, through the byte-level decoder, and
// takes it for special only where that form is the content.
void Tokenizer::Impl::set_text(const AddedToken& token) {
  auto id = static_cast<size_t>(token.id);
  if (id >= bytes.size()) bytes.resize(id + 1), special.resize(id + 1);
  std::string storage;
  std::string text(token.normalized ? normalize(token.content, Place::kFirst, storage)
                                    : token.content);
  bytes[id] = text_of(text);
  if (!files.decoder.empty()) texts.resize(bytes.size()), texts[id] = text;
  special[id] = token.special && text == token.content;
  if (token.content == kEndOfDocument) end_of_document = token.id;
}

// Those that the words' rules take over from the matcher of normalized text.
std::vector<int32_t> Tokenizer::Impl::runs() const {
  bool is_plain = files.words == Words::kGpt2 && !files.prefix_space &&
                  std::ranges::all_of(files.pre_tokenizers, &PreTokenizer::only_digits);
  return is_plain ? blank_runs(added(Stage::kNormalized)) : std::vector<int32_t>();
}

// The ids of a text between added tokens.
void Tokenizer::Impl::encode_piece(std::string_view text, Place place,
                                   std::vector<int32_t>& ids) const {
  if (files.model)
    return pre_tokenize(files.pre_tokenizers, text, place, Spelling::kKept,
                        [&](std::string_view part) { files.model->encode(part, ids); });
  WordCache& cache = WordCache::of_thread(words);
  std::string prefixed;
  auto encode_part = [&](std::string_view part) {
    bool begins = place != Place::kInside || part.data() != text.data();
    if (files.prefix_space && begins && !part.starts_with(' '))
      part = prefixed.assign(" ").append(part);
    cache.encode_text(part, ids);
  };
  if (files.pre_tokenizers.empty()) return encode_part(text);
  pre_tokenize(files.pre_tokenizers, text, place, Spelling::kBytes, encode_part);
}

// The ids of a text between added tokens of the raw stage.
void Tokenizer::Impl::encode_normalized(std::string_view text, Place place,
                                        std::vector<int32_t>& ids) const {
  if (words && !words->blank_runs.empty()) return encode_piece(text, place, ids);
  normalized.split(
      text, [&](int32_t id) { ids.push_back(id); },
      [&](std::string_view piece) {
        encode_piece(piece, piece.data() == text.data() ? place : Place::kLater, ids);
      });
}

Tokenizer Tokenizer::from_json(const std::filesystem::path& path) {
  return Tokenizer(Impl::make(read_tokenizer_json(path)));
}

Tokenizer Tokenizer::from_gpt2(const std::filesystem::path& vocab,
                               const std::filesystem::path& merges) {
  return Tokenizer(Impl::make(read_gpt2_files(vocab, merges)));
}

Tokenizer Tokenizer::from_sentencepiece(const std::filesystem::path& path, Pieces pieces) {
  return Tokenizer(
      std::make_unique<Impl>(std::make_unique<const Spm>(read_spm_model(path)), pieces));
}

Tokenizer Tokenizer::from_tiktoken(const std::filesystem::path& path) {
  return Tokenizer(Impl::make(read_tiktoken(path)));
}

Tokenizer Tokenizer::of_type(std::string_view type, const std::filesystem::path& vocab,
                             const std::filesystem::path& merges) {
  if (!reads_files(type)) return characters();
  if (is_sentencepiece(type))
    return from_sentencepiece(vocab, type == "SPMTokenizer" ? Pieces::kAlone : Pieces::kBegin);
  if (type == "HFTokenizer") return from_json(vocab);
  if (is_tiktoken(type)) return from_tiktoken(vocab);
  check_usage(!merges.empty(), type, " needs merge_file beside vocab_file");
  return from_gpt2(vocab, merges);
}

std::string Tokenizer::same_type(const std::string& type) {
  if (type == "HuggingFaceTokenizer" || type == "PretrainedFromHF") return "HFTokenizer";
  if (type == "SentencePieceTokenizer" || type == "GPTSentencePieceTokenizer")
    return "SPMTokenizer";
  return type;
}

Tokenizer Tokenizer::characters() {
  constexpr size_t kEntries = 512;
  TokenizerFiles files{.name = "CharLevelTokenizer", .words = Words::kWhole};
  files.tokens.resize(kEntries);
  for (size_t byte = 0; byte < 256; ++byte)
    files.tokens[byte] = to_byte_level(std::string(1, static_cast<char>(byte)));
  std::unique_ptr<Impl> impl = Impl::make(std::move(files));
  impl->end_of_document = 0;
  impl->special[0] = true;
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 1);
  encode(text, ids);
  return ids;
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const TokenizerFiles& files = impl_->files;
  ids.insert(ids.end(), files.begin.begin(), files.begin.end());
  encode_plain(text, ids);
  ids.insert(ids.end(), files.end.begin(), files.end.end());
}

void Tokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  impl_->encode(text, Impl::Place::kFirst, ids);
}

void Tokenizer::encode_next(std::string_view text, std::vector<int32_t>& ids) const {
  using Place = Impl::Place;
  if (ids.empty()) return impl_->encode(text, Place::kFirst, ids);
  bool added = std::ranges::count(impl_->files.added, ids.back(), &AddedToken::id) > 0;
  impl_->encode(text, added ? Place::kLater : Place::kInside, ids);
}

void Tokenizer::Impl::encode(std::string_view text, Place place, std::vector<int32_t>& ids) const {
  std::string repaired, composed;
  text = unicode::repair(text, repaired);
  if (spm) return spm->encode(text, ids);
  raw.split(
      text, [&](int32_t id) { ids.push_back(id); },
      [&](std::string_view piece) {
        Place here = piece.data() == text.data() ? place : Place::kLater;
        encode_normalized(normalize(piece, here, composed), here, ids);
      });
}

// At such places a word begins, and nothing composes with what is before. Added tokens of several
// spaces do not stand there; what else might lie around it makes the answer no.
bool Tokenizer::parts_at_words() const {
  const TokenizerFiles& files = impl_->files;
  if (impl_->spm || files.model || !files.begin.empty() || !files.end.empty()) return false;
  if (files.prefix_space || takes_slashes(files.words)) return false;
  if (files.words == Words::kWhole && !files.merges.empty()) return false;
  if (!std::ranges::all_of(files.pre_tokenizers, &PreTokenizer::only_digits)) return false;
  auto is_nfc = [](const Normalizer& step) {
    return step.kind == Normalizer::Kind::kForm && step.form == unicode::Form::kNfc;
  };
  if (!std::ranges::all_of(files.normalizers, is_nfc)) return false;
  return std::none_of(files.added.begin(), files.added.end(), [](const AddedToken& token) {
    bool space = token.content.find(' ') != std::string::npos;
    bool only = token.content.find_first_not_of(' ') == std::string::npos;
    bool line = token.content.find('\n') != std::string::npos && token.content != "\n";
    bool alone = token.single_word && (space || token.content == "\n");  // asks what is around it
    return token.lstrip || token.rstrip || line || alone || (space && !only);
  });
}

std::string Tokenizer::Impl::decode_by_steps(const std::vector<int32_t>& ids,
                                             Special skipped) const {
  std::vector<std::string> tokens;
  for (int32_t number : ids) {
    auto id = static_cast<size_t>(number);
    if (number < 0 || id >= texts.size() || (skipped == Special::kSkip && special[id])) continue;
    tokens.push_back(texts[id]);
  }
  return decode_tokens(files.decoder, std::move(tokens));
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, Special special) const {
  if (!impl_->files.decoder.empty()) return impl_->decode_by_steps(ids, special);
  std::string bytes, storage;
  bool begins = impl_->spm != nullptr;
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    if (special == Special::kSkip && impl_->special[static_cast<size_t>(id)]) continue;
    std::string_view text = impl_->bytes[static_cast<size_t>(id)];
    if (begins) begins = impl_->spm->strip(id, text);
    bytes += text;
  }
  return std::string(unicode::repair(bytes, storage));
}

std::string Tokenizer::token_bytes(int32_t id) const {
  return id < 0 || id >= vocab_size() ? "" : impl_->bytes[static_cast<size_t>(id)];
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<size_t>(id)];
}

bool Tokenizer::strip_begin(int32_t id, std::string& bytes) const {
  if (id < 0 || id >= vocab_size()) return true;
  if (impl_->spm) {
    std::string_view text = bytes;
    bool more = impl_->spm->strip(id, text);
    bytes = std::string(text);
    return more;
  }
  const std::vector<DecoderStep>& steps = impl_->files.decoder;
  if (steps.empty()) return false;
  bool fuses = std::ranges::count(steps, DecoderStep::Kind::kFuse, &DecoderStep::kind) > 0;
  bool nothing = bytes.empty();
  bytes = decode_token(steps, impl_->texts[static_cast<size_t>(id)], TokenPlace::kFirst);
  return nothing && fuses;
}

// FNV-1a, of the bytes of each token and a separator that no UTF-8 has.
uint64_t Tokenizer::fingerprint() const {
  uint64_t hash = 0xCBF29CE484222325;
  auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001B3; };
  for (const std::string& token : impl_->bytes) {
    for (char c : token) add(static_cast<uint8_t>(c));
    add(0xFF);
  }
  return hash;
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(impl_->bytes.size()); }

bool Tokenizer::has_end_of_document() const { return impl_->end_of_document >= 0; }

std::string Tokenizer::loss() const {
  if (impl_->files.model) {
    std::string loss = impl_->files.model->loss();
    return loss.empty() ? "" : concat("text that no token stands for ", loss);
  }
  std::vector<std::string> bytes;
  if (impl_->words)
    for (uint8_t byte : impl_->words->bpe.lost_bytes()) bytes.push_back(printed("0x%02X", byte));
  if (bytes.empty()) return "";
  return concat(counted(std::ssize(bytes), "byte"), " without a token (", join(bytes, " "),
                ") is lost");
}

int32_t Tokenizer::end_of_document() const {
  check_usage(has_end_of_document(), impl_->files.name, ": there is no token ", kEndOfDocument,
              " to end documents with, nor another that is known for it; name one in a "
              "tokenizer_config.json beside it: {\"eos_token\": \"...\"}");
  return impl_->end_of_document;
}

}  // namespace neox
