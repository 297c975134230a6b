#include "prepare/encoded_block.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "data/dataset_builder.h"

namespace neox {
namespace {

constexpr size_t kPiece = 1 << 15;     // tokens that stay in the cache until they are narrowed
constexpr size_t kLongText = 1 << 20;  // bytes

class Encoding {
 public:
  Encoding(const EncodingRules& rules, EncodedBlock& to) : rules_(rules), to_(to) {}

  void begin(size_t keys) {
    to_.keys.resize(keys);
    for (EncodedKey& key : to_.keys) {
      key.tokens.clear();
      key.labels.clear();
      key.lengths.clear();
      key.rewards.clear();
    }
    to_.documents.clear();
  }

  // All documents for one key, so that their tokens are narrowed many at a time.
  void add_key(const std::vector<Document>& documents, size_t key, DocumentEncoder::Part part) {
    EncodedKey& out = to_.keys[key];
    for (size_t i = 0; i < documents.size(); ++i) {
      int64_t count = add_document(documents[i], key, part, out);
      out.lengths.push_back(count);
      if (rules_.documents.reward) out.rewards.push_back(documents[i].reward.value);
      to_.documents[i].text_bytes += static_cast<int64_t>(documents[i].texts[key].size());
      to_.documents[i].empty &= count == 0;
    }
    move_to(out);
  }

  // Pairs of answers go with each other, document by document: what is empty for one of the keys is
  // left out of all.
  void leave_out_partly_empty() {
    std::vector<bool> out(to_.documents.size());
    for (size_t i = 0; i < out.size(); ++i)
      out[i] =
          std::ranges::any_of(to_.keys, [&](const EncodedKey& k) { return k.lengths[i] == 0; });
    for (EncodedKey& key : to_.keys) {
      size_t from = 0, to = 0;
      for (size_t i = 0; i < out.size(); ++i) {
        auto count = static_cast<size_t>(key.lengths[i]);
        if (!out[i]) {
          move_tokens(key, from, to, count);
          to += count;
        }
        from += count;
        if (out[i]) key.lengths[i] = 0;
      }
      key.tokens.resize(to * bytes_of_token());
      if (!key.labels.empty()) key.labels.resize(to * sizeof(int32_t));
    }
    for (size_t i = 0; i < out.size(); ++i) to_.documents[i].empty = out[i];
  }

 private:
  // Returns the number of tokens.
  int64_t add_document(const Document& document, size_t key, DocumentEncoder::Part part,
                       EncodedKey& out) {
    if (document.chats.empty()) return add_text(document.texts[key], part, out);
    return add(out, [&] { rules_.encoder.encode_chat(document.chats[key], tokens_, labels_); });
  }

  // A very long text goes in parts, as that of a file does.
  int64_t add_text(std::string_view text, DocumentEncoder::Part part, EncodedKey& out) {
    int64_t count = 0;
    while (text.size() > kLongText && rules_.texts == BlockRules::Texts::kParts) {
      size_t cut = next_cut(text, kLongText, InputFile::Format::kText, {.texts = rules_.texts});
      if (cut == text.size()) break;
      count += add_part(text.substr(0, cut), DocumentEncoder::Part::kGoesOn, out);
      text.remove_prefix(cut);
    }
    return count + add_part(text, part, out);
  }

  int64_t add_part(std::string_view text, DocumentEncoder::Part part, EncodedKey& out) {
    return add(out, [&] { rules_.encoder.encode(text, part, tokens_, labels_); });
  }

  int64_t add(EncodedKey& out, auto&& encode) {
    size_t before = tokens_.size();
    encode();
    auto count = static_cast<int64_t>(tokens_.size() - before);
    if (tokens_.size() >= kPiece) move_to(out);
    return count;
  }

  size_t bytes_of_token() const { return static_cast<size_t>(token_bytes(rules_.type)); }

  void move_tokens(EncodedKey& key, size_t from, size_t to, size_t count) const {
    auto move = [&](std::vector<std::byte>& bytes, size_t size) {
      if (!bytes.empty() && from != to)
        std::memmove(bytes.data() + to * size, bytes.data() + from * size, count * size);
    };
    move(key.tokens, bytes_of_token());
    move(key.labels, sizeof(int32_t));
  }

  void move_to(EncodedKey& out) {
    append_tokens(tokens_, rules_.type, rules_.vocab, 0, out.tokens);
    append_tokens(labels_, TokenType::kInt32, rules_.vocab, kMaskedLabel, out.labels);
    tokens_.clear();
    labels_.clear();
  }

  const EncodingRules& rules_;
  EncodedBlock& to_;
  std::vector<int32_t>& tokens_ = to_.tokens_wanted;
  std::vector<int32_t>& labels_ = to_.labels_wanted;
};

}  // namespace

int64_t EncodedKey::num_tokens(size_t documents) const {
  return std::accumulate(lengths.begin(), lengths.begin() + static_cast<int64_t>(documents),
                         int64_t{0});
}

std::vector<int32_t> EncodedKey::kept_rewards(size_t documents) const {
  std::vector<int32_t> kept;
  for (size_t i = 0; i < std::min(documents, rewards.size()); ++i)
    if (lengths[i] > 0) kept.push_back(rewards[i]);
  return kept;
}

void encode_block(const Block& block, const EncodingRules& rules, EncodedBlock& encoded) {
  Documents found = parse_block(block, rules.documents);
  auto part = block.ends_document ? DocumentEncoder::Part::kLast : DocumentEncoder::Part::kGoesOn;
  Encoding encoding(rules, encoded);
  encoding.begin(rules.documents.keys.size());
  for (const Document& document : found.documents)
    encoded.documents.push_back({.repaired = document.repaired});
  for (size_t key = 0; key < encoded.keys.size(); ++key)
    encoding.add_key(found.documents, key, part);
  if (rules.documents.are_pairs()) encoding.leave_out_partly_empty();
  encoded.skipped = found.skipped;
  encoded.skipped_at = std::move(found.skipped_at);
  encoded.replaced = std::move(found.replaced);
  encoded.error = std::move(found.error);
}

}  // namespace neox
