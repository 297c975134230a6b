#include "generate/session.h"

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "generate/answers.h"
#include "generate/load.h"
#include "model/device.h"
#include "ops/random.h"

namespace neox {
namespace {

class Session {
 public:
  Session(const SessionOptions& options, std::ostream& out)
      : options_(options),
        out_(out),
        loaded_(options.checkpoint, options.overrides, pick_device(environment())) {}

  // The texts of all prompts, in their order.
  void answer(const std::vector<std::string>& prompts) {
    std::vector<TextRequest> requests;
    Answers answers(loaded_.tokenizer(), options_.form, out_);
    for (const std::string& prompt : prompts) {
      std::vector<int32_t> tokens = tokens_of(prompt);
      for (int64_t i = 0; i < options_.num_samples; ++i) {
        requests.push_back({tokens, sampling(i)});
        answers.add(prompt);
      }
    }
    TextOptions options{.batch_size = options_.batch_size,
                        .on_start = [&](size_t i) { answers.start(i); },
                        .on_token = [&](size_t i, int32_t token) { return answers.add(i, token); },
                        .on_end = [&](size_t i, TextEnd how) { answers.end(i, how); }};
    if (loaded_.tokenizer().has_end_of_document())
      options.end = loaded_.tokenizer().end_of_document();
    generate(loaded_.model(), requests, options);
  }

 private:
  // A text without a prompt begins where documents begin, as in GPT-NeoX.
  std::vector<int32_t> tokens_of(const std::string& prompt) const {
    const Tokenizer& tokenizer = loaded_.tokenizer();
    if (!prompt.empty()) return tokenizer.encode(prompt);
    check_usage(tokenizer.has_end_of_document(),
                "the prompt is empty, and the tokenizer has no <|endoftext|> that such a text "
                "could begin with: give a prompt of at least one token");
    return {tokenizer.end_of_document()};
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
};

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
    o.overrides.push_back("vocab_file=" + *vocab);
  if (auto merges = program.given<std::string>("merge-file"))
    o.overrides.push_back("merge_file=" + *merges);
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
  Session session(options, out);
  std::vector<std::string> prompts = options.prompts;
  if (!options.file.empty())
    for (const std::string& line : split(read_file(options.file), '\n'))
      if (!trim(line).empty()) prompts.push_back(line);
  session.answer(prompts);
  if (!options.prompts.empty() || !options.file.empty()) return;
  interactive = interactive && options.form == TextForm::kPlain;
  if (interactive) out << "Type a prompt and press Enter; Ctrl-D ends.\n";
  for (std::string line; (interactive ? out << "> " << std::flush : out), std::getline(in, line);)
    if (!trim(line).empty()) session.answer({line});
  if (interactive) out << "\n";
}

}  // namespace neox
