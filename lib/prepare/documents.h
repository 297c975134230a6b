// The documents of a block of input: the texts of JSON lines by their keys, or the parts of a text.
// Pure functions; any thread may call them.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat.h"
#include "prepare/blocks.h"
#include "prepare/text_store.h"

namespace neox {

// A number that stands beside a text of JSON lines.
struct Reward {
  int32_t value = 0;
  std::string_view cut = {};  // as it stands there, where it has a fraction, which value has not
};

// One line of JSON, or one document of text.
struct Document {
  std::vector<std::string_view> texts = {};  // one for each key; valid UTF-8
  bool repaired = false;                     // had bytes or escapes that are no Unicode
  Reward reward = {};
  std::string_view tools = {};                    // JSON; "": none
  std::vector<std::vector<ChatTurn>> chats = {};  // one for each text, by DocumentRules::turns
};

// What of JSON lines is a reward.
struct RewardRule {
  std::string key;
  // kSign: 1 for what Python takes as true, else -1.
  enum class As { kNumber, kSign } as = As::kNumber;
};

// Of a JSON value, as GPT-NeoX's preprocess_data_with_chat_template.py writes it: a whole number
// that a fraction is cut from, 1 or 0 for true or false. Throws Error (74) for other values.
Reward read_reward(std::string_view json, RewardRule::As as);

class WikiArticles;

struct DocumentRules {
  std::vector<std::string> keys = {"text"};
  std::string separator = {};  // lines that part the documents of a text; "": one document
  enum class BadLines { kFail, kSkip } bad_lines = BadLines::kFail;
  // What is taken of JSON lines: strings, or the JSON of a value of any type as it stands there.
  enum class Values { kStrings, kJson } values = Values::kStrings;
  // What becomes of a document with bytes that are not UTF-8 or escapes of lone surrogates.
  enum class InvalidUtf8 { kReplace, kSkip, kFail } invalid_utf8 = InvalidUtf8::kReplace;
  // Where the texts of JSON lines are conversations: the turns of one, whose model may call these
  // tools. Throws Error (74).
  std::function<std::vector<ChatTurn>(std::string_view chat, std::string_view tools)> turns = {};
  // Keys of JSON lines whose values are kJson.
  std::optional<RewardRule> reward = {};  // none: none
  std::optional<std::string> tools = {};  // of all conversations of a line; it may lack them
  std::shared_ptr<const WikiArticles> wiki = {};  // where files are dumps of MediaWiki

  // The members of JSON lines that are taken.
  std::vector<std::string> members() const;
  // Whether the keys name the two answers of pairs, as preference optimization takes them.
  bool are_pairs() const;
};

// So many messages about bad lines are shown of a rank, and may be needed of a block.
constexpr size_t kBadLinesShown = 5;

// The texts are views into the block and into `storage`, both of which must outlive their use.
struct Documents {
  std::vector<Document> documents;
  int64_t skipped = 0;                  // bad lines
  std::vector<std::string> skipped_at;  // about the first of them, as Block::place_in_slice()
  std::vector<std::string> replaced;    // the same about the first of what was not kept as it is
  std::string error;                    // what ended the block early: "file:line: ..."
  TextStore storage;
};

// A text counts for every key. Blank lines of JSON and blank parts of text are no documents.
Documents parse_block(const Block& block, const DocumentRules& rules);

}  // namespace neox
