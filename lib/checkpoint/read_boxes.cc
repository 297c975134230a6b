#include "checkpoint/read_boxes.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "checkpoint/blocks.h"
#include "checkpoint/device_stream.h"

namespace neox {
namespace {

constexpr auto kPage = static_cast<int64_t>(kPageBytes);

at::Tensor part_of(at::Tensor tensor, const Box& of, const Box& part) {
  for (size_t d = 0; d < part.start.size(); ++d)
    tensor = tensor.narrow(static_cast<int64_t>(d), part.start[d] - of.start[d], part.extent[d]);
  return tensor;
}

at::Tensor view_of(std::span<std::byte> bytes, const Dims& shape, at::ScalarType dtype) {
  return at::from_blob(bytes.data(), shape, at::TensorOptions().dtype(dtype));
}

bool is_plain(const Want& want, at::ScalarType dtype) {
  return want.chunk->data.is_cpu() && want.chunk->data.scalar_type() == dtype;
}

std::span<std::byte> target_bytes(const Want& want) {
  size_t item = want.chunk->data.element_size();
  return {static_cast<std::byte*>(want.chunk->data.mutable_data_ptr()) +
              static_cast<size_t>(want.offset) * item,
          static_cast<size_t>(want.box.numel()) * item};
}

// The elements from the `from`-th on of a box that is wanted as it is stored.
void copy_through(const Want& want, int64_t from, std::span<std::byte> bytes,
                  at::ScalarType dtype) {
  size_t item = c10::elementSize(dtype);
  if (is_plain(want, dtype)) {
    std::memcpy(target_bytes(want).data() + static_cast<size_t>(from) * item, bytes.data(),
                bytes.size());
    return;
  }
  auto count = static_cast<int64_t>(bytes.size() / item);
  want.chunk->data.narrow(0, want.offset + from, count).copy_(view_of(bytes, {count}, dtype));
}

// Copies what a whole stored box and a wanted one share.
void scatter(const Want& want, const Box& box, std::span<std::byte> bytes, at::ScalarType dtype) {
  if (is_plain(want, dtype))
    return copy_shared(box, bytes.data(), want.box, target_bytes(want).data(),
                       c10::elementSize(dtype));
  std::optional<Box> both = intersect(box, want.box);
  if (!both) return;
  at::Tensor target =
      want.chunk->data.narrow(0, want.offset, want.box.numel()).view(want.box.extent);
  part_of(target, want.box, *both).copy_(part_of(view_of(bytes, box.extent, dtype), box, *both));
}

class BoxReader {
 public:
  BoxReader(const RawFile& file, std::span<const BoxRead> boxes) : file_(file), boxes_(boxes) {
    for (size_t i = 0; i < boxes.size(); ++i)
      for (int64_t at = boxes[i].range.begin; at < boxes[i].range.end;) {
        if (blocks_.empty() || at >= blocks_.back().begin + kBlock)
          blocks_.push_back({at / kPage * kPage, at, i, i});
        Block& block = blocks_.back();
        at = block.end = std::min(boxes[i].range.end, block.begin + kBlock);
        block.last_box = i;
      }
  }
  void run(const std::function<void(const BoxRead&, const Checksum&)>& read) {
    if (boxes_.empty()) return;
    std::vector<ByteRange> ranges;
    for (const BoxRead& box : boxes_) ranges.push_back(box.range);
    RangeSums sums(std::move(ranges), [&](size_t i, const Checksum& sum) { read(boxes_[i], sum); });
    // One device: all chunks of a rank are on the same.
    auto stream = current_stream(boxes_[0].wants->front().chunk->data);
    run_blocks(
        blocks_.size(),
        {.before = [&](size_t i, auto memory) { load(blocks_[i], memory); },
         .in_turn = [&](size_t i,
                        auto memory) { sums.add(place_of(blocks_[i], memory), blocks_[i].begin); },
         .after =
             [&](size_t i, auto memory) {
               if (target_of(blocks_[i])) return;
               c10::AutoGradMode no_grad(false);
               c10::OptionalStreamGuard on(stream);
               for (size_t b = blocks_[i].first_box; b <= blocks_[i].last_box; ++b)
                 deliver(boxes_[b], blocks_[i], memory);
             }});
  }

 private:
  static constexpr auto kBlock = static_cast<int64_t>(kBlockBytes);
  struct Block {
    int64_t begin, end;  // in the file; begin is that of a page
    size_t first_box, last_box;
    size_t bytes() const { return static_cast<size_t>(end - begin); }
  };
  // A box that is not wanted as it is stored, until all of its blocks are there.
  struct Pieces {
    std::unique_ptr<std::byte[]> memory;
    int64_t missing;
  };

  // Where the disk puts a block that is wanted as it is stored, whole pages by whole pages; null:
  // it goes through the memory of the block.
  std::byte* target_of(const Block& block) const {
    if (block.begin % kPage != 0 || block.end % kPage != 0) return nullptr;
    std::byte* target = nullptr;
    for (size_t b = block.first_box; b <= block.last_box; ++b) {
      const BoxRead& box = boxes_[b];
      const Want& want = box.wants->front();
      if (box.wants->size() > 1 || !is_plain(want, box.dtype) || want.box != box.box->box)
        return nullptr;
      int64_t from = std::max(box.range.begin, block.begin);
      std::byte* here = target_bytes(want).data() + (from - box.range.begin);
      if (b == block.first_box && from == block.begin) target = here;
      bool follows = b == block.first_box || box.range.begin == boxes_[b - 1].range.end;
      if (!target || !follows || here != target + (from - block.begin)) return nullptr;
    }
    return reinterpret_cast<uintptr_t>(target) % kPageBytes == 0 ? target : nullptr;
  }

  // The bytes of a block that was loaded.
  std::span<std::byte> place_of(const Block& block, std::span<std::byte> memory) const {
    std::byte* target = target_of(block);
    return {target ? target : memory.data(), block.bytes()};
  }

  void load(const Block& block, std::span<std::byte> memory) const {
    if (std::byte* target = target_of(block))
      return file_.read_pages({target, block.bytes()}, block.begin, block.bytes());
    size_t pages = (block.bytes() + kPageBytes - 1) / kPageBytes;
    file_.read_pages(memory.first(pages * kPageBytes), block.begin, block.bytes());
  }

  void deliver(const BoxRead& box, const Block& block, std::span<std::byte> memory) {
    int64_t from = std::max(box.range.begin, block.begin), to = std::min(box.range.end, block.end);
    auto bytes =
        memory.subspan(static_cast<size_t>(from - block.begin), static_cast<size_t>(to - from));
    auto item = static_cast<int64_t>(c10::elementSize(box.dtype));
    bool whole = true;
    for (const Want& want : *box.wants)
      if (want.box == box.box->box)
        copy_through(want, (from - box.range.begin) / item, bytes, box.dtype);
      else
        whole = false;
    if (whole) return;
    std::unique_ptr<std::byte[]> held;
    if (to - from < box.range.end - box.range.begin) {
      held = gather(box, from, bytes);
      if (!held) return;
      bytes = {held.get(), static_cast<size_t>(box.range.end - box.range.begin)};
    }
    for (const Want& want : *box.wants)
      if (want.box != box.box->box) scatter(want, box.box->box, bytes, box.dtype);
  }

  // The whole box, for who brings its last piece.
  std::unique_ptr<std::byte[]> gather(const BoxRead& box, int64_t from,
                                      std::span<const std::byte> bytes) {
    std::byte* memory;
    {
      std::lock_guard lock(mutex_);
      Pieces& pieces = pieces_[&box];
      auto size = static_cast<size_t>(box.range.end - box.range.begin);
      if (!pieces.memory)
        pieces = {std::make_unique_for_overwrite<std::byte[]>(size), static_cast<int64_t>(size)};
      memory = pieces.memory.get();
    }
    std::memcpy(memory + (from - box.range.begin), bytes.data(), bytes.size());
    std::lock_guard lock(mutex_);
    auto at = pieces_.find(&box);
    if ((at->second.missing -= static_cast<int64_t>(bytes.size())) > 0) return nullptr;
    auto all = std::move(at->second.memory);
    pieces_.erase(at);
    return all;
  }

  const RawFile& file_;
  std::span<const BoxRead> boxes_;
  std::vector<Block> blocks_;
  std::mutex mutex_;
  std::map<const BoxRead*, Pieces> pieces_;  // guarded by mutex_
};

}  // namespace

void read_boxes(const RawFile& file, std::span<const BoxRead> boxes,
                const std::function<void(const BoxRead&, const Checksum&)>& read) {
  BoxReader(file, boxes).run(read);
}

}  // namespace neox
