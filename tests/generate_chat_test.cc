// Conversations with a model: the tokens that its replies follow, and neox-generate's part in them.
#include <sstream>

#include "base/text.h"
#include "generate/conversation.h"
#include "generate/session.h"
#include "generate_program.h"

namespace neox::testing {
namespace {

ChatTemplate style(const char* name) {
  return with_special_tokens(
      read_chat_template(name, NEOX_SOURCE_DIR "/configs/chat_templates.yml"),
      {"<|endoftext|>", "<|endoftext|>"});
}

std::string text_of(const Conversation& chat, const std::string& message,
                    const Tokenizer& tokenizer) {
  return tokenizer.decode(chat.asked(message), Tokenizer::Special::kKeep);
}

struct Conversations : ::testing::Test {
  fs::path file = fs::path(::testing::TempDir()) / "neox_chat_tokenizer.json";
  Tokenizer tokenizer = chat_tokenizer(file);
  void TearDown() override { fs::remove(file); }
};

TEST_F(Conversations, GoOnWithWhatWasSaid) {
  Conversation chat(style("chatml"), "be the", tokenizer);
  const std::string first =
      "<|im_start|>system\nbe the<|im_end|>\n<|im_start|>user\nof<|im_end|>\n"
      "<|im_start|>assistant\n";
  EXPECT_EQ(text_of(chat, "of", tokenizer), first);
  chat.add("of", "and");
  EXPECT_EQ(text_of(chat, "the", tokenizer),
            first + "and<|im_end|>\n<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat.ends(), std::vector<int32_t>{tokenizer.encode("<|im_end|>").at(0)});
  chat.begin_anew();
  EXPECT_EQ(text_of(chat, "of", tokenizer), first);
}

TEST_F(Conversations, FollowTheirTemplate) {
  Conversation chat(style("llama2"), "be the", tokenizer);
  EXPECT_EQ(text_of(chat, " of ", tokenizer),
            "<|endoftext|>[INST] <<SYS>>\nbe the\n<</SYS>>\n\n of [/INST]");
  EXPECT_EQ(chat.ends(), std::vector<int32_t>{tokenizer.end_of_document()});
  try {
    Conversation(style("mistral"), "be the", tokenizer).asked("of");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kUsage);
    EXPECT_TRUE(has(e.what(), "message 1 is of the role 'system'; the template mistral has"));
  }
}

TEST_F(Conversations, TakeWhatIsNoUtf8AsTextsDo) {
  Conversation chat(style("plain"), "\xF7\xBF\xBF\xBF", tokenizer);
  std::string asked = text_of(chat, "of \xE2\x80", tokenizer);
  EXPECT_TRUE(asked.starts_with("System: \uFFFD")) << asked;
  EXPECT_TRUE(asked.ends_with("User: of \uFFFD\nAssistant:")) << asked;
  chat.add("\xFF", "and");
  EXPECT_TRUE(has(text_of(chat, "the", tokenizer), "User: \uFFFD\nAssistant: and"));
}

TEST_F(Conversations, NeedRepliesThatBeginWithWhatAsksForThem) {
  Directory dir;
  auto refusal = [&](const std::string& assistant) {
    std::string t = dir.put("t.yml",
                            "chat_templates: [{name: t, generation_prompt: \"As:\", roles: ["
                            "{role: user}, {role: assistant" +
                                assistant + "}]}]");
    return error_of([&] { chat_template_for(t, dir / "tokenizer.json", tokenizer); });
  };
  EXPECT_EQ(refusal(", before: \"As: \""), "");
  for (const char* other :
       {"", ", before: B", ", before: \"Bot: \"", ", before: \"As:\", within: user"})
    EXPECT_EQ(refusal(other),
              "64: the chat template t asks for a reply by 'As:', with which messages of the role "
              "'assistant' do not begin");
}

// As SentencePiece's do: the model would not know the letters of </s>.
TEST_F(Conversations, NeedATokenizerWhoseTextsHoldTheirSpecialTokens) {
  Directory dir;
  dir.put("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const std::string vocab = dir / "tokenizer.model";
  Tokenizer letters = Tokenizer::characters();
  auto refusal = [&](const std::string& style) {
    return error_of([&] { chat_template_for(style, vocab, letters); });
  };
  for (const char* style : {"mistral", "llama2", "plain"})
    EXPECT_TRUE(refusal(style).starts_with(concat("64: by the chat template ", style,
                                                  " conversations hold '</s>', which is 4 tokens "
                                                  "of ",
                                                  vocab, ": ")))
        << refusal(style);
  auto jinja = [&](const std::string& source) { return dir.put("t.jinja", source); };
  const std::string kEach = "{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_TRUE(has(refusal(jinja("{{ bos_token }}" + kEach)), "hold '<s>', which is 3 tokens"));
  // Without such tokens, with markers that are text to models without them, and where it cannot be
  // seen.
  for (const std::string& fine :
       {std::string("chatml"), jinja(kEach), jinja("{{ raise_exception('a system first') }}")})
    EXPECT_EQ(refusal(fine), "");
  // <|endoftext|> is a token here.
  EXPECT_EQ(error_of([&] { chat_template_for("plain", file, tokenizer); }), "");
}

TEST_F(Conversations, OfAFileNeedNoTableOfTemplates) {
  Directory dir;
  const std::string table = dir / "nowhere.yml", source = dir.put("t.jinja", "the");
  EXPECT_EQ(error_of([&] { read_chat_template(source, table); }), "");
  EXPECT_TRUE(has(error_of([&] { read_chat_template("chatml", table); }), table));
}

const std::string kAsked = "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n";

TEST_F(GenerateProgram, AMessageIsAnsweredAsItsTextIsContinued) {
  // Its tokenizer writes the markers in many tokens, which is said.
  auto with_room = [](Strings arguments) {
    arguments.insert(arguments.end(), {"--set", "max_position_embeddings=512"});
    return generate(arguments);
  };
  Ended reply = with_room({"--chat-template", "chatml", "--prompt", "the"});
  EXPECT_EQ(kAsked + reply.out, with_room({"--prompt", kAsked}).out);
  EXPECT_TRUE(has(reply.err, "<|im_start|> of the chat template chatml is")) << reply.err;
  nlohmann::json line = nlohmann::json::parse(
      with_room({"--chat-template", "chatml", "--prompt", "the", "--json"}).out);
  EXPECT_EQ(line.at("context"), "the");
  EXPECT_EQ(line.at("text").get<std::string>() + "\n", reply.out);
}

TEST_F(GenerateProgram, ATypedPromptGoesUpToItsEnd) {
  auto type = [](const std::string& typed, Strings overrides) {
    SessionOptions options{.checkpoint = run().save(), .max_tokens = 3};
    options.overrides = std::move(overrides);
    options.form = TextForm::kPlain;
    std::istringstream in(typed);
    std::ostringstream out;
    run_session(options, in, out, true);
    return out.str();
  };
  std::string lines = type("the\nand###\n", {"prompt_end=\"###\""});
  EXPECT_TRUE(has(lines, "Type a prompt of any lines, ### and Enter")) << lines;
  size_t first = lines.find("> ") + 2;
  EXPECT_EQ(lines.substr(first, 7), "the\nand") << lines;  // as one prompt, without its end
  EXPECT_EQ(lines.find("> ", first), lines.rfind("> ")) << lines;
  EXPECT_EQ(type("the\nand", {"prompt_end=\"###\""}), lines);  // or up to where no more is typed
  EXPECT_FALSE(has(type("the\nand\n", {}), "the\nand"));
}

TEST_F(GenerateProgram, ATypedConversationGoesOnUntilAnEmptyLine) {
  auto talk = [](const std::string& typed) {
    SessionOptions options{.checkpoint = run().save(), .max_tokens = 3};
    options.chat_template = "plain";
    std::istringstream in(typed);
    std::ostringstream out;
    run_session(options, in, out, true);
    return out.str();
  };
  std::string once = talk("the\n"), twice = talk("the\n\nthe\n");
  size_t begin = once.find("> ") + 2, end = once.rfind("> ");
  std::string reply = once.substr(begin, end - begin);
  EXPECT_EQ(twice, once.substr(0, end) + "> > " + reply + "> \n");
  // What was said before counts: it does not fit at last.
  std::string words;
  for (int i = 0; i < 12; ++i) words += "and ";
  std::string many = talk(words + "\n" + words + "\n" + words + "\n" + words + "\n");
  EXPECT_TRUE(has(many, "shorten the prompt; an empty line begins a new conversation")) << many;
  EXPECT_FALSE(has(talk(words + "\n\n" + words + "\n\n" + words + "\n"), "shorten"));
}

TEST_F(GenerateProgram, ASystemMessageWantsATemplate) {
  Ended ended = start({"--system", "be brief", "--prompt", "the"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "--system goes with --chat-template NAME")) << ended.err;
}

}  // namespace
}  // namespace neox::testing
