#include "train/start.h"

#include "base/error.h"
#include "model/parameters.h"

namespace neox {
namespace {

std::optional<Checkpoint> open_checkpoint(const Config& config) {
  const CheckpointConfig& c = config.checkpoint;
  if (c.load.empty()) return std::nullopt;
  auto found = find_checkpoint(c.load, c.iteration);
  if (found) return Checkpoint(*found);
  check_usage(c.load == c.save, config.where("load"), ": load names ", c.load.string(),
              ", where there is no checkpoint; to start afresh leave load out, or give it the "
              "directory of save");
  return std::nullopt;
}

int64_t first_vocab(const Config& config, const Tokenizer* tokenizer) {
  if (tokenizer) return padded_vocab(config, tokenizer->vocab_size());
  check_usage(config.tokenizer.padded_vocab_size.has_value(),
              "the size of the vocabulary is not known: give vocab_file (the tokenizer), or "
              "padded_vocab_size");
  return *config.tokenizer.padded_vocab_size;
}

void check_vocab(const Config& config, const TrainState& state, const Tokenizer* tokenizer,
                 const std::string& dir) {
  check_usage(!tokenizer || tokenizer->vocab_size() <= state.padded_vocab,
              config.where("vocab_file"), ": the tokenizer ", config.tokenizer.vocab_file.string(),
              " has ", tokenizer ? tokenizer->vocab_size() : 0, " entries, the model of ", dir,
              " has room for ", state.padded_vocab,
              ": it is not the tokenizer that the run began with");
  check_usage(state.padded_vocab % config.layout.tensor == 0, config.where("model_parallel_size"),
              ": model_parallel_size ", config.layout.tensor, " does not divide the ",
              state.padded_vocab, " rows that the embedding of ", dir, " has");
}

void check_architecture(const Config& config, const TrainState& state, const std::string& dir) {
  std::string mine = architecture(config.model);
  check_usage(mine == state.architecture, dir,
              " holds another model.\n  there:  ", state.architecture, "\n  config: ", mine,
              "\nGive the run its own save and load directories, or the config of that model.");
}

}  // namespace

Start find_start(Config& config, const Tokenizer* tokenizer, int64_t data_ranks) {
  Start start{.checkpoint = open_checkpoint(config)};
  if (start.checkpoint) {
    start.state = start.checkpoint->state();
    std::string dir = start.checkpoint->dir().string();
    check_vocab(config, start.state, tokenizer, dir);
    config.model.vocab = start.state.padded_vocab;
    check_architecture(config, start.state, dir);
    start.batch = plan_batch(config, data_ranks, start.state.global_batch);
    return start;
  }
  config.model.vocab = first_vocab(config, tokenizer);
  start.batch = plan_batch(config, data_ranks);
  start.state.global_batch = start.batch.global;
  start.state.dataset_samples = config.train.iters * start.batch.global;
  start.state.padded_vocab = config.model.vocab;
  start.state.architecture = architecture(config.model);
  return start;
}

}  // namespace neox
