// Text from a model: the cache changes nothing, nor does the layout; the rules of sampling; text as
// it comes; neox-generate.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "base/text.h"
#include "generate/generate.h"
#include "generate/session.h"
#include "generate/text_stream.h"
#include "generate_program.h"
#include "ops/random.h"
#include "tiny_run.h"
#include "tokenizer/unicode.h"

namespace neox::testing {
namespace {

using Tokens = std::vector<int32_t>;
using Json = nlohmann::json;

// A tiny model of random weights.
class TinyModel {
 public:
  TinyModel(const Layout& layout, Communicator& world, const ModelOption& option = {})
      : mesh_(layout, world),
        model_(config(option), mesh_, {.dtypes = {}, .keeping = Keeping::kNoGradients}) {}
  static ModelConfig config(const ModelOption& option = {}) {
    TinyOptions options;
    if (option.set) option.set(options);
    ModelConfig config = options.model;
    config.positions = 24;
    config.init_std = 1;  // random weights repeat themselves less
    return config;
  }
  Tokens text(const Sampling& sampling, const Tokens& ends = {}) {
    TextRequest request{{3, 14, 15}, sampling};
    return generate(model_, {&request, 1}, {.ends = ends}).front();
  }
  GptNeoX& model() { return model_; }
  // The token with the least loss after these, by a forward pass for each.
  int32_t likeliest_after(const Tokens& tokens) {
    at::NoGradGuard no_grad;
    auto T = static_cast<int64_t>(tokens.size());
    Batch batch{at::tensor(at::ArrayRef<int32_t>(tokens)).to(at::kLong).view({1, T}),
                at::empty({1, T}, at::kLong).zero_(), at::empty({1, T}, at::kFloat).zero_()};
    batch.weights[0][T - 1] = 1;
    std::vector<double> losses;
    for (int64_t v = 0; v < config().vocab; ++v) {
      batch.targets[0][T - 1] = v;
      losses.push_back(model_.forward({}, batch, at::tensor(1.0)).item<double>());
    }
    return static_cast<int32_t>(std::ranges::min_element(losses) - losses.begin());
  }

 private:
  Mesh mesh_;
  GptNeoX model_;
};

Tokens alone(const Sampling& sampling, const Tokens& ends = {}) {
  at::set_num_threads(1);
  auto world = self_communicator();
  return TinyModel({}, *world).text(sampling, ends);
}

TEST(Choose, NeverTakesAnIdThatOnlyPadsTheVocabulary) {
  at::Tensor logits = at::arange(8, at::kFloat);
  EXPECT_EQ(choose(logits, {.vocab = 5}, 0), 4);
  EXPECT_EQ(choose(logits, {}, 0), 7);
}

TEST(Choose, FindsTheFirstOfTheGreatestAnywhere) {
  for (int64_t i = 0; i < 37; ++i) {
    at::Tensor logits = at::full({37}, -2.0);
    logits[i] = logits[36] = -1.0;
    EXPECT_EQ(choose(logits, {}, 0), i);
  }
  for (double temperature : {0.0, 1.0})
    EXPECT_EQ(choose(at::full({37}, std::nan("")), {.temperature = temperature}, 0), -1);
}

TEST(Generate, TheCacheChangesNothing) {
  Tokens cached = alone({.max_tokens = 15}), text = {3, 14, 15};
  auto world = self_communicator();
  TinyModel model({}, *world);
  for (size_t i = 0; i < 15; ++i) text.push_back(model.likeliest_after(text));
  EXPECT_EQ(cached, Tokens(text.begin() + 3, text.end()));
  EXPECT_GT(std::set(cached.begin(), cached.end()).size(), 3u);
}

TEST(Generate, EveryLayoutGivesTheSameText) {
  for (Sampling sampling : {Sampling{.max_tokens = 12}, {.max_tokens = 12, .temperature = 1}}) {
    Tokens wanted = alone(sampling);
    for (Layout layout : {Layout{.pp = 2, .tp = 2}, {.pp = 4}, {.tp = 4}}) {
      std::vector<Tokens> texts(4);
      run_thread_ranks(4, [&](Communicator& world, Control&) {
        texts[static_cast<size_t>(world.rank())] = TinyModel(layout, world).text(sampling);
      });
      for (const Tokens& text : texts) EXPECT_EQ(text, wanted) << to_string(layout);
    }
  }
}

TEST(Generate, NeitherCacheNorLayoutChangesTheTextOfOtherModels) {
  const Sampling sampling{.max_tokens = 8};
  at::set_num_threads(1);
  for (const ModelOption& option : all_options()) {
    auto world = self_communicator();
    TinyModel model({}, *world, option);
    Tokens wanted = model.text(sampling), text = {3, 14, 15};
    while (text.size() < 9) text.push_back(model.likeliest_after(text));
    EXPECT_TRUE(std::equal(text.begin() + 3, text.end(), wanted.begin())) << option.name;
    for (Layout layout : {Layout{.tp = 2}, {.pp = 2}}) {
      std::vector<Tokens> texts(2);
      run_thread_ranks(2, [&](Communicator& ranks, Control&) {
        texts[static_cast<size_t>(ranks.rank())] = TinyModel(layout, ranks, option).text(sampling);
      });
      for (const Tokens& other : texts) EXPECT_EQ(other, wanted) << option.name;
    }
  }
}

TEST(Generate, EndsAtTheEndTokenAndAtTheLastPosition) {
  Tokens all = alone({.max_tokens = 100});
  EXPECT_EQ(all.size(), 24u - 3);
  auto end = static_cast<size_t>(std::ranges::find(all, all[4]) - all.begin());
  EXPECT_EQ(alone({.max_tokens = 100}, {27, all[4]}),
            Tokens(all.begin(), all.begin() + int64_t(end)));
  EXPECT_EQ(alone({.max_tokens = 2}), Tokens(all.begin(), all.begin() + 2));
  EXPECT_EQ(alone({.max_tokens = INT64_MAX}), all);
}

TEST(Generate, OfWeightsThatAreNoNumbersIsAnError) {
  auto world = self_communicator();
  TinyModel model({}, *world);
  model.model().buffers().front()->master().fill_(std::numeric_limits<double>::quiet_NaN());
  model.model().buffers().front()->publish();
  for (double temperature : {0.0, 1.0}) {
    std::string error =
        error_of([&] { model.text({.max_tokens = 3, .temperature = temperature}); });
    EXPECT_TRUE(has(error, "78: ") && has(error, "the model's greatest logit is not a finite"))
        << error;
  }
}

TEST(Generate, EqualKeysGiveEqualTexts) {
  Sampling sampling{.max_tokens = 12, .temperature = 1, .key = 1}, other = sampling;
  other.key = 2;
  EXPECT_EQ(alone(sampling), alone(sampling));
  EXPECT_NE(alone(sampling), alone(other));
}

TEST(Choose, IsGreedyWhereOnlyOneTokenIsLeft) {
  at::Tensor logits = at::tensor({0.5f, 2.0f, 1.9f, -1.0f, 2.0f});
  for (int64_t position = 0; position < 200; ++position) {
    EXPECT_EQ(choose(logits, {}, position), 1);
    EXPECT_EQ(choose(logits, {.temperature = 5, .top_k = 1}, position), 1);
    EXPECT_EQ(choose(logits, {.temperature = 5, .top_p = 1e-6}, position), 1);
    EXPECT_EQ(choose(logits, {.temperature = 1e-9, .top_k = 3}, position) % 3, 1);
  }
}

// 40,000 draws have the frequencies of `weights`, within 5 standard deviations.
void expect_frequencies(const Sampling& sampling, std::vector<double> weights) {
  at::Tensor logits = at::tensor({1.0, 3.0, 0.5, 2.0, 2.5}).to(at::kFloat);
  constexpr int64_t kDraws = 40000;
  std::vector<double> counts(weights.size());
  for (int64_t i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(choose(logits, sampling, i))];
  double sum = 0;
  for (double w : weights) sum += w;
  for (size_t i = 0; i < weights.size(); ++i) {
    double p = weights[i] / sum, sigma = std::sqrt(kDraws * p * (1 - p));
    EXPECT_NEAR(counts[i], kDraws * p, 5 * sigma) << i;
  }
}

TEST(Choose, DrawsFromTheSoftmax) {
  auto e = [](double x) { return std::exp(x); };
  expect_frequencies({.temperature = 1, .key = 5}, {e(1), e(3), e(0.5), e(2), e(2.5)});
  expect_frequencies({.temperature = 2, .key = 5}, {e(0.5), e(1.5), e(0.25), e(1), e(1.25)});
  expect_frequencies({.temperature = 1, .top_k = 3, .key = 5}, {0, e(3), 0, e(2), e(2.5)});
  expect_frequencies({.top_k = 2, .key = 5}, {0, e(3), 0, 0, e(2.5)});
  // The likeliest two have 0.73 of the weight.
  expect_frequencies({.temperature = 1, .top_p = 0.72, .key = 5}, {0, e(3), 0, 0, e(2.5)});
  expect_frequencies({.temperature = 1, .top_p = 0.75, .key = 5}, {0, e(3), 0, e(2), e(2.5)});
}

// The same draw from all ids, sorted.
int64_t choice_of_all(const at::Tensor& logits, const Sampling& s, int64_t position) {
  at::Tensor weights = (logits - logits.max()).to(at::kDouble).div(s.temperature).exp();
  auto weight = [&](int64_t id) { return weights.const_data_ptr<double>()[id]; };
  auto sum = [&](double all, int64_t id) { return all + weight(id); };
  std::vector<int64_t> ids(static_cast<size_t>(weights.numel()));
  std::iota(ids.begin(), ids.end(), 0);
  double total = std::accumulate(ids.begin(), ids.end(), 0.0, sum), kept = 0;
  std::ranges::stable_sort(ids, std::greater<>(), weight);
  if (auto k = static_cast<size_t>(s.top_k); k > 0 && k < ids.size()) {
    ids.resize(k);
    total = std::accumulate(ids.begin(), ids.end(), 0.0, sum);
  }
  if (s.top_p > 0) {
    size_t n = 0;
    while (n < ids.size() && (n == 0 || kept < s.top_p * total)) kept += weight(ids[n++]);
    ids.resize(n), total = kept;
  }
  float u = 0;
  uniform_at(s.key, position, {&u, 1});
  double left = u * total;
  auto drawn = std::ranges::find_if(ids, [&](int64_t id) { return (left -= weight(id)) < 0; });
  return drawn == ids.end() ? ids.back() : *drawn;
}

TEST(Choose, IsTheDrawFromAllIdsSorted) {
  at::Tensor tied = at::arange(2000, at::kFloat).remainder(7), random = at::empty({2000});
  normal_at(1, 0, {random.mutable_data_ptr<float>(), 2000});
  at::Tensor apart = random.clone();
  apart[77] = -std::numeric_limits<float>::infinity(), apart[1500] = 60;
  std::vector<float> draws(100'000);
  uniform_at(3, 0, draws);
  auto [least, most] = std::ranges::minmax_element(draws);
  for (const at::Tensor& logits : {tied, tied * 3 + tied.flip(0) * 0.5, random, apart, tied * 0})
    for (double temperature : {0.01, 0.3, 1.0, 50.0})
      for (int64_t top_k : {0, 1, 40, 1999, 3000})
        for (double top_p : {0.0, 0.5, 0.9, 1.0})
          for (int64_t position : {0L, 1L, 2L, least - draws.begin(), most - draws.begin()}) {
            Sampling s{.temperature = temperature, .top_k = top_k, .top_p = top_p, .key = 3};
            ASSERT_EQ(choose(logits, s, position), choice_of_all(logits, s, position))
                << temperature << " " << top_k << " " << top_p << " " << position;
          }
}

// The tokens of the single bytes of a text.
Tokens bytes_as_tokens(const Tokenizer& tokenizer, std::string_view text) {
  Tokens tokens;
  for (char c : text)
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      if (tokenizer.token_bytes(id) == std::string(1, c)) {
        tokens.push_back(id);
        break;
      }
  return tokens;
}

TEST(TextStream, GivesWholeCharactersAndInAllWhatDecodeGives) {
  Tokenizer tokenizer = Tokenizer::from_json(Material::get() / "tokenizer.json");
  for (std::string text :
       {"a\u00e9z", "\u4e2d\u6587", "x\U0001F642y", "\xff\xfe ok", "\x80\x80\x80\x80z", "\xe4\xb8",
        "\xf0\x9f\x99", "\xf0\x9f\x99z", "\xc3(", "\xe0\x80\x80", "\xed\xa0\x80",
        "\xf5\x80\x80\x80", "\xff", "\xe4\xb8\xe4\xb8\xad"}) {
    Tokens tokens = bytes_as_tokens(tokenizer, text);
    ASSERT_EQ(tokens.size(), text.size());
    TextStream stream(tokenizer, TextStream::Begin::kText);
    std::string all;
    for (int32_t token : tokens) {
      std::string part = stream.add(token), storage;
      EXPECT_EQ(unicode::repair(part, storage), part) << "a part of a character";
      all += part;
    }
    EXPECT_EQ(all + stream.rest(), tokenizer.decode(tokens)) << text;
  }
}

TEST(TextStream, HoldsBackOnlyTheUnfinishedCharacter) {
  Tokenizer tokenizer = Tokenizer::from_json(Material::get() / "tokenizer.json");
  TextStream stream(tokenizer, TextStream::Begin::kBehindPrompt);
  Strings parts;
  for (int32_t token : bytes_as_tokens(tokenizer, "a\u00e9b\U0001F642"))
    parts.push_back(stream.add(token));
  EXPECT_EQ(parts, (Strings{"a", "", "\u00e9", "b", "", "", "", "\U0001F642"}));
  EXPECT_EQ(stream.rest(), "");
}

TEST_F(GenerateProgram, ContinuesThePrompt) {
  std::string out = text({"--prompt", "the and"});
  EXPECT_TRUE(out.starts_with("the and")) << out;
  EXPECT_GT(out.size(), 8u);
  EXPECT_EQ(text({"--prompt", "the and"}), out);
  std::string step = program("neox-generate");
  Ended named =
      Child({step, run().step_dir(20), "--max-tokens", "12", "--prompt", "the and"}).end();
  EXPECT_EQ(named.out, out);
}

TEST_F(GenerateProgram, TakesPromptsFromOptionsFilesAndStandardInput) {
  std::string both = text({"--prompt", "the", "--prompt", "and"});
  EXPECT_EQ(both, text({"--prompt", "the"}) + text({"--prompt", "and"}));
  EXPECT_EQ(text({"--file", run().dir().put("prompts", "the\n\nand\n")}), both);
  EXPECT_EQ(generate({}, "the\nand\n").out, both);
}

TEST_F(GenerateProgram, LinesMayEndAsOnWindows) {
  std::string file = run().dir().put("prompts", "the\r\n\r\nand\r\n");
  EXPECT_EQ(text({"--file", file}), text({"--prompt", "the", "--prompt", "and"}));
}

TEST_F(GenerateProgram, APartOfTheModelIsNotTheModel) {
  Ended ended =
      Child({program("neox-generate"), run().save(), "--prompt", "the", "--set", "num_layers=1"})
          .end();
  EXPECT_EQ(ended.code, 64);
  EXPECT_NE(ended.err.find("another model than --set says"), std::string::npos) << ended.err;
}

TEST_F(GenerateProgram, AModelMayTurnByOtherAngles) {
  Strings drawn = {"--prompt", "the", "--temperature", "1", "--num-samples", "8"};
  Strings sharper = drawn;
  for (const char* set :
       {"rope_scaling={rope_type: yarn, factor: 2, original_max_position_embeddings: 8, "
        "attention_factor: 99}",
        "max_position_embeddings=512"})
    sharper.insert(sharper.end(), {"--set", set});
  EXPECT_NE(text(sharper), text(drawn));
}

TEST_F(GenerateProgram, AFileWithoutPromptsIsRefused) {
  std::string file = run().dir().put("prompts", "\n \n");
  Ended ended = Child({program("neox-generate"), run().save(), "--file", file}).end();
  EXPECT_EQ(ended.code, 74);
  EXPECT_NE(ended.err.find("holds no prompt; write one a line"), std::string::npos) << ended.err;
}

TEST_F(GenerateProgram, APromptThatIsTooLongIsNamedAndEndsNoDialogue) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "and ";
  SessionOptions options{.checkpoint = run().save(), .max_tokens = 3};
  std::istringstream typed("the\n" + words + "\nof\n");
  std::ostringstream out;
  run_session(options, typed, out, true);
  EXPECT_NE(out.str().find("the prompt 'and and"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("\n> of"), std::string::npos) << out.str();
}

// The lines of --json, without what took time.
Json json_lines(const std::string& out) {
  Json all = Json::array();
  for (const std::string& line : split(out, '\n'))
    if (!line.empty()) all.push_back(Json::parse(line));
  for (Json& line : all) EXPECT_EQ(line.erase("duration_seconds"), 1u);
  return all;
}

TEST_F(GenerateProgram, JsonHasALineForEachTextInTheirOrder) {
  Strings prompts = {"--file", run().dir().put("prompts", "the\nand\n"), "--num-samples", "2"};
  std::string plain = text(prompts), rebuilt;
  prompts.insert(prompts.end(), {"--json", "--batch-size", "3"});
  Json lines = json_lines(text(prompts));
  ASSERT_EQ(lines.size(), 4u);
  for (const Json& line : lines) {
    rebuilt += line["context"].get<std::string>() + line["text"].get<std::string>() + "\n";
    EXPECT_EQ(line.size(), 5u) << line;
    EXPECT_EQ(line["finished"], line["length"] < 12) << line;
  }
  EXPECT_EQ(rebuilt, plain);
}

TEST_F(GenerateProgram, TextsWithoutAPromptBeginBehindTheEndOfADocument) {
  Json empty = json_lines(text({"--prompt", "", "--json"})),
       behind = json_lines(text({"--prompt", "<|endoftext|>", "--json"}));
  EXPECT_EQ(empty[0]["context"], "");
  EXPECT_EQ(empty[0]["text"], behind[0]["text"]);
  EXPECT_GT(empty[0]["length"], 0);
}

TEST_F(GenerateProgram, BatchesKeepTextsAndOrder) {
  Strings prompts = {"--file", run().dir().put("prompts", "the\nof the and\nand\nto be of the\n"),
                     "--num-samples", "2"};
  std::string alone = text(prompts);
  prompts.insert(prompts.end(), {"--batch-size", "3"});
  EXPECT_EQ(text(prompts), alone);
}

TEST_F(GenerateProgram, SeedsDecideTheSamples) {
  auto sample = [](const Strings& more) {
    Strings arguments = {"--prompt", "the", "--temperature", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return text(arguments);
  };
  std::string one = sample({"--seed", "7"}), three = sample({"--seed", "7", "--num-samples", "3"});
  EXPECT_EQ(sample({"--seed", "7"}), one);
  EXPECT_NE(sample({"--seed", "8"}), one);
  EXPECT_TRUE(three.starts_with(one)) << three;
  EXPECT_GT(three.size(), 2 * one.size());
  EXPECT_NE(three, one + one + one);
  EXPECT_EQ(sample({"--top-k", "1"}), text({"--prompt", "the"}));
}

}  // namespace
}  // namespace neox::testing
