#include <span>

#include "base/error.h"
#include "checkpoint/writing.h"

namespace neox {
namespace {

std::string dataset_name(const StateChunk& chunk) { return chunk.buffer + "/" + chunk.state; }

// Elements up to the end of the last box: what follows is padding.
int64_t used_elements(const StateChunk& chunk) {
  if (chunk.placements.empty()) return 0;
  const Placement& last = chunk.placements.back();
  return last.offset + last.box.numel();
}

void check_chunk(const StateChunk& chunk) {
  std::string name = dataset_name(chunk);
  check(chunk.data.is_contiguous(), name, " is not contiguous");
  check(!chunk.buffer.empty() && !chunk.state.empty() && !name.starts_with("catalog/"), "'", name,
        "' cannot be the name of a dataset");
  dtype_name(chunk.data.scalar_type());
  int64_t end = 0;
  for (const Placement& p : chunk.placements) {
    bool inside = p.box.start.size() == p.shape.size() && p.box.extent.size() == p.shape.size() &&
                  intersect(p.box, whole(p.shape)) == p.box;
    check(inside && !p.name.empty(), name, ": ", to_string(p.box), " is no box of ", p.name, " ",
          to_string(p.shape));
    check(p.offset >= end && p.offset + p.box.numel() <= chunk.data.numel(), name, ": ", p.name,
          " ", to_string(p.box), " at element ", p.offset, " of ", chunk.data.numel(),
          " overlaps the one before, or does not fit");
    end = p.offset + p.box.numel();
  }
}

// One rank's file: HDF5 lays it out, the payload is written at the places it gave, HDF5 adds the
// catalog.
class RankFile {
 public:
  RankFile(fs::path path, std::span<const StateChunk> chunks) : path_(std::move(path)) {
    for (const StateChunk& chunk : chunks) {
      check_chunk(chunk);
      if (used_elements(chunk) > 0) chunks_.push_back(&chunk);
    }
  }
  // "<bytes> <checksum of all that belongs to no box>", or "" where this rank owns nothing.
  std::string write() {
    if (chunks_.empty()) return "";
    lay_out();
    RawFile file(path_, RawFile::Mode::kWrite);
    file.reserve(file.size());
    for (size_t i = 0; i < chunks_.size(); ++i) write_chunk(file, *chunks_[i], i);
    Hdf5File tables(path_, Hdf5File::Mode::kExtend);
    put_catalog(tables, catalog_);
    tables.close();
    std::string reply =
        concat(file.size(), " ", to_string(checksum_outside(file, catalog_.ranges()[0])));
    file.close();
    return reply;
  }

 private:
  void lay_out() {
    Hdf5File file(path_, Hdf5File::Mode::kCreate);
    for (const StateChunk* chunk : chunks_) {
      std::string name = dataset_name(*chunk);
      int64_t offset = file.add_payload(name, chunk->data.scalar_type(), used_elements(*chunk));
      catalog_.datasets.push_back({0, name, offset});
    }
    file.close();
  }
  void write_chunk(RawFile& file, const StateChunk& chunk, size_t dataset) {
    at::Tensor host = chunk.data.cpu();
    size_t item = host.element_size();
    auto all = std::span(static_cast<const std::byte*>(host.const_data_ptr()),
                         static_cast<size_t>(used_elements(chunk)) * item);
    for (const Placement& p : chunk.placements) {
      auto bytes = all.subspan(static_cast<size_t>(p.offset) * item,
                               static_cast<size_t>(p.box.numel()) * item);
      catalog_.boxes.push_back(
          {tensor_id(chunk, p), static_cast<int64_t>(dataset), p.box, p.offset, checksum(bytes)});
    }
    file.write(all, catalog_.datasets[dataset].offset);
  }
  int64_t tensor_id(const StateChunk& chunk, const Placement& p) {
    auto next = static_cast<int64_t>(catalog_.tensors.size());
    auto [at, fresh] = ids_.try_emplace({chunk.state, p.name}, next);
    if (fresh) catalog_.tensors.push_back({chunk.state, p.name, chunk.data.scalar_type(), p.shape});
    return at->second;
  }

  fs::path path_;
  std::vector<const StateChunk*> chunks_;
  Catalog catalog_;
  std::map<std::pair<std::string, std::string>, int64_t> ids_;
};

}  // namespace

std::string write_rank_file(const fs::path& path, std::span<const StateChunk> chunks) {
  return RankFile(path, chunks).write();
}

}  // namespace neox
