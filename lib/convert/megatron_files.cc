// Megatron-LM's checkpoints of one file for each model-parallel rank.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "convert/megatron.h"
#include "convert/megatron_names.h"
#include "convert/megatron_tree.h"
#include "convert/written_parts.h"

namespace neox {
namespace {

using torchfile::TorchFile;
using torchfile::Value;

constexpr const char* kNames[] = {"model_optim_rng.pt", "model_rng.pt"};

// The numbers of "mp_rank_00", "mp_rank_00_001", "mp_rank_00_001_002"; empty for other names.
std::vector<int64_t> rank_numbers(const std::string& name) {
  constexpr std::string_view kRank = "mp_rank_";
  std::vector<int64_t> numbers;
  if (!name.starts_with(kRank)) return {};
  for (const std::string& part : split(name.substr(kRank.size()), '_')) {
    bool digits = !part.empty() && part.size() < 9 &&
                  part.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) return {};
    numbers.push_back(std::stoll(part));
  }
  return numbers;
}

// By tensor- and pipeline-parallel rank.
using RankPaths = std::map<std::pair<int64_t, int64_t>, fs::path>;

RankPaths find_ranks(const fs::path& dir) {
  RankPaths paths;
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::vector<int64_t> numbers = rank_numbers(entry.path().filename().string());
    if (numbers.empty()) continue;
    check_io(numbers.size() < 3, entry.path().string(),
             " is of expert parallelism, which is not supported");
    for (const char* name : kNames)
      if (fs::exists(entry.path() / name))
        paths[{numbers[0], numbers.size() > 1 ? numbers[1] : 0}] = entry.path() / name;
    check_io(paths.contains({numbers[0], numbers.size() > 1 ? numbers[1] : 0}),
             entry.path().string(), " has neither ", kNames[0], " nor ", kNames[1]);
  }
  check_io(!paths.empty(), dir.string(), " has no mp_rank_00 with ", kNames[0]);
  return paths;
}

// Sizes of tensor and pipeline parallelism: what the files are for, or more where more are there.
struct Sizes {
  int64_t tensor = 1, pipeline = 1;
};

Sizes sizes_of(const RankPaths& paths, Value args) {
  Sizes sizes;
  auto at_least = [&](int64_t& size, const char* name) {
    std::optional<Value> value = args.find(name);
    if (value && value->is(torchfile::Kind::kInt)) size = std::max(size, value->as_int());
  };
  at_least(sizes.tensor, "tensor_model_parallel_size");
  at_least(sizes.tensor, "model_parallel_size");
  at_least(sizes.pipeline, "pipeline_model_parallel_size");
  for (const auto& [rank, path] : paths) {
    sizes.tensor = std::max(sizes.tensor, rank.first + 1);
    sizes.pipeline = std::max(sizes.pipeline, rank.second + 1);
  }
  check_io(sizes.tensor < 1 << 16 && sizes.pipeline < 1 << 16, "a model is not for ", sizes.tensor,
           " x ", sizes.pipeline, " ranks");
  return sizes;
}

// Stages of the model that a file holds: one, or one for each virtual stage.
std::vector<Value> chunks_of(const TorchFile& file) {
  for (const char* name : {"model", "module"})
    if (std::optional<Value> model = file.root().find(name)) return {*model};
  std::vector<Value> chunks;
  while (std::optional<Value> model = file.root().find(concat("model", chunks.size())))
    chunks.push_back(*model);
  check_io(!chunks.empty(), file.name(), " has neither model nor model0");
  return chunks;
}

using Files = std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const TorchFile>>;

void check_same(const TorchFile& a, const TorchFile& b) {
  check_same_numbers(a, b, {"iteration", "checkpoint_version"});
  check_io(chunks_of(a).size() == chunks_of(b).size(), b.name(), " has ", chunks_of(b).size(),
           " virtual pipeline stages, but ", a.name(), " has ", chunks_of(a).size());
}

Files open_ranks(const fs::path& dir) {
  RankPaths paths = find_ranks(dir);
  check_io(paths.contains({0, 0}), dir.string(), " has no mp_rank_00");
  Files files;
  auto first = std::make_shared<TorchFile>(paths.at({0, 0}));
  Sizes sizes = sizes_of(paths, first->root().find("args").value_or(Value()));
  for (int64_t p = 0; p < sizes.pipeline; ++p)
    for (int64_t t = 0; t < sizes.tensor; ++t) {
      auto path = paths.find({t, p});
      check_io(path != paths.end(), dir.string(), " lacks tensor-parallel rank ", t,
               " of pipeline stage ", p, ": the model is for ", sizes.tensor, " x ", sizes.pipeline,
               " ranks");
      files[{t, p}] = t + p == 0 ? first : std::make_shared<TorchFile>(path->second);
      check_same(*first, *files[{t, p}]);
    }
  return files;
}

}  // namespace

std::optional<fs::path> megatron_step(const fs::path& path, const char* format) {
  fs::path tracker = path / "latest_checkpointed_iteration.txt";
  if (!fs::is_directory(path)) return std::nullopt;
  if (!fs::exists(tracker)) return path;
  std::string text(trim(read_file(tracker)));
  if (text == "release") return path / text;
  bool digits = !text.empty() && text.size() < 10 &&
                text.find_first_not_of("0123456789") == std::string::npos;
  check_io(digits, tracker.string(), " says '", text.substr(0, 40),
           "', neither a number nor release");
  return path / numbered(format, std::stoi(text));
}

MegatronFiles open_megatron_files(const fs::path& path) {
  std::optional<fs::path> dir = megatron_step(path, "iter_%07d");
  check_io(dir && fs::is_directory(*dir), dir ? dir->string() : path.string(), " is no directory");
  Files files = open_ranks(*dir);
  auto first = files.at({0, 0});
  MegatronFiles all{.dir = *dir, .main = first, .args = first->at("args")};
  all.version = number_at(first->root(), "checkpoint_version");
  all.iteration = static_cast<int64_t>(number_at(first->root(), "iteration"));
  int64_t layers = 0, tensor = files.rbegin()->first.first + 1;
  int64_t pipeline = static_cast<int64_t>(files.size()) / tensor;
  for (size_t v = 0; v < chunks_of(*first).size(); ++v)
    for (int64_t p = 0; p < pipeline; ++p) {
      int64_t mine = 0;
      for (int64_t t = 0; t < tensor; ++t) {
        const auto& file = files.at({t, p});
        mine = add_tree(all.parts, {file, chunks_of(*file)[v], t, layers});
      }
      layers += mine;
    }
  check_ranks(all.parts, tensor, all.dir.string());
  return all;
}

}  // namespace neox
