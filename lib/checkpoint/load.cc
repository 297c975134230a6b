#include <algorithm>
#include <atomic>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/read_boxes.h"

namespace neox {
namespace {

using TensorKey = std::pair<std::string, std::string>;  // state, name

// Where `part`, which lies in `box`, begins in it; nothing where there are others between its
// elements.
std::optional<int64_t> offset_in(const Box& box, const Box& part) {
  int64_t offset = 0;
  bool several = false;
  for (size_t d = 0; d < box.extent.size(); ++d) {
    if (several && part.extent[d] != box.extent[d]) return std::nullopt;
    several = several || part.extent[d] > 1;
    offset = offset * box.extent[d] + part.start[d] - box.start[d];
  }
  return offset;
}

}  // namespace

StateChunk elements_of(const StateChunk& chunk, std::pair<int64_t, int64_t> range) {
  auto [from, to] = range;
  StateChunk part{chunk.buffer, chunk.state, chunk.data.narrow(0, from, to - from), {}};
  for (const Placement& p : chunk.placements)
    cover(p.box, std::max(from - p.offset, int64_t{0}), std::min(to - p.offset, p.box.numel()),
          [&, from = from](const Box& box, int64_t offset) {
            part.placements.push_back({p.name, p.shape, box, p.offset + offset - from});
          });
  return part;
}

struct Checkpoint::Impl {
  explicit Impl(Opened o)
      : opened(std::move(o)),
        boxes(opened.catalog.tensors.size()),
        rest_is_sound(opened.catalog.files.size()) {
    const Catalog& c = opened.catalog;
    for (size_t i = 0; i < c.tensors.size(); ++i) ids[{c.tensors[i].state, c.tensors[i].name}] = i;
    for (const StoredBox& box : c.boxes) boxes[static_cast<size_t>(box.tensor)].push_back(&box);
    ranges = c.ranges();
  }
  const StoredTensor& tensor(const StoredBox& box) const {
    return opened.catalog.tensors[static_cast<size_t>(box.tensor)];
  }

  size_t find_tensor(const std::string& state, const Placement& p) const;
  using Plan = std::map<const StoredBox*, std::vector<Want>>;
  void plan(const StateChunk& chunk, const Placement& p, Plan& jobs) const;
  void read_file(size_t file, std::span<const StoredBox* const> wanted, const Plan& jobs) const;
  void check_sum(const StoredBox& box, const Checksum& found) const;

  Opened opened;
  std::map<TensorKey, size_t> ids;
  std::vector<std::vector<const StoredBox*>> boxes;  // of each tensor
  std::vector<std::vector<ByteRange>> ranges;        // of each file
  // Of each file, whether its bytes outside of tensors were checked: who reads a tensor at a time
  // would check all of them for each. Threads that meet there check twice.
  mutable std::vector<std::atomic<bool>> rest_is_sound;
};

size_t Checkpoint::Impl::find_tensor(const std::string& state, const Placement& p) const {
  auto found = ids.find({state, p.name});
  if (found == ids.end()) {
    std::vector<std::string> names;
    for (const auto& [key, id] : ids)
      if (key.first == state) names.push_back(key.second);
    std::string near = nearest(p.name, names);
    fail(Exit::kIo, opened.dir.string(), " holds no ", state, " of ", p.name, " ",
         to_string(p.shape), near.empty() ? "" : "; it has one of " + near);
  }
  const StoredTensor& stored = opened.catalog.tensors[found->second];
  check_io(stored.shape == p.shape, opened.dir.string(), ": ", state, " of ", p.name, " is ",
           to_string(stored.shape), ", but ", to_string(p.shape),
           " is asked for: it was saved by a model of another architecture");
  return found->second;
}

void Checkpoint::Impl::plan(const StateChunk& chunk, const Placement& p, Plan& jobs) const {
  std::string name = chunk.state + " of " + p.name;
  check(
      chunk.data.is_contiguous() && p.offset >= 0 && p.offset + p.box.numel() <= chunk.data.numel(),
      name, " ", to_string(p.box), " does not fit into its buffer");
  size_t id = find_tensor(chunk.state, p);
  int64_t missing = p.box.numel();
  for (const StoredBox* box : boxes[id]) {
    std::optional<Box> both = intersect(box->box, p.box);
    if (!both) continue;
    missing -= both->numel();
    // Of a box that is wanted whole, and whose elements follow each other there too, each goes
    // where it belongs as soon as it is read.
    std::optional<int64_t> offset;
    if (*both == box->box) offset = offset_in(p.box, *both);
    jobs[box].push_back(offset ? Want{&chunk, *both, p.offset + *offset}
                               : Want{&chunk, p.box, p.offset});
  }
  check_io(missing == 0, opened.dir.string(), ": ", missing, " elements of ", name, " ",
           to_string(p.box), " lie in none of its files, according to ", kIndexFile);
}

void Checkpoint::Impl::check_sum(const StoredBox& box, const Checksum& found) const {
  if (found == box.sum) return;
  const Catalog& c = opened.catalog;
  ByteRange range = c.range(box);
  fail(Exit::kIo, (opened.dir / c.files[static_cast<size_t>(c.file_of(box))].name).string(),
       " is damaged: ", c.label(box.tensor), " ", to_string(box.box), ", bytes ", range.begin,
       " to ", range.end, ", has the checksum ", to_string(found), ", not ", to_string(box.sum));
}

// wanted: of this file, in the order of their places.
void Checkpoint::Impl::read_file(size_t id, std::span<const StoredBox* const> wanted,
                                 const Plan& jobs) const {
  const StoredFile& stored = opened.catalog.files[id];
  fs::path path = opened.dir / stored.name;
  RawFile file(path, RawFile::Mode::kRead);
  check_io(file.size() == stored.bytes, path.string(), " has ", file.size(), " bytes, not ",
           stored.bytes);
  std::vector<BoxRead> reads;
  for (const StoredBox* box : wanted)
    reads.push_back({box, opened.catalog.range(*box), tensor(*box).dtype, &jobs.at(box)});
  read_boxes(file, reads,
             [&](const BoxRead& read, const Checksum& sum) { check_sum(*read.box, sum); });
  if (rest_is_sound[id]) return;
  check_io(checksum_outside(file, ranges[id]) == stored.rest, path.string(),
           " is damaged: the checksum of its bytes outside of tensors is wrong");
  rest_is_sound[id] = true;
}

Checkpoint::Checkpoint(const fs::path& dir, RankFiles files) {
  try {
    impl_ = std::make_unique<Impl>(open_complete(dir));
    if (files == RankFiles::kLookAt) check_rank_files(impl_->opened);
  } catch (const Error& e) { fail_with_advice(dir, e); }
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

const TrainState& Checkpoint::state() const { return impl_->opened.state; }
const fs::path& Checkpoint::dir() const { return impl_->opened.dir; }
int64_t Checkpoint::num_files() const {
  return static_cast<int64_t>(impl_->opened.catalog.files.size());
}

std::vector<Checkpoint::TensorInfo> Checkpoint::tensors() const {
  std::vector<TensorInfo> infos;
  for (const StoredTensor& t : impl_->opened.catalog.tensors)
    infos.push_back({t.state, t.name, t.shape, t.dtype});
  return infos;
}

std::string Checkpoint::parameters_hash() const {
  const Catalog& c = impl_->opened.catalog;
  std::vector<std::string> lines;
  for (const StoredBox& box : c.boxes)
    if (impl_->tensor(box).state == "param")
      lines.push_back(
          concat(impl_->tensor(box).name, " ", to_string(box.box), " ", to_string(box.sum), "\n"));
  std::ranges::sort(lines);
  return to_string(checksum(join(lines, "")));
}

void Checkpoint::read(std::span<StateChunk> chunks, int rank) const {
  const Catalog& c = impl_->opened.catalog;
  Impl::Plan jobs;
  for (const StateChunk& chunk : chunks)
    for (const Placement& placement : chunk.placements) impl_->plan(chunk, placement, jobs);
  std::vector<std::vector<const StoredBox*>> of(c.files.size());
  for (const auto& [box, wants] : jobs) of[static_cast<size_t>(c.file_of(*box))].push_back(box);
  try {
    for (size_t i = 0; i < of.size(); ++i) {
      size_t file = (static_cast<size_t>(rank) + i) % of.size();
      if (of[file].empty()) continue;
      std::ranges::sort(of[file], {}, [&](const StoredBox* box) { return c.range(*box).begin; });
      impl_->read_file(file, of[file], jobs);
    }
  } catch (const Error& e) { fail_with_advice(dir(), e); }
}

}  // namespace neox
