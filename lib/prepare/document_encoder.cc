#include "prepare/document_encoder.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/indexed_dataset.h"

namespace neox {
namespace {

using Learn = ChatOptions::Learn;

constexpr size_t kRolesShown = 5;

bool learns_turns(const std::optional<ChatOptions>& chat) {
  return chat && (chat->learn == Learn::kReplies || chat->learn == Learn::kLastTurn);
}

}  // namespace

bool writes_labels(const PrepareOptions& options) {
  return !options.mask_before.empty() ||
         (options.chat && options.chat->learn != Learn::kEverything);
}

std::string label_name(const PrepareOptions& options, const std::string& key) {
  return options.chat ? key + "_label" : "label";
}

DocumentEncoder::DocumentEncoder(const PrepareOptions& options, const Tokenizer& tokenizer)
    : options_(options),
      tokenizer_(tokenizer),
      found_(options.mask_before.empty() && !learns_turns(options.chat)) {
  const std::string& vocab = options.tokenizer.vocab;
  if (options.end_of_document == PrepareOptions::EndOfDocument::kAppend)
    check_usage(tokenizer.has_end_of_document(), vocab,
                " has no token <|endoftext|>, nor another that is known to end documents, which "
                "--append-eod wants to append; name one in a tokenizer_config.json beside it "
                "({\"eos_token\": \"...\"}), or leave --append-eod out");
  for (int32_t id : options.mask_before)
    check_usage(id < tokenizer.vocab_size(), "--mask-before-token names the token ", id, "; ",
                vocab, " has ", with_commas(tokenizer.vocab_size()));
  if (!options.chat) return;
  check_usage(Tokenizer::reads_files(options.tokenizer.type) &&
                  !Tokenizer::is_sentencepiece(options.tokenizer.type),
              "--chat-template with --tokenizer-type ", options.tokenizer.type,
              ": conversations need a tokenizer whose texts can hold the token that ends them: "
              "give the tokenizer.json of the model (--tokenizer-type HFTokenizer --vocab-file "
              "tokenizer.json)");
  std::vector<int32_t> eos;
  tokenizer.encode_plain(options.chat->eos, eos);
  check_usage(eos.size() == 1, "the token '", options.chat->eos, "' that ends conversations is ",
              eos.size(), " tokens of ", vocab,
              "; name the right one as eos_token in a tokenizer_config.json beside it");
  eos_ = eos[0];
}

bool DocumentEncoder::takes_parts() const {
  return !options_.chat && !has_labels() && tokenizer_.parts_at_words();
}

void DocumentEncoder::encode(std::string_view text, Part part, std::vector<int32_t>& tokens,
                             std::vector<int32_t>& labels) const {
  check(!options_.chat && (part == Part::kLast || takes_parts()),
        "a part of a text where all of it is wanted");
  size_t begin = tokens.size();
  encode_text(text, part, tokens);
  if (has_labels()) mask_beginning(begin, tokens, labels);
}

void DocumentEncoder::encode_text(std::string_view text, Part part,
                                  std::vector<int32_t>& tokens) const {
  if (text.empty()) return;  // no document, also where the tokenizer puts a token in front of texts
  size_t before = tokens.size();
  tokenizer_.encode(text, tokens);
  bool append = options_.end_of_document == PrepareOptions::EndOfDocument::kAppend;
  if (append && part == Part::kLast && tokens.size() > before)
    tokens.push_back(tokenizer_.end_of_document());
}

// Up to and with the first place where all of the tokens asked for stand in a row; where there is
// none, everything is learnt.
void DocumentEncoder::mask_beginning(size_t begin, const std::vector<int32_t>& tokens,
                                     std::vector<int32_t>& labels) const {
  const std::vector<int32_t>& wanted = options_.mask_before;
  auto first = tokens.begin() + static_cast<int64_t>(begin);
  auto found = std::search(first, tokens.end(), wanted.begin(), wanted.end());
  if (!found_ && found != tokens.end()) found_ = true;
  auto learnt = found == tokens.end() ? first : found + static_cast<int64_t>(wanted.size());
  labels.insert(labels.end(), static_cast<size_t>(learnt - first), kMaskedLabel);
  labels.insert(labels.end(), learnt, tokens.end());
}

// The template says what stands around a conversation. Each turn is tokenized alone: what asks for
// a reply has the tokens that it has when the model is asked, and a token is never half of the
// question and half of the reply. GPT-NeoX's tool takes tokenize(messages 0 .. i) without its first
// tokenize(messages 0 .. i - 1).size() tokens, which is the same where nothing merges across the
// border of messages, and another text where it does.
void DocumentEncoder::encode_chat(const std::vector<ChatTurn>& turns, std::vector<int32_t>& tokens,
                                  std::vector<int32_t>& labels) const {
  const ChatOptions& chat = *options_.chat;
  size_t begin = tokens.size();
  if (!learns_turns(chat)) {
    std::string whole;
    for (const ChatTurn& turn : turns) whole += turn.text;
    tokenizer_.encode_plain(whole, tokens);
    if (has_labels()) labels.resize(labels.size() + tokens.size() - begin, kMaskedLabel);
    return end_chat(begin, tokens, labels);
  }
  for (const ChatTurn& turn : turns) {
    size_t from = tokens.size();
    if (from == begin)
      tokenizer_.encode_plain(turn.text, tokens);
    else
      tokenizer_.encode_next(turn.text, tokens);
    bool learnt =
        turn.role == chat.role && (chat.learn == Learn::kReplies || &turn == &turns.back());
    if (learnt && !found_) found_ = true;
    if (learnt)
      labels.insert(labels.end(), tokens.begin() + static_cast<int64_t>(from), tokens.end());
    else
      labels.resize(labels.size() + tokens.size() - from, kMaskedLabel);
  }
  if (!found_ && !turns.empty()) note_role(turns.back().role);
  end_chat(begin, tokens, labels);
}

void DocumentEncoder::note_role(const std::string& role) const {
  std::lock_guard lock(mutex_);
  if (roles_.size() <= kRolesShown) roles_.insert(role);
}

std::string DocumentEncoder::no_marks() const {
  if (!options_.chat) {
    std::vector<std::string> ids;
    for (int32_t id : options_.mask_before) ids.push_back(std::to_string(id));
    return concat("the tokens of --mask-before-token (", join(ids, ","),
                  ") stand in a row in no document, so the labels mask nothing, and questions "
                  "would be learnt, too");
  }
  std::lock_guard lock(mutex_);
  std::vector<std::string> roles(roles_.begin(), roles_.end());
  if (roles.size() > kRolesShown) roles.back() = "...";
  bool last = options_.chat->learn == Learn::kLastTurn;
  return concat("no conversation ", last ? "ends with" : "has", " a message of the role '",
                options_.chat->role, "', so the labels mask everything, and nothing would be ",
                "learnt", roles.empty() ? "" : "; they end with the roles " + join(roles, ", "),
                ": name the role to learn as --generation-role");
}

// reset_attention_mask looks for the end of a document, and finds it there; one that the
// conversation begins with hides nothing of it.
void DocumentEncoder::look_for_ends(std::span<const int32_t> conversation) const {
  if (!tokenizer_.has_end_of_document() || conversation.empty()) return;
  auto inside = conversation.first(conversation.size() - 1);
  int32_t end = tokenizer_.end_of_document();
  auto first = std::ranges::find_if(inside, [end](int32_t token) { return token != end; });
  if (std::find(first, inside.end(), end) == inside.end()) return;
  if (!said_.exchange(true))
    log_warning(
        "a conversation has the token that ends documents (id ", end,
        ") between its messages, by the template's {eos} or in a text: train without "
        "reset_attention_mask and reset_position_ids, which would hide from a reply what stands "
        "before that token, or take a template, or texts, without it");
}

// As GPT-NeoX's tool: nothing where all is learnt; two tokens where a verdict is, of which the
// second is the input that it is read from; else one, which is learnt where the last turn is.
void DocumentEncoder::end_chat(size_t begin, std::vector<int32_t>& tokens,
                               std::vector<int32_t>& labels) const {
  if (tokens.size() == begin) return;
  look_for_ends(std::span(tokens).subspan(begin));
  auto add = [&](int32_t token, bool learnt) {
    tokens.push_back(token);
    if (has_labels()) labels.push_back(learnt ? token : kMaskedLabel);
  };
  auto last_learnt = [&] { return !has_labels() || labels.back() != kMaskedLabel; };
  if (options_.chat->learn == Learn::kVerdict) add(eos_, false);
  if (options_.chat->learn == Learn::kVerdict) add(eos_, true);
  if (options_.chat->learn == Learn::kReplies || options_.chat->learn == Learn::kLastTurn)
    add(eos_, last_learnt());
  if (options_.end_of_document == PrepareOptions::EndOfDocument::kAppend)
    add(tokenizer_.end_of_document(), last_learnt());
}

}  // namespace neox
