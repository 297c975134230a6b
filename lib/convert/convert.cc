#include "convert/convert.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "convert/read_ahead.h"
#include "tokenizer/tokenizer.h"

namespace neox {
namespace {

constexpr int64_t kAhead = 256 << 20;  // read before it is asked for

// "layers.12.mlp" is "layers.*.mlp": the layers stand in one line of the table.
std::string over_layers(const std::string& name) {
  std::vector<std::string> parts = split(name, '.');
  for (std::string& part : parts)
    if (!part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })) {
      part = "*";
      break;
    }
  return join(parts, ".");
}

struct Row {
  std::string from, to, what;
};

// Equal rows stand once, with their number.
std::string render(const std::vector<Row>& rows) {
  std::vector<std::pair<Row, int64_t>> lines;
  std::map<std::string, size_t> known;
  size_t from = 0, to = 0;
  for (const Row& row : rows) {
    auto [at, fresh] = known.try_emplace(row.from + '\n' + row.to + '\n' + row.what, lines.size());
    if (fresh) lines.emplace_back(row, 0);
    ++lines[at->second].second;
    from = std::max(from, row.from.size());
    to = std::max(to, row.to.size());
  }
  std::string text;
  for (auto& [row, count] : lines) {
    row.from.resize(from, ' ');
    row.to.resize(to, ' ');
    text += concat("  ", row.from, "  ", row.to, "  ", row.what,
                   count > 1 ? concat("  x ", count) : "", "\n");
  }
  return text;
}

std::string table(const ModelFiles& model, const std::vector<at::ScalarType>& types) {
  std::vector<Row> rows;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const ModelTensor& t = model.tensors[i];
    std::string type = type_words(types[i]);
    if (types[i] != t.info.dtype) type += " -> " + type_words(t.info.dtype);
    if (!t.note.empty()) type += ", " + t.note;
    std::string from;
    for (const std::string& name : t.from) from += (from.empty() ? "" : " ") + over_layers(name);
    rows.push_back({from, over_layers(t.info.name), concat(to_string(t.info.shape), " ", type)});
  }
  if (model.train) {
    std::string states;
    for (const StateTensor& s : model.tensors.at(0).states)
      states += (states.empty() ? "" : ", ") + s.state;
    rows.push_back({"state of the optimizer", states,
                    concat("of each, fp32; iteration ", model.train->iteration, ", step ",
                           model.train->optimizer_steps, ", ", model.train->consumed_samples,
                           " samples taken, loss scale ", model.train->loss_scale)});
  }
  for (const Ignored& ignored : model.ignored)
    rows.push_back({over_layers(ignored.name), "-", "left out: " + ignored.reason});
  return render(rows);
}

int64_t state_bytes(const ModelTensor& t) {
  return num_elements(t.info.shape) * static_cast<int64_t>(sizeof(float));
}

int64_t bytes_of(const ModelFiles& model) {
  int64_t bytes = 0;
  for (const ModelTensor& t : model.tensors) {
    if (!has_master(t)) bytes += t.info.bytes();
    bytes += static_cast<int64_t>(t.states.size()) * state_bytes(t);
  }
  return bytes;
}

void check_target(const ConvertOptions& options) {
  std::error_code error;
  check_usage(!options.target.empty() && !fs::exists(fs::symlink_status(options.target, error)),
              options.target.string(), " exists; name a directory that does not, or remove it");
}

void check_space(const fs::path& target, int64_t bytes) {
  int64_t room = free_bytes(target);
  check_io(room > bytes, "the tensors have ", human_bytes(static_cast<double>(bytes)), ", but ",
           human_bytes(static_cast<double>(room)), " are free at ", target.string(),
           ": free some, or name a target on another disk");
}

void check_numbers(const ConvertOptions& options, const Format& to) {
  check_usage(options.rows.value_or(1) > 0, "--padded-vocab ", options.rows.value_or(1),
              ": must be at least 1");
  check_usage(options.tensor_parallel > 0, "--tensor-parallel ", options.tensor_parallel,
              ": must be at least 1");
  check_usage(options.pipeline_parallel >= 0, "--pipeline-parallel ", options.pipeline_parallel,
              ": must be at least 0");
  bool alone = options.tensor_parallel == 1 && options.pipeline_parallel == 1;
  check_usage(
      alone || to.files == Format::Files::kForRanks,
      options.tensor_parallel > 1 ? "--tensor-parallel" : "--pipeline-parallel", ": the files of ",
      to.name,
      " are the same for any number of ranks; leave it out, or convert to neox or megatron");
  check_usage(options.max_shard_bytes > 0, "--max-shard-size must be positive");
}

// The rows that are cut off must be padding.
void check_rows(const ModelFiles& model, int64_t rows) {
  int64_t had = model.config.model.vocab;
  if (rows >= had) return;
  auto entries = entries_of(model);
  check_usage(!entries || rows >= *entries, "--padded-vocab ", rows, ": the tokenizer of ",
              model.where, " has ", entries.value_or(0),
              " entries, so rows in use would be cut off; give at least that number");
  if (!entries)
    log_warning("--padded-vocab ", rows, " cuts off rows ", rows, "..", had - 1, " of ",
                model.where, "; without its tokenizer it is not known whether they are in use");
}

// Where tokens have no rows, programs refuse the model.
void check_entries(const ModelFiles& model) {
  std::string why;
  int64_t rows = model.config.model.vocab, entries = entries_of(model, &why).value_or(0);
  if (!why.empty()) log_warning(why, "; texts need another tokenizer than that of ", model.where);
  if (entries > rows)
    log_warning("the tokenizer of ", model.where, " has ", entries, " entries, but the embedding ",
                rows,
                " rows: neox-generate and neox-train refuse a tokenizer that is larger than "
                "the model; --padded-vocab ",
                entries, ", or more, adds rows of zeros");
}

using Read = std::function<at::Tensor()>;

// The first read counts.
Read counted(Read read, Progress& progress, int64_t bytes) {
  return [read = std::move(read), &progress, bytes]() mutable {
    at::Tensor tensor = read();
    progress.add(std::exchange(bytes, 0));
    return tensor;
  };
}

// Reading a tensor moves the bar.
void show_progress(ModelFiles& model, Progress& progress) {
  for (ModelTensor& t : model.tensors) {
    t.read = counted(t.read, progress, t.info.bytes());
    for (StateTensor& s : t.states) s.read = counted(s.read, progress, state_bytes(t));
  }
}

// "DST.tmp-77". What an interrupted conversion has left under such a name is not gone on with: in
// containers processes have the same numbers.
fs::path new_directory(const std::string& target) {
  for (int number = 0;; ++number) {
    std::string more = number > 0 ? concat("-", number) : "";
    fs::path dir = concat(target, ".tmp-", ::getpid(), more);
    if (fs::create_directory(dir)) return dir;
  }
}

void write_whole(const Format& to, const ModelFiles& model, const ConvertOptions& options) {
  fs::path parent = fs::absolute(options.target).lexically_normal();
  if (!parent.has_filename()) parent = parent.parent_path();
  fs::path final_dir = parent;
  parent = parent.parent_path();
  make_directories(parent);
  fs::path temporary = new_directory((parent / final_dir.filename()).string());
  try {
    to.write(model, {.dir = temporary,
                     .final_dir = final_dir,
                     .max_shard_bytes = options.max_shard_bytes,
                     .tensor_parallel = options.tensor_parallel,
                     .pipeline_parallel = options.pipeline_parallel});
    sync_directory(temporary);
    std::error_code error;
    fs::rename(temporary, final_dir, error);
    check_io(!error, "cannot give ", temporary.string(), " the name ", final_dir.string(), ": ",
             describe_errno(error.value()));
    sync_directory(parent);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace

std::string convert(const ConvertOptions& options) {
  const Format& to = format_named(options.to);
  check_target(options);
  check_numbers(options, to);
  const Format& from = format_of(options.source, options.from);
  ModelFiles model = from.open(options.source);
  check_usage(!model.config.model.scores || to.open == open_hf, model.where,
              " is a reward model (train_impl: rm), which is written as one of sequence "
              "classification alone; give --to hf");
  std::vector<at::ScalarType> types;
  for (const ModelTensor& t : model.tensors) types.push_back(t.info.dtype);
  if (options.rows) {
    check_rows(model, *options.rows);
    set_rows(model, *options.rows);
    choose_tokenizer(model);  // tokens that had no rows have some now
  }
  check_entries(model);
  if (options.dtype) set_dtype(model, *options.dtype);
  if (to.holds == Format::Holds::kWeights) {
    drop_train_state(model, concat(to.name, " holds weights alone"));
    fold_multipliers(model);
  }
  if (model.open_train_state) model.open_train_state(model);
  std::string text = table(model, types);
  int64_t bytes = bytes_of(model);
  check_space(options.target, bytes);
  log_info(from.name, " -> ", to.name, ": ", model.tensors.size(), " tensors, ",
           human_bytes(static_cast<double>(bytes)));
  ReadAhead ahead(model, kAhead);
  Progress progress({.label = "convert", .unit = "B", .total = bytes});
  show_progress(model, progress);
  write_whole(to, model, options);
  progress.finish();
  return text;
}

}  // namespace neox
