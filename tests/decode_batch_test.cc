// Generation of several texts at once: texts alone are the reference.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "decode_model.h"
#include "run_fixture.h"

namespace neox::testing {
namespace {

void expect_unchanged(const ModelOption& option, at::ScalarType type, int64_t batch_size) {
  for (Sampling sampling : {Sampling{}, {.temperature = 1, .top_p = 0.9, .key = 7}}) {
    Model model(option, type);
    std::vector<TextRequest> all = requests(sampling);
    Texts alone;
    for (const TextRequest& r : all) alone.push_back(model.texts({r}, 1).front());
    EXPECT_EQ(model.texts(all, batch_size), alone) << option.name << " " << type;
  }
}

TEST(Batch, ChangesNoText) {
  at::set_num_threads(1);
  for (const ModelOption& option : kModelOptions) expect_unchanged(option, at::kFloat, 4);
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble})
    expect_unchanged({"Default"}, type, 100);
}

TEST(Batch, EndsEachTextAtItsEnd) {
  Model model;
  std::vector<TextRequest> all = requests({});
  Texts open = model.texts(all, 4);
  int32_t end = open[8][2];
  Texts ended = model.texts(all, 4, {end});
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(ended[i], Tokens(open[i].begin(), std::ranges::find(open[i], end)));
  EXPECT_LT(ended[8].size(), open[8].size());
}

TEST(Batch, TellsOfTokensAndEnds) {
  Model model;
  std::vector<TextRequest> all = requests({});
  Texts seen(all.size());
  std::map<size_t, TextEnd> ended;
  Texts texts = generate(*model, all,
                         {.batch_size = 3,
                          .on_token =
                              [&](size_t i, int32_t token) {
                                EXPECT_FALSE(ended.contains(i));
                                seen[i].push_back(token);
                                return i != 2 || seen[i].size() < 2;
                              },
                          .on_end = [&](size_t i, TextEnd how) { ended[i] = how; }});
  EXPECT_EQ(seen, texts);
  EXPECT_EQ(ended.size(), all.size());
  EXPECT_EQ(texts[2].size(), 2u);
  EXPECT_EQ(ended[2], TextEnd::kCaller);
  EXPECT_EQ(ended[0], TextEnd::kLength);
}

// What texts give where the embedding of a token is no number, and why some failed.
struct Told {
  Texts texts;
  std::map<size_t, std::string> failed;
};

Told with_broken(Model& model, int32_t token, const std::vector<TextRequest>& all) {
  for (ParamBuffer* buffer : (*model).buffers())
    for (size_t i = 0; i < buffer->specs().size(); ++i)
      if (buffer->specs()[i].name == "embed_in.weight") buffer->param(i)[token].fill_(NAN);
  Told told{.texts = Texts(all.size())};
  auto take = [&](size_t i, int32_t next) { return told.texts[i].push_back(next), true; };
  auto fail = [&](size_t i, const std::string& why) { told.failed[i] = why; };
  generate(*model, all, {.batch_size = 3, .on_token = take, .on_failure = fail});
  return told;
}

// A prompt with it fails, the others are as without it, also those that are shorter and take its
// place.
void expect_end_alone(at::ScalarType type, const Recorder& recorder) {
  Model model({}, type, at::kCPU, recorder);
  std::vector<TextRequest> all = requests({.vocab = 20});
  Texts wanted = model.texts(all, 3);
  const size_t broken = 4;
  all.insert(all.begin() + broken, {{20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, all[0].sampling});
  wanted.insert(wanted.begin() + broken, Tokens());
  auto [texts, failed] = with_broken(model, 20, all);
  EXPECT_EQ(texts, wanted) << type;
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_TRUE(has(failed[broken], "greatest logit is not a finite")) << failed[broken];
}

TEST(Batch, ATextWithoutNumbersEndsAlone) {
  at::NoGradGuard no_grad;
  RerunRecorder::Calls calls;
  for (at::ScalarType type : {at::kFloat, at::kDouble})
    for (const Recorder& recorder : {Recorder(graph_recorder), rerun(calls)})
      expect_end_alone(type, recorder);
}

void expect_end_behind(const Sampling& sampling, const Recorder& recorder) {
  Model model({}, at::kDouble, at::kCPU, recorder);
  std::vector<TextRequest> all = requests(sampling);
  Texts wanted = model.texts(all, 3);
  int32_t broken = wanted[8][3];
  std::set<size_t> failing;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::ranges::count(all[i].prompt, broken) > 0) wanted[i].clear(), failing.insert(i);
    auto at = std::ranges::find(wanted[i], broken);
    if (at == wanted[i].end() || at + 1 == wanted[i].end()) continue;
    wanted[i].erase(at + 1, wanted[i].end());
    failing.insert(i);
  }
  auto [texts, failed] = with_broken(model, broken, all);
  EXPECT_EQ(texts, wanted);
  EXPECT_EQ(failed.size(), failing.size());
  for (size_t i : failing) EXPECT_TRUE(failed.contains(i)) << i;
  EXPECT_GT(failing.size(), 0U);
}

TEST(Batch, ATextThatLosesItsNumbersEndsBehindTheTokenThatTookThem) {
  at::NoGradGuard no_grad;
  RerunRecorder::Calls calls;
  for (const Recorder& recorder : {Recorder(graph_recorder), rerun(calls)})
    for (double temperature : {0.0, 1.0})
      expect_end_behind({.temperature = temperature, .vocab = 20, .key = 7}, recorder);
}

TEST(Batch, EveryLayoutGivesTheSameTexts) {
  std::vector<TextRequest> all = requests({});
  at::set_num_threads(1);
  RerunRecorder::Calls calls;
  Texts wanted = Model().texts(all, 4);
  for (const Recorder& recorder : {Recorder(graph_recorder), rerun(calls)})
    for (Layout layout : {Layout{.pp = 2}, {.tp = 2}}) {
      std::vector<Texts> texts(2);
      run_thread_ranks(2, [&](Communicator& world, Control&) {
        Mesh mesh(layout, world);
        GptNeoX model(Model::config({}), mesh,
                      {.keeping = Keeping::kNoGradients, .recorder = recorder});
        texts[static_cast<size_t>(world.rank())] = generate(model, all, {.batch_size = 4});
      });
      for (const Texts& other : texts) EXPECT_EQ(other, wanted) << to_string(layout);
    }
  EXPECT_GT(calls.replayed, 20);
}

}  // namespace
}  // namespace neox::testing
