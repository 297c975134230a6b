#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/error.h"
#include "checkpoint/blocks.h"
#include "checkpoint/device_stream.h"
#include "checkpoint/writing.h"

namespace neox {
namespace {

// Of a box, as far as it is cut: who wants a part of a tensor reads all of each box that it meets,
// for the checksum.
constexpr size_t kMostBoxBytes = kBlockBytes;

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

at::Tensor as_bytes(void* memory, size_t size) {
  return at::from_blob(memory, {static_cast<int64_t>(size)}, at::TensorOptions().dtype(at::kByte));
}

// One rank's file, by the steps of write_rank_file().
class RankFile {
 public:
  RankFile(fs::path path, std::span<const StateChunk> chunks) : path_(std::move(path)) {
    for (const StateChunk& chunk : chunks) {
      check_chunk(chunk);
      if (used_elements(chunk) > 0) parts_.push_back({&chunk, 0});
      if (!stream_) stream_ = current_stream(chunk.data);
    }
  }
  std::string write() {
    if (parts_.empty()) return "";
    lay_out();
    RawFile file(path_, RawFile::Mode::kWrite);
    file.reserve(file.size());
    write_payload(file);
    Hdf5File tables(path_, Hdf5File::Mode::kExtend);
    put_catalog(tables, catalog_);
    tables.close();
    std::string reply =
        concat(file.size(), " ", to_string(checksum_outside(file, catalog_.ranges()[0])));
    file.close();
    return reply;
  }

 private:
  struct Part {
    const StateChunk* chunk;
    int64_t offset;  // of its dataset in the file
  };
  struct Block {
    size_t part, begin, bytes;  // begin: in the part
  };

  void lay_out() {
    Hdf5File file(path_, Hdf5File::Mode::kCreate);
    for (Part& part : parts_)
      part.offset = file.add_payload(dataset_name(*part.chunk), part.chunk->data.scalar_type(),
                                     used_elements(*part.chunk));
    file.close();
    std::ranges::sort(parts_, {}, &Part::offset);
    for (const Part& part : parts_) add_to_catalog(part);
  }
  void add_to_catalog(const Part& part) {
    auto dataset = static_cast<int64_t>(catalog_.datasets.size());
    catalog_.datasets.push_back({0, dataset_name(*part.chunk), part.offset});
    for (const Placement& p : part.chunk->placements) add_boxes(*part.chunk, p, dataset);
  }
  // Of whole rows, where they are not longer than a box.
  void add_boxes(const StateChunk& chunk, const Placement& p, int64_t dataset) {
    auto most = static_cast<int64_t>(kMostBoxBytes / chunk.data.element_size());
    int64_t id = tensor_id(chunk, p), all = p.box.numel(), row = all;
    for (size_t d = 0; row > most; ++d) row /= p.box.extent[d];
    int64_t step = most / row * row;
    for (int64_t at = 0; at < all; at += step)
      cover(p.box, at, std::min(at + step, all), [&](const Box& box, int64_t offset) {
        catalog_.boxes.push_back({id, dataset, box, p.offset + offset, {}});
      });
  }
  int64_t tensor_id(const StateChunk& chunk, const Placement& p) {
    auto next = static_cast<int64_t>(catalog_.tensors.size());
    auto [at, fresh] = ids_.try_emplace({chunk.state, p.name}, next);
    if (fresh) catalog_.tensors.push_back({chunk.state, p.name, chunk.data.scalar_type(), p.shape});
    return at->second;
  }

  void write_payload(RawFile& file) {
    std::vector<Block> blocks = cut();
    std::vector<std::span<const std::byte>> bytes(blocks.size());
    auto offset = [&](size_t i) {
      return parts_[blocks[i].part].offset + static_cast<int64_t>(blocks[i].begin);
    };
    std::vector<ByteRange> ranges;
    for (const StoredBox& box : catalog_.boxes) ranges.push_back(catalog_.range(box));
    RangeSums sums(std::move(ranges),
                   [&](size_t box, const Checksum& sum) { catalog_.boxes[box].sum = sum; });
    run_blocks(blocks.size(),
               {.before = [&](size_t i, auto memory) { bytes[i] = bytes_of(blocks[i], memory); },
                .in_turn = [&](size_t i, auto) { sums.add(bytes[i], offset(i)); },
                .after = [&](size_t i, auto) { file.write(bytes[i], offset(i)); }});
  }
  std::vector<Block> cut() const {
    std::vector<Block> blocks;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const StateChunk& chunk = *parts_[i].chunk;
      size_t bytes = static_cast<size_t>(used_elements(chunk)) * chunk.data.element_size();
      for (size_t at = 0; at < bytes; at += kBlockBytes)
        blocks.push_back({i, at, std::min(kBlockBytes, bytes - at)});
    }
    return blocks;
  }
  // Where they lie, if they begin at a page, so that the disk can take them from there.
  std::span<const std::byte> bytes_of(const Block& block, std::span<std::byte> memory) const {
    const at::Tensor& data = parts_[block.part].chunk->data;
    if (data.is_cpu()) {
      const auto* from = static_cast<const std::byte*>(data.const_data_ptr()) + block.begin;
      if (reinterpret_cast<uintptr_t>(from) % kPageBytes == 0) return {from, block.bytes};
      std::memcpy(memory.data(), from, block.bytes);
    } else {
      auto item = static_cast<size_t>(data.element_size());
      c10::OptionalStreamGuard on(stream_);
      at::Tensor part = data.view({-1}).narrow(0, static_cast<int64_t>(block.begin / item),
                                               static_cast<int64_t>(block.bytes / item));
      as_bytes(memory.data(), block.bytes).copy_(part.view(at::kByte));
    }
    return memory.first(block.bytes);
  }

  fs::path path_;
  std::optional<c10::Stream> stream_;  // of the device that chunks are on
  std::vector<Part> parts_;
  Catalog catalog_;
  std::map<std::pair<std::string, std::string>, int64_t> ids_;
};

}  // namespace

std::string write_rank_file(const fs::path& path, std::span<const StateChunk> chunks) {
  return RankFile(path, chunks).write();
}

}  // namespace neox
