#include "generate/session.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "generate/answers.h"
#include "generate/conversation.h"
#include "generate/generate.h"
#include "generate/load.h"
#include "generate/text_stream.h"
#include "launch/cpu.h"
#include "model/device.h"
#include "ops/random.h"

namespace neox {
namespace {

struct Prompt {
  std::string text, where = {};  // "prompts.txt:12"
};

class Session {
 public:
  Session(const SessionOptions& options, std::ostream& out)
      : options_(options),
        out_(out),
        loaded_(options.checkpoint, options.overrides, pick_device(environment())) {
    if (options.chat_template.empty()) return;
    const Tokenizer& tokenizer = loaded_.tokenizer();
    chat_.emplace(
        chat_template_for(options.chat_template, loaded_.config().tokenizer.vocab_file, tokenizer),
        options.system, tokenizer);
  }
  const std::string& prompt_end() const { return loaded_.config().generate.prompt_end; }

  // The tokens of the texts of all prompts, in their order.
  std::vector<std::vector<int32_t>> answer(const std::vector<Prompt>& prompts) {
    std::vector<TextRequest> requests;
    Answers answers(loaded_.tokenizer(), options_.form, out_);
    for (const auto& [prompt, where] : prompts) {
      auto tokens = tokens_of(prompt, where);
      int64_t repeat = repeats_[prompt]++;
      for (int64_t i = 0; i < options_.num_samples; ++i) {
        requests.push_back({tokens, sampling(prompt, repeat, i)});
        answers.add(prompt, chat_ ? "" : prompt);
      }
    }
    TextOptions options{
        .batch_size = options_.batch_size,
        .on_start = [&](size_t i) { answers.start(i); },
        .on_token = [&](size_t i, int32_t token) { return answers.add(i, token), true; },
        .on_end = [&](size_t i, TextEnd how) { answers.end(i, how); }};
    options.ends = loaded_.ends();
    if (chat_) std::ranges::copy(chat_->ends(), std::back_inserter(options.ends));
    return generate(loaded_.model(), requests, options);
  }

  // One turn of a conversation.
  void reply_to(const std::string& message) {
    auto texts = answer({{message}});
    chat_->add(message, loaded_.tokenizer().decode(texts.front()));
  }
  bool chats() const { return chat_.has_value(); }
  void begin_anew() { chat_->begin_anew(); }

 private:
  std::vector<int32_t> tokens_of(const std::string& prompt, const std::string& where) {
    try {
      const ModelConfig& model = loaded_.model().config();
      auto tokens =
          chat_ ? chat_->asked(prompt) : prompt_tokens(prompt, loaded_.tokenizer(), model);
      if (chat_) check_room(prompt, tokens, model);
      say_room(num_positions(model) - std::ssize(tokens));
      return tokens;
    } catch (const Error& e) {
      if (where.empty()) throw;
      fail(e.exit(), where, ": ", e.what());
    }
  }

  // Once, where the model has no positions for as many tokens as were asked for.
  void say_room(int64_t room) {
    if (!options_.max_tokens || room >= *options_.max_tokens || std::exchange(said_room_, true))
      return;
    log_info("--max-tokens ", *options_.max_tokens, ": behind its prompt a text has room for ",
             counted(room, "token"), ", since the model has ",
             num_positions(loaded_.model().config()), " positions");
  }

  // repeat: how many equal prompts were before.
  Sampling sampling(const std::string& prompt, int64_t repeat, int64_t sample) const {
    const GenerateConfig& defaults = loaded_.config().generate;
    bool greedy = options_.temperature == 0.0;  // where nothing else is asked for
    return {.max_tokens = options_.max_tokens.value_or(defaults.max_tokens),
            .temperature = options_.temperature.value_or(defaults.temperature),
            .top_k = options_.top_k.value_or(greedy ? 0 : defaults.top_k),
            .top_p = options_.top_p.value_or(greedy ? 0 : defaults.top_p),
            .min_p = options_.min_p,
            .vocab = loaded_.tokenizer().vocab_size(),
            .key = random_key(options_.seed, concat("generate.", sample, ".", repeat, ".", prompt)),
            .repetition_penalty = options_.repetition_penalty};
  }

  const SessionOptions& options_;
  std::ostream& out_;
  LoadedModel loaded_;
  std::optional<Conversation> chat_;
  std::map<std::string, int64_t> repeats_;  // of prompts
  bool said_room_ = false;
};

std::optional<std::string> next_line(std::istream& in) {
  std::string line;
  return std::getline(in, line) ? std::optional(line) : std::nullopt;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

// The prompts of a file, without the blanks around them, as GPT-NeoX takes them.
std::vector<Prompt> prompts_in(std::string_view text, const std::string& end,
                               const std::string& name) {
  text = without_byte_order_mark(text);
  std::vector<Prompt> prompts;
  int64_t line = 1;
  for (size_t at = 0; at <= text.size();) {
    size_t next = std::min(text.find(end, at), text.size());
    std::string_view piece = text.substr(at, next - at), prompt = trim(piece);
    auto before =
        piece.substr(0, prompt.empty() ? 0 : static_cast<size_t>(prompt.data() - piece.data()));
    int64_t begins = line + std::ranges::count(before, '\n');
    if (!prompt.empty()) prompts.push_back({std::string(prompt), concat(name, ":", begins)});
    line += std::ranges::count(text.substr(at, next + end.size() - at), '\n');
    at = next + end.size();
  }
  check_io(!prompts.empty(), name, " holds no prompt; write one a line");
  return prompts;
}

std::string all_of(std::istream& in) {
  std::ostringstream text;
  if (in.peek() != std::istream::traits_type::eof()) text << in.rdbuf();
  return text.str();
}

}  // namespace

SessionOptions session_options(const Program& program) {
  SessionOptions o{.checkpoint = checkpoint_option(program, "neox-generate")};
  o.prompts = program.list("prompt");
  o.overrides = override_options(program);
  if (program.has("json")) o.form = TextForm::kJson;
  o.chat_template = program.given<std::string>("chat-template").value_or("");
  o.system = program.given<std::string>("system").value_or("");
  check_usage(o.system.empty() || !o.chat_template.empty(),
              "--system goes with --chat-template NAME, which says how messages are written");
  o.file = program.given<std::string>("file").value_or("");
  o.max_tokens = program.given<int64_t>("max-tokens");
  o.top_k = program.given<int64_t>("top-k");
  o.temperature = program.given<double>("temperature");
  o.top_p = program.given<double>("top-p");
  o.min_p = program.get<double>("min-p");
  o.repetition_penalty = program.get<double>("repetition-penalty");
  o.seed = program.get<int64_t>("seed");
  o.num_samples = program.get<int64_t>("num-samples");
  o.batch_size = program.get<int64_t>("batch-size");
  check_usage(o.batch_size > 0, "--batch-size ", o.batch_size, ": must be at least 1");
  check_usage(o.max_tokens.value_or(1) > 0, "--max-tokens ", o.max_tokens.value_or(1),
              ": must be at least 1");
  check_usage(o.num_samples > 0, "--num-samples ", o.num_samples, ": must be at least 1");
  check_usage(o.temperature.value_or(0) >= 0 && std::isfinite(o.temperature.value_or(0)),
              "--temperature ", o.temperature.value_or(0), ": must be a number from 0 on");
  check_usage(o.top_p.value_or(0) >= 0 && o.top_p.value_or(0) <= 1, "--top-p ", o.top_p.value_or(0),
              ": must lie in 0..1");
  check_usage(o.min_p >= 0 && o.min_p <= 1, "--min-p ", o.min_p, ": must lie in 0..1");
  check_usage(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty),
              "--repetition-penalty ", o.repetition_penalty, ": must be above 0, such as 1.2");
  check_usage(o.top_k.value_or(0) >= 0, "--top-k ", o.top_k.value_or(0), ": must not be negative");
  return o;
}

namespace {

// A line; or lines up to where `end` is, or no more is typed.
std::optional<std::string> typed(std::istream& in, const std::string& end) {
  std::optional<std::string> text = next_line(in);
  if (end == "\n") return text;
  while (text && text->find(end) == text->npos) {
    std::optional<std::string> more = next_line(in);
    if (!more) return text;
    *text += '\n' + *more;
  }
  return text ? std::optional(text->substr(0, text->find(end))) : text;
}

// Whoever types may try again.
void talk(Session& session, std::istream& in, std::ostream& out) {
  constexpr const char* kAnew = "an empty line begins a new conversation";
  std::string end = session.chats() ? "\n" : session.prompt_end();
  out << (session.chats() ? concat("Type a message and press Enter; ", kAnew, "; Ctrl-D ends.")
          : end == "\n"   ? "Type a prompt and press Enter; Ctrl-D ends."
                          : concat("Type a prompt of any lines, ", end, " and Enter; Ctrl-D ends."))
      << "\n> " << std::flush;
  for (std::optional<std::string> line; (line = typed(in, end)); out << "> " << std::flush) {
    bool blank = trim(*line).empty();
    if (blank && session.chats()) session.begin_anew();
    if (blank) continue;
    try {
      session.chats() ? session.reply_to(*line) : static_cast<void>(session.answer({{*line}}));
    } catch (const Error& e) {
      if (e.exit() != Exit::kUsage) throw;
      out << e.what() << (session.chats() ? concat("; ", kAnew) : "") << "\n";
    }
  }
  out << "\n";
}

// Lines as they come, for a program that waits for the texts of some before it writes the next;
// as many together as a batch takes.
void answer_lines(Session& session, std::istream& in, int64_t batch) {
  std::vector<Prompt> prompts;
  int64_t number = 0, answered = 0;
  auto answer = [&] {
    session.answer(prompts);
    answered += std::ssize(prompts);
    prompts.clear();
  };
  while (auto line = next_line(in)) {
    ++number;
    std::string_view prompt = trim(without_byte_order_mark(*line));
    if (prompt.empty()) continue;
    prompts.push_back({std::string(prompt), concat("standard input:", number)});
    if (std::ssize(prompts) == batch) answer();
  }
  answer();
  check_io(answered > 0 && !in.bad(),
           "standard input holds no prompt; give --prompt TEXT, --file "
           "FILE, or prompts, one a line");
}

}  // namespace

void run_session(const SessionOptions& options, std::istream& in, std::ostream& out,
                 bool interactive) {
  at::set_num_threads(cpu_share(environment(), cpu_counts(), {}).threads);
  bool from_input = options.file == "-", from_file = !options.file.empty() && !from_input;
  std::string text = from_file ? read_file(options.file) : "";
  Session session(options, out);
  std::vector<Prompt> prompts;
  for (const std::string& prompt : options.prompts) prompts.push_back({prompt});
  // Lines are answered as they come, other prompts, and those behind --prompt, when all are there.
  bool lines = session.prompt_end() == "\n";
  bool whole = from_input ? !lines || !prompts.empty()
                          : options.file.empty() && !lines && prompts.empty() && !interactive;
  if (whole) text = all_of(in);
  if (from_file || whole) {
    std::string name = from_file ? options.file.string() : "standard input";
    std::ranges::move(prompts_in(text, session.prompt_end(), name), std::back_inserter(prompts));
  }
  if (!prompts.empty()) return static_cast<void>(session.answer(prompts));
  if (interactive && !from_input && options.form == TextForm::kPlain) return talk(session, in, out);
  answer_lines(session, in, options.batch_size);
}

}  // namespace neox
