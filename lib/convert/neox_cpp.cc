// Checkpoints of neox.cpp.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "config/architecture.h"
#include "convert/formats.h"
#include "convert/json.h"
#include "model/parameters.h"
#include "tokenizer/of_config.h"
#include "tokenizer/tokenizer.h"

namespace neox {
namespace {

constexpr std::string_view kParam = "param/";

// "param/embed_in.weight", "adam_m/embed_in.weight" ...
class CheckpointTensors : public TensorSource {
 public:
  explicit CheckpointTensors(const fs::path& dir) : checkpoint_(checkpoint_in(dir)) {
    for (const auto& t : checkpoint_.tensors())
      tensors_.push_back({concat(t.state, "/", t.name), t.dtype, t.shape});
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  at::Tensor read(const std::string& name) const override {
    auto found = std::ranges::find(tensors_, name, &TensorInfo::name);
    check_io(found != tensors_.end(), checkpoint_.dir().string(), " holds no ", name);
    size_t slash = name.find('/');
    at::Tensor tensor = at::empty(found->shape, found->dtype);
    StateChunk chunk{
        .buffer = name,
        .state = name.substr(0, slash),
        .data = tensor.view({-1}),
        .placements = {{name.substr(slash + 1), found->shape, whole(found->shape), 0}}};
    checkpoint_.read({&chunk, 1});
    return tensor;
  }

 private:
  Checkpoint checkpoint_;
  std::vector<TensorInfo> tensors_;
};

std::string optimizer_state(const std::string& theirs) {
  return theirs.starts_with(kParam) ? "" : "state of the optimizer";
}

// The optimizer's tensors stand in one line, by their kinds.
void sum_up_ignored(ModelFiles& model) {
  if (model.ignored.empty()) return;
  std::set<std::string> kinds;
  for (const Ignored& ignored : model.ignored)
    kinds.insert(ignored.name.substr(0, ignored.name.find('/')) + "/*");
  std::string names = join(std::vector(kinds.begin(), kinds.end()), " ");
  model.ignored = {
      {names, concat(model.ignored[0].reason, ", ", model.ignored.size(), " tensors")}};
}

// Does it hold what a save writes?
bool has_parts(const fs::path& dir) {
  std::error_code error;
  for (const char* name : {kIndexFile, kStateFile})
    if (fs::exists(dir / name, error)) return true;
  return fs::exists(dir / rank_file_name(0), error);
}

// key=value of the tokenizer where it will be.
std::vector<std::string> tokenizer_settings(const ModelFiles& model, const fs::path& dir) {
  auto path = [&](const std::string& name) { return name.empty() ? "null" : quoted(dir / name); };
  if (const auto& found = model.tokenizer)
    return {"tokenizer_type=" + found->type, "vocab_file=" + path(found->vocab),
            "merge_file=" + path(found->merges)};
  if (Tokenizer::reads_files(model.config.tokenizer.type))
    log_warning(model.where, " has no tokenizer: neox-generate needs --vocab-file");
  return {"vocab_file=null", "merge_file=null"};
}

const char* precision_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Half:
      return "fp16";
    case at::ScalarType::BFloat16:
      return "bfloat16";
    case at::ScalarType::Double:
      return "fp64";
    default:
      return "fp32";
  }
}

// What neox-generate needs to find architecture and tokenizer, and a run to begin from the weights,
// or to go on.
TrainState train_state(const ModelFiles& model, const Config& config) {
  TrainState state = model.train.value_or(TrainState());
  state.padded_vocab = model.config.model.vocab;
  state.architecture = architecture(model.config.model);
  state.config = config.text();
  state.save_seconds = 0;  // another disk, and no ranks that write at once
  return state;
}

// With the tokenizer where it will be.
Config config_of(const ModelFiles& model, const fs::path& final_dir) {
  std::vector<std::string> settings =
      tokenizer_settings(model, fs::absolute(final_dir) / kCompanionDir);
  settings.push_back(concat("padded_vocab_size=", model.config.model.vocab));
  if (!model.train)
    settings.push_back(concat("precision=", precision_of(model.tensors.at(0).info.dtype)));
  return load_config({.texts = {{model.where, model.config.text()}}, .overrides = settings});
}

// Parameters of one layer, each in a dataset of its own.
std::vector<StateChunk> chunks_of(std::span<const ModelTensor> tensors) {
  std::vector<StateChunk> chunks;
  for (const ModelTensor& t : tensors) {
    auto add = [&](const std::string& state, const at::Tensor& tensor) {
      chunks.push_back({.buffer = t.info.name,
                        .state = state,
                        .data = tensor.contiguous().view({-1}),
                        .placements = {{t.info.name, t.info.shape, whole(t.info.shape), 0}}});
    };
    if (!has_master(t)) add("param", t.read());
    for (const StateTensor& s : t.states) add(s.state, s.read());
  }
  return chunks;
}

}  // namespace

bool is_neox_cpp(const fs::path& path) {
  if (!fs::is_directory(path)) return false;
  if (fs::exists(path / kCompleteFile)) return true;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().filename().string().starts_with("global_step") &&
        fs::exists(entry.path() / kCompleteFile))
      return true;
  return false;
}

void check_no_unfinished_neox_cpp(const fs::path& path) {
  if (!fs::is_directory(path)) return;
  check_io(!has_parts(path), path.string(),
           " is a checkpoint of neox.cpp that is not complete: it has no ", kCompleteFile,
           newest_beside(path));
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().filename().string().starts_with("global_step") && has_parts(entry.path()))
      checkpoint_in(path);
}

std::shared_ptr<const TensorSource> open_neox_cpp_tensors(const fs::path& path) {
  return std::make_shared<CheckpointTensors>(path);
}

ModelFiles open_neox_cpp(const fs::path& path) {
  auto files = std::make_shared<CheckpointTensors>(path);
  const Checkpoint& checkpoint = files->checkpoint();
  ModelFiles model{.where = checkpoint.dir().string(), .config = {}, .files = files};
  model.config = load_config({.texts = {{model.where, checkpoint.state().config}}});
  model.config.model.vocab = checkpoint.state().padded_vocab;
  model.iteration = checkpoint.state().iteration;
  map_tensors(
      model, [](const std::string& ours) { return std::vector{std::string(kParam) + ours}; },
      optimizer_state);
  sum_up_ignored(model);
  fs::path companions = checkpoint.dir().parent_path() / kCompanionDir;
  follow_tokenizer(model.config.tokenizer, companions);
  add_run_companions(model, companions);
  return model;
}

void write_neox_cpp(const ModelFiles& model, const Target& target) {
  if (!model.companions.empty()) copy_companions(model, target.dir / kCompanionDir);
  Config config = config_of(model, target.final_dir);
  write_flushed(target.dir / kModelConfigFile,
                concat("# The model of ", model.where, ", for neox-train\n", config.model_text()));
  TrainState state = train_state(model, config);
  CheckpointWriter writer({.dir = target.dir}, state.iteration);
  std::span<const ModelTensor> left = model.tensors;
  while (!left.empty()) {
    size_t n = 1;
    while (n < left.size() && group_of(left[n].info.name) == group_of(left[0].info.name)) ++n;
    writer.add(chunks_of(left.first(n)));
    left = left.subspan(n);
  }
  writer.finish(state);
}

}  // namespace neox
