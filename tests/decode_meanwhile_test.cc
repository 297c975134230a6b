// Texts that grow while the prompts of others are read, and what lacks memory meanwhile.
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <map>
#include <new>
#include <set>
#include <utility>

#include "decode_model.h"
#include "run_fixture.h"

namespace neox::testing {
namespace {

// Texts, of which tokens of others came between the beginning of a prompt and its first token.
struct Meanwhile {
  Texts texts;
  int64_t grown = 0;
};

Meanwhile texts_meanwhile(GptNeoX& model, const std::vector<TextRequest>& all) {
  Meanwhile found{.texts = Texts(all.size())};
  std::set<size_t> read;
  generate(model, all,
           {.batch_size = 4,
            .read_at_once = 1,
            .on_start = [&](size_t i) { read.insert(i); },
            .on_token =
                [&](size_t i, int32_t token) {
                  found.texts[i].push_back(token);
                  if (read.erase(i) == 0 && !read.empty()) ++found.grown;
                  return true;
                }});
  return found;
}

// Some end while a prompt is read, so that it takes another row than it was read in.
TEST(Meanwhile, TextsGrowWhilePromptsAreReadAndAreTheSame) {
  at::set_num_threads(1);
  for (const ModelOption& option : all_options())
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      Model model(option, type);
      std::vector<TextRequest> all = requests({.temperature = 1, .top_p = 0.9, .key = 7});
      for (size_t i = 0; i < all.size(); ++i)
        if (i % 3 == 0) all[i].sampling.max_tokens = 1 + static_cast<int64_t>(i) / 3;
      Texts alone;
      for (const TextRequest& r : all) alone.push_back(model.texts({r}, 1).front());
      auto [texts, grown] = texts_meanwhile(*model, all);
      EXPECT_EQ(texts, alone) << option.name << " " << type;
      EXPECT_GT(grown, 5) << option.name << " " << type;
    }
}

TEST(Meanwhile, PromptsAreReadAtOnceWhereNothingElseIsAskedFor) {
  Model model;
  std::vector<TextRequest> all = requests({});
  std::vector<std::string> told;
  generate(*model, all,
           {.batch_size = 4,
            .on_start = [&](size_t) { told.push_back("start"); },
            .on_token = [&](size_t, int32_t) { return told.push_back("token"), true; }});
  EXPECT_EQ(std::vector(told.begin(), told.begin() + 4), std::vector<std::string>(4, "start"));
}

// What else is asked of the model, such as the scores of a prompt, takes the last step of a text.
TEST(Meanwhile, TheLastTextThatEndsMeanwhileIsNotTheLastThatComes) {
  Model model;
  std::vector<TextRequest> all = requests({});
  Texts wanted = model.texts({all[0], all[1]}, 1), texts(2);
  size_t begun = 0, ended = 0;
  TextSource source = [&](bool wait, const AfterLayer& after) -> std::optional<TextRequest> {
    for (int i = 0; i < 1000 && begun == 1 && ended == 0; ++i) after(1);
    if (begun == 2 || (begun == 1 && !wait)) return std::nullopt;
    return all[begun++];
  };
  generate(*model, (*model).new_cache(2, 24), source,
           {.batch_size = 2,
            .read_at_once = 1,
            .on_token = [&](size_t i, int32_t token) { return texts[i].push_back(token), true; },
            .on_end = [&](size_t, TextEnd) { ++ended; }});
  EXPECT_EQ(texts, wanted);
}

// LibTorch's memory on the CPU, of which the next asked for is not given.
class NoMemory : public c10::Allocator {
 public:
  NoMemory() { c10::SetCPUAllocator(this, 200); }
  ~NoMemory() override { c10::SetCPUAllocator(before_, 200); }
  NoMemory(const NoMemory&) = delete;
  c10::DataPtr allocate(size_t bytes) override {
    if (std::exchange(lacking, false)) throw std::bad_alloc();
    return before_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return before_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    before_->copy_data(to, from, bytes);
  }
  bool lacking = false;

 private:
  c10::Allocator* before_ = c10::GetCPUAllocator();
};

// Where memory is lacking when text 4 begins, or has its second token.
struct Lacking {
  Texts texts;
  std::map<size_t, std::string> failed;
};

Lacking texts_without_memory(GptNeoX& model, const std::vector<TextRequest>& all, bool at_start,
                             int64_t read_at_once) {
  NoMemory memory;
  Lacking found{.texts = Texts(all.size())};
  constexpr size_t kLacks = 4;
  generate(model, all,
           {.batch_size = at_start ? 3 : 6,
            .read_at_once = read_at_once,
            .on_start = [&](size_t i) { memory.lacking |= at_start && i == kLacks; },
            .on_token =
                [&](size_t i, int32_t token) {
                  found.texts[i].push_back(token);
                  memory.lacking |= !at_start && i == kLacks && found.texts[i].size() == 2;
                  return true;
                },
            .on_failure = [&](size_t i, const std::string& why) { found.failed[i] = why; }});
  return found;
}

TEST(Meanwhile, APromptThatThereIsNoMemoryForEndsAlone) {
  at::set_num_threads(1);
  for (int64_t read_at_once : {0, 1}) {
    Model model;
    std::vector<TextRequest> all = requests({});
    for (TextRequest& r : all) r.prompt.resize(17, 3);  // read one by one
    Texts wanted = model.texts(all, 3);
    wanted[4].clear();
    auto [texts, failed] = texts_without_memory(*model, all, true, read_at_once);
    EXPECT_EQ(texts, wanted);
    ASSERT_EQ(failed.size(), 1U);
    EXPECT_TRUE(has(failed[4], "there is no memory for the text")) << failed[4];
  }
}

TEST(Meanwhile, AStepThatThereIsNoMemoryForEndsThoseThatGrow) {
  Model model;
  std::vector<TextRequest> all = requests({});
  Texts wanted = model.texts(all, 3);
  all.resize(6);
  all[0].sampling.max_tokens = 1;
  wanted[0].resize(1);
  auto [texts, failed] = texts_without_memory(*model, all, false, 0);
  EXPECT_EQ(failed.size(), 5U);
  for (size_t i = 0; i < all.size(); ++i) {
    if (failed.contains(i)) wanted[i].resize(texts[i].size());
    EXPECT_EQ(texts[i], wanted[i]) << i;
  }
  NoMemory memory;
  memory.lacking = true;
  EXPECT_THROW(generate(*model, all, TextOptions()), std::bad_alloc);  // nobody is told
}

}  // namespace
}  // namespace neox::testing
