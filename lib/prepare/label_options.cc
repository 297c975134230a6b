#include "prepare/label_options.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

using Learn = ChatOptions::Learn;

constexpr const char* kOnlyWithChat[] = {"generation-role", "only-last",  "for-rm",       "no-mask",
                                         "tools-key",       "reward-key", "binary-reward"};

std::vector<int32_t> read_ids(const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string& part : split(text, ',')) {
    int32_t id = number_of<int32_t>(trim(part)).value_or(-1);
    check_usage(id >= 0, "--mask-before-token ", text, ": '", part,
                "' is no token id; give the ids of a text that stands before what is learnt, such "
                "as 0,1,1270");
    ids.push_back(id);
  }
  return ids;
}

Learn read_learn(const Program& program) {
  Learn learn = Learn::kReplies;
  std::string given;
  for (auto [option, value] :
       {std::pair{"only-last", Learn::kLastTurn}, std::pair{"for-rm", Learn::kVerdict},
        std::pair{"no-mask", Learn::kEverything}}) {
    if (!program.has(option)) continue;
    check_usage(given.empty(), "--", given, " and --", option, " exclude each other");
    given = option;
    learn = value;
  }
  return learn;
}

void check_no_conversation(const char* option, const std::string& key, const DocumentRules& rules) {
  check_usage(std::ranges::find(rules.keys, key) == rules.keys.end(), "--", option, " ", key,
              " is a key of --jsonl-keys, too, which are conversations");
}

void read_tools_key(const Program& program, const ChatTemplate& style, DocumentRules& rules) {
  rules.tools = program.given<std::string>("tools-key");
  if (!rules.tools) return;
  check_no_conversation("tools-key", *rules.tools, rules);
  check_writes_tools(style);
}

void read_reward_rule(const Program& program, DocumentRules& rules) {
  bool binary = program.has("binary-reward");
  auto key = program.given<std::string>("reward-key");
  check_usage(key || !binary, "--binary-reward goes with --reward-key KEY");
  if (!key) return;
  check_no_conversation("reward-key", *key, rules);
  rules.reward = {*key, binary ? RewardRule::As::kSign : RewardRule::As::kNumber};
}

// In turns, of which those to learn are apart.
std::vector<ChatTurn> turns_of(std::string_view json, std::string_view tools,
                               const ChatOptions& chat) {
  Apart apart = chat.learn == ChatOptions::Learn::kReplies    ? Apart::kReplies
                : chat.learn == ChatOptions::Learn::kLastTurn ? Apart::kLastReply
                                                              : Apart::kNone;
  return render_chat(parse_conversation(json, chat.style, tools), chat.style, chat.role, apart);
}

void read_chat(const Program& program, PrepareOptions& options) {
  SpecialTokens special = special_tokens_beside(options.tokenizer.vocab);
  ChatOptions chat{.style = with_special_tokens(
                       read_chat_template(program.get<std::string>("chat-template")), special),
                   .eos = special.eos,
                   .learn = read_learn(program)};
  if (program.has("generation-role")) chat.role = program.get<std::string>("generation-role");
  check_generation_role(chat.style, chat.role);
  if (program.args()["jsonl-keys"].defaulted()) options.rules.keys = {"conversation"};
  options.rules.values = DocumentRules::Values::kJson;
  read_reward_rule(program, options.rules);
  read_tools_key(program, chat.style, options.rules);
  options.rules.turns = [chat](std::string_view json, std::string_view tools) {
    return turns_of(json, tools, chat);
  };
  options.chat = std::move(chat);
}

}  // namespace

void add_label_options(Program& program) {
  auto add = program.options().add_options();
  add("mask-before-token", text("ID[,ID...]"),
      "write labels too: nothing is learnt up to where these tokens stand in a row");
  add("chat-template", text("NAME|FILE|DIR"),
      "JSON lines hold conversations: write them as text by this template (of a name such as "
      "chatml, of a file, or of the directory of a tokenizer), and labels");
  add("generation-role", text("ROLE"), "whose messages are learnt (assistant)");
  add("only-last", "learn the last message alone");
  add("for-rm", "learn the last token alone, for a reward model");
  add("no-mask", "learn all of a conversation: no labels");
  add("tools-key", text("KEY"),
      "give the template the tools of this key, a list, which a line may lack");
  add("reward-key", text("KEY"), "write the number of this key, too, for train_impl: kto");
  add("binary-reward", "write 1 where the value of --reward-key is true, else -1");
}

void read_label_options(const Program& program, PrepareOptions& options) {
  bool chat = program.has("chat-template");
  for (const char* option : kOnlyWithChat)
    check_usage(chat || !program.has(option), "--", option, " goes with --chat-template NAME");
  check_usage(!chat || !program.has("mask-before-token"),
              "--mask-before-token and --chat-template exclude each other: a template knows where "
              "replies begin");
  if (chat) return read_chat(program, options);
  if (!program.has("mask-before-token")) return;
  options.mask_before = read_ids(program.get<std::string>("mask-before-token"));
  const std::vector<std::string>& keys = options.rules.keys;
  check_usage(keys.size() == 1 && keys[0] != "label",
              "--mask-before-token writes the labels of one key of --jsonl-keys into "
              "<prefix>_label_document; given are ",
              join(keys, " "));
}

}  // namespace neox
