#include "base/error.h"
#include "checkpoint/writing.h"

namespace neox {

CheckpointWriter::CheckpointWriter(const SaveOptions& options, int64_t iteration)
    : options_(options), iteration_(iteration), temporary_(start_directory(options, iteration)) {}

CheckpointWriter::~CheckpointWriter() {
  std::error_code ignored;
  std::filesystem::remove_all(temporary_, ignored);
}

void CheckpointWriter::add(std::span<const StateChunk> chunks) {
  auto file = static_cast<int>(replies_.size());
  replies_.push_back(write_rank_file(temporary_ / rank_file_name(file), chunks));
}

void CheckpointWriter::finish(const TrainState& state) {
  check(state.iteration == iteration_, "a train state of iteration ", state.iteration,
        " for a checkpoint of iteration ", iteration_);
  std::vector<std::string> parts;
  for (const std::string& reply : replies_)
    parts.push_back(read_index_part(temporary_, static_cast<int>(parts.size()), reply, 0));
  finish_directory(temporary_, parts, state);
  publish_whole(options_, temporary_, iteration_);
}

}  // namespace neox
