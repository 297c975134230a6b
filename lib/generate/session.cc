#include "generate/session.h"

#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "config/value.h"
#include "generate/answers.h"
#include "generate/load.h"
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
        loaded_(options.checkpoint, options.overrides, pick_device(environment())) {}

  // The texts of all prompts, in their order.
  void answer(const std::vector<Prompt>& prompts) {
    std::vector<TextRequest> requests;
    Answers answers(loaded_.tokenizer(), options_.form, out_);
    for (const auto& [prompt, where] : prompts) {
      auto tokens = tokens_of(prompt, where);
      for (int64_t i = 0; i < options_.num_samples; ++i) {
        requests.push_back({tokens, sampling(i)});
        answers.add(prompt);
      }
    }
    TextOptions options{.batch_size = options_.batch_size,
                        .on_start = [&](size_t i) { answers.start(i); },
                        .on_token = [&](size_t i, int32_t token) { return answers.add(i, token); },
                        .on_end = [&](size_t i, TextEnd how) { answers.end(i, how); }};
    options.ends = loaded_.ends();
    generate(loaded_.model(), requests, options);
  }

 private:
  std::vector<int32_t> tokens_of(const std::string& prompt, const std::string& where) {
    try {
      const ModelConfig& model = loaded_.model().config();
      auto tokens = prompt_tokens(prompt, loaded_.tokenizer(), model);
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

  Sampling sampling(int64_t sample) const {
    const GenerateConfig& defaults = loaded_.config().generate;
    return {.max_tokens = options_.max_tokens.value_or(defaults.max_tokens),
            .temperature = options_.temperature.value_or(defaults.temperature),
            .top_k = options_.top_k.value_or(defaults.top_k),
            .top_p = options_.top_p.value_or(defaults.top_p),
            .vocab = loaded_.tokenizer().vocab_size(),
            .key = random_key(options_.seed, concat("generate.", sample))};
  }

  const SessionOptions& options_;
  std::ostream& out_;
  LoadedModel loaded_;
  bool said_room_ = false;
};

// Without the end of line that Windows writes.
std::optional<std::string> next_line(std::istream& in) {
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

bool is_blank(const std::string& line) { return trim(line).empty(); }

std::vector<Prompt> prompts_of(const SessionOptions& options) {
  std::vector<Prompt> prompts;
  for (const std::string& text : options.prompts) prompts.push_back({text});
  if (options.file.empty()) return prompts;
  std::istringstream file(read_file(options.file));
  int64_t number = 0;
  while (auto line = next_line(file)) {
    ++number;
    if (!is_blank(*line)) prompts.push_back({*line, concat(options.file.string(), ":", number)});
  }
  check_io(!prompts.empty(), options.file.string(), " holds no prompt; write one a line");
  return prompts;
}

}  // namespace

SessionOptions session_options(const Program& program) {
  check_usage(program.has("checkpoint"),
              "which checkpoint? Give the save directory of a run. See neox-generate --help.");
  SessionOptions o{.checkpoint = program.get<std::string>("checkpoint")};
  o.prompts = program.list("prompt");
  o.overrides = program.list("set");
  if (program.has("json")) o.form = TextForm::kJson;
  o.file = program.given<std::string>("file").value_or("");
  if (auto vocab = program.given<std::string>("vocab-file"))
    o.overrides.push_back("vocab_file=" + yaml_text(*vocab));
  if (auto merges = program.given<std::string>("merge-file"))
    o.overrides.push_back("merge_file=" + yaml_text(*merges));
  o.max_tokens = program.given<int64_t>("max-tokens");
  o.top_k = program.given<int64_t>("top-k");
  o.temperature = program.given<double>("temperature");
  o.top_p = program.given<double>("top-p");
  o.seed = program.get<int64_t>("seed");
  o.num_samples = program.get<int64_t>("num-samples");
  o.batch_size = program.get<int64_t>("batch-size");
  check_usage(o.batch_size > 0, "--batch-size ", o.batch_size, ": must be at least 1");
  check_usage(o.max_tokens.value_or(1) > 0, "--max-tokens ", o.max_tokens.value_or(1),
              ": must be at least 1");
  check_usage(o.num_samples > 0, "--num-samples ", o.num_samples, ": must be at least 1");
  check_usage(o.temperature.value_or(0) >= 0, "--temperature ", o.temperature.value_or(0),
              ": must not be negative");
  check_usage(o.top_p.value_or(0) >= 0 && o.top_p.value_or(0) <= 1, "--top-p ", o.top_p.value_or(0),
              ": must lie in 0..1");
  check_usage(o.top_k.value_or(0) >= 0, "--top-k ", o.top_k.value_or(0), ": must not be negative");
  return o;
}

void run_session(const SessionOptions& options, std::istream& in, std::ostream& out,
                 bool interactive) {
  std::vector<Prompt> prompts = prompts_of(options);
  Session session(options, out);
  session.answer(prompts);
  if (!prompts.empty()) return;
  interactive = interactive && options.form == TextForm::kPlain;
  if (interactive) out << "Type a prompt and press Enter; Ctrl-D ends.\n";
  auto ask = [&] {
    if (interactive) out << "> " << std::flush;
  };
  ask();
  for (std::optional<std::string> line; (line = next_line(in)); ask()) {
    if (is_blank(*line)) continue;
    try {
      session.answer({{*line}});
    } catch (const Error& e) {
      if (!interactive || e.exit() != Exit::kUsage) throw;
      out << e.what() << "\n";  // whoever types may try again
    }
  }
  if (interactive) out << "\n";
}

}  // namespace neox
