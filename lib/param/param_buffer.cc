#include "param/param_buffer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "ops/cpu_arena.h"

namespace neox {
namespace {

// One of several chunks has whole units of so many elements, 16 bytes of 16-bit parameters: where
// chunks begin elsewhere, NCCL and the optimizer's kernels move element by element.
constexpr int64_t kChunkUnit = 8;

int64_t in_units(int64_t elements, int64_t shards) {
  return shards == 1 ? elements : (elements + kChunkUnit - 1) / kChunkUnit * kChunkUnit;
}

void join(SideStream::Work& beside) {
  if (SideStream::Work wait = std::exchange(beside, nullptr)) wait();
}

}  // namespace

std::pair<int64_t, int64_t> part_of_copies(int64_t chunk, int copy, int copies) {
  int64_t part = chunk / copies;
  return {part * copy, copy + 1 == copies ? chunk : part * (copy + 1)};
}

// Called by autograd right after it has accumulated into the gradient of a leaf.
class ParamBuffer::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(ParamBuffer& buffer) : buffer_(buffer) {}
  void operator()(const torch::autograd::Variable&) override { buffer_.gradient_ready(); }

 private:
  ParamBuffer& buffer_;
};

ParamBuffer::ParamBuffer(std::string name, std::vector<ParamSpec> specs, Sharing sharing,
                         const BufferOptions& options)
    : name_(std::move(name)),
      specs_(std::move(specs)),
      sharing_(std::move(sharing)),
      options_(options) {
  if (!options_.side) options_.side = std::make_shared<SideStream>(options.device);
  for (const ParamSpec& spec : specs_) {
    check(spec.decay == decay() && spec.tp_dim.has_value() == specs_.front().tp_dim.has_value(),
          "buffer ", name_, ": ", spec.name, " is of another kind than ", specs_.front().name);
    boxes_.push_back(tp_box(spec, options.tp_rank, options.tp_size));
  }
  bool whole = options.chunking == Chunking::kWholeTensors && layer_matrices();
  if (whole)
    place_whole_tensors();
  else
    place_elements();
  int64_t size = bounds_.back();
  const Dtypes& types = options.dtypes;
  auto zeros = [&](int64_t n, at::ScalarType type) {
    return untouched_zeros(n, at::dtype(type).device(options.device));
  };
  bool apart =
      options.keeping == Keeping::kChunks && sharing_.shard->size() > 1 && layer_matrices();
  data_ = apart ? at::empty({size}, at::dtype(types.param).device(options.device))
                : zeros(size, types.param);
  own_ = apart ? zeros(chunk_, types.param) : own_part(data_);
  master_ = types.state == types.param ? own_ : zeros(chunk_, types.state);
  if (options.keeping == Keeping::kAll) {
    grad_ = zeros(size, types.grad);
    chunk_grad_ = own_part(grad_);
  } else if (options.keeping != Keeping::kNoGradients) {
    chunk_grad_ = zeros(chunk_, types.grad);
  }
  for (size_t i = 0; i < specs_.size(); ++i) add_leaf(boxes_[i], offsets_[i]);
  let_go();
}

ParamBuffer::~ParamBuffer() = default;

bool ParamBuffer::layer_matrices() const {
  return std::ranges::all_of(specs_, [](const ParamSpec& spec) {
    return spec.shape.size() >= 2 && spec.tp_dim && spec.name.starts_with("layers.");
  });
}

void ParamBuffer::place_elements() {
  int64_t n = 0, shards = sharing_.shard->size();
  for (const Box& box : boxes_) {
    offsets_.push_back(n);
    n += box.numel();
  }
  set_chunks(std::vector(static_cast<size_t>(shards), in_units((n + shards - 1) / shards, shards)));
}

// The largest first, each to the rank that has least: of this bucket, which decides how large equal
// chunks must be, then of all so far.
void ParamBuffer::place_whole_tensors() {
  auto shards = static_cast<size_t>(sharing_.shard->size());
  std::vector<int64_t> used(shards, 0);
  std::vector<size_t> order(boxes_.size()), owner(boxes_.size());
  owned_ = options_.owned;
  owned_.resize(shards, 0);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return boxes_[i].numel(); });
  offsets_.resize(boxes_.size());
  for (size_t i : order) {
    size_t least = 0;
    for (size_t r = 1; r < shards; ++r)
      if (std::pair(used[r], owned_[r]) < std::pair(used[least], owned_[least])) least = r;
    owner[i] = least;
    offsets_[i] = used[least];
    used[least] += boxes_[i].numel();
    owned_[least] += boxes_[i].numel();
  }
  // With a unit at least nobody needs to ask whether a chunk is empty.
  for (int64_t& elements : used)
    elements = in_units(std::max<int64_t>(elements, 1), sharing_.shard->size());
  int64_t widest = *std::ranges::max_element(used), sum = std::reduce(used.begin(), used.end());
  even_ = 2 * widest * sharing_.shard->size() <= 3 * sum;
  if (even_) used.assign(shards, widest);
  set_chunks(used);
  for (size_t i = 0; i < boxes_.size(); ++i) offsets_[i] += bounds_[owner[i]];
}

void ParamBuffer::set_chunks(const std::vector<int64_t>& sizes) {
  bounds_ = {0};
  for (int64_t size : sizes) bounds_.push_back(bounds_.back() + size);
  chunk_ = sizes[static_cast<size_t>(sharing_.shard->rank())];
}

at::Tensor ParamBuffer::own_part(const at::Tensor& flat) const {
  return flat.narrow(0, bounds_[static_cast<size_t>(sharing_.shard->rank())], chunk_);
}

void ParamBuffer::add_leaf(const Box& box, int64_t offset) {
  // variable_data() has a version counter of its own, so publish() may write between forward and
  // backward.
  at::Tensor leaf = data_.narrow(0, offset, box.numel()).view(box.extent).variable_data();
  leaves_.push_back(leaf);
  if (options_.keeping == Keeping::kNoGradients) return;
  leaf.set_requires_grad(true);
  leaf.set_grad_dtype(options_.dtypes.grad);
  if (grad_.defined()) leaf.mutable_grad() = grad_.narrow(0, offset, box.numel()).view(box.extent);
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<Hook>(*this));
}

void ParamBuffer::begin_step() {
  at::NoGradGuard no_grad;
  if (untouched_ && data_.is_cpu()) return;  // a GPU may have the step recorded
  (grad_.defined() ? grad_ : chunk_grad_).zero_();
}

void ParamBuffer::before_backward(bool last_microbatch) {
  untouched_ = false;
  last_microbatch_ = last_microbatch;
  if (last_microbatch || !grad_.defined()) awaited_ = leaves_.size();
  if (grad_.defined()) return;
  passing_.reset();  // of a backward that was given up
  options_.side->forget_held();
  for (at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
}

void ParamBuffer::enter_backward() {
  at::NoGradGuard no_grad;
  gather();
  finish_publish();
  if (grad_.defined()) return;
  passing_ = at::zeros({bounds_.back()}, chunk_grad_.options());
  for (size_t i = 0; i < leaves_.size(); ++i)
    leaves_[i].mutable_grad() =
        passing_.narrow(0, offsets_[i], boxes_[i].numel()).view(boxes_[i].extent);
}

void ParamBuffer::gradient_ready() {
  if (awaited_ > 0 && --awaited_ == 0) sync();
}

void ParamBuffer::after_backward() { join(sum_); }

void ParamBuffer::finish_sync() {
  at::NoGradGuard no_grad;
  check(awaited_ == 0, "buffer ", name_, ": backward left ", awaited_,
        " parameters without a gradient");
  for (Communicator* group : sharing_.sum_at_end) group->all_reduce(chunk_grad_);
}

void ParamBuffer::sync() {
  at::NoGradGuard no_grad;
  let_go();
  if (grad_.defined()) {
    sum_ = options_.side->run([this] { sum_shards(); });
    return;
  }
  sum_ = options_.side->run_holding([this, full = take_gradients()]() mutable {
    chunk_grad_.add_(sum_for_owners(full));
    sum_chunk();
  });
}

// Those of this backward, flat, of all chunks.
at::Tensor ParamBuffer::take_gradients() {
  if (passing_.defined()) {
    for (at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
    return std::exchange(passing_, {}).to(sent_type());
  }
  int64_t whole = bounds_.back();
  if (leaves_.size() == 1 && boxes_[0].numel() == whole && leaves_[0].grad().defined())
    return std::exchange(leaves_[0].mutable_grad(), {}).flatten().to(sent_type());
  at::Tensor full = at::zeros({whole}, chunk_grad_.options().dtype(sent_type()));
  for (size_t i = 0; i < leaves_.size(); ++i) {
    at::Tensor grad = std::exchange(leaves_[i].mutable_grad(), {});
    if (grad.defined()) full.narrow(0, offsets_[i], boxes_[i].numel()).copy_(grad.flatten());
  }
  return full;
}

at::ScalarType ParamBuffer::sent_type() const {
  at::ScalarType given = options_.dtypes.sent;
  return given == at::ScalarType::Undefined ? options_.dtypes.grad : given;
}

void ParamBuffer::sum_shards() {
  if (sharing_.shard->size() > 1) {
    at::Tensor sent = grad_.to(sent_type()), mine = sum_for_owners(sent);
    if (!mine.is_alias_of(grad_)) chunk_grad_.copy_(mine);
  }
  sum_chunk();
}

// The owned chunk of the sum over the shards, a view of `full`, of which the rest is lost. Chunks
// of several sizes are summed on all ranks, for want of an operation that sends each to its owner:
// with publish() three times the elements are sent instead of twice, but no padding.
at::Tensor ParamBuffer::sum_for_owners(at::Tensor& full) {
  at::Tensor mine = own_part(full);
  if (even_)
    sharing_.shard->reduce_scatter(full, mine);
  else
    sharing_.shard->all_reduce(full);
  return mine;
}

void ParamBuffer::sum_chunk() {
  auto alone = [](const Communicator* group) { return group->size() == 1; };
  if (!last_microbatch_ || std::ranges::all_of(sharing_.sum, alone)) return;
  at::Tensor sent = chunk_grad_.to(sent_type());
  for (Communicator* group : sharing_.sum) group->all_reduce(sent);
  if (!sent.is_alias_of(chunk_grad_)) chunk_grad_.copy_(sent);
}

WeightedSquares ParamBuffer::squares() const {
  return {chunk_grad_, stands_for_ * stands_for_ / static_cast<double>(sharing_.copies)};
}

void ParamBuffer::leave_unsummed(const Communicator& group) {
  auto removed = std::erase(sharing_.sum, &group);
  check(removed == 1, "buffer ", name_, ": gradients are not summed over that group");
  stands_for_ = group.size();
}

void ParamBuffer::move_master(at::Device device) {
  at::NoGradGuard no_grad;
  master_ = master_.to(device);
}

at::Tensor ParamBuffer::take_copy() {
  copied_ = !master_.is_alias_of(own_) && master_.device() == own_.device();
  return copied_ ? own_ : at::Tensor();
}

void ParamBuffer::publish() {
  at::NoGradGuard no_grad;
  bool copied = std::exchange(copied_, false) || master_.is_alias_of(own_);
  if (!copied) own_.copy_(master_);
  let_go();
  if (sharing_.shard->size() == 1 || !here()) return;  // nothing to wait for
  start_gather();
}

void ParamBuffer::gather() {
  if (here()) return;
  c10::StorageImpl& memory = *data_.storage().unsafeGetStorageImpl();
  memory.set_data_ptr_noswap(memory.allocator()->allocate(data_.nbytes()));
  memory.set_nbytes(data_.nbytes());
  start_gather();
}

void ParamBuffer::start_gather() {
  gather_ = options_.side->run([this] {
    at::NoGradGuard no_grad;
    if (even_) return sharing_.shard->all_gather(own_, data_);
    if (gathered_around_use()) own_part(data_).copy_(own_);
    for (size_t i = 0; i < boxes_.size(); ++i) {
      auto owner = std::ranges::upper_bound(bounds_, offsets_[i]) - bounds_.begin() - 1;
      at::Tensor values = data_.narrow(0, offsets_[i], boxes_[i].numel());
      sharing_.shard->broadcast(values, static_cast<int>(owner));
    }
  });
}

void ParamBuffer::let_go() {
  if (!here() || !gathered_around_use()) return;
  finish_publish();
  c10::StorageImpl& memory = *data_.storage().unsafeGetStorageImpl();
  memory.set_data_ptr_noswap(at::DataPtr(nullptr, data_.device()));
  memory.set_nbytes(0);
}

void ParamBuffer::finish_publish() { join(gather_); }

const at::Tensor& ParamBuffer::param(size_t i) {
  gather();
  finish_publish();
  return leaves_[i];
}

std::vector<Placement> ParamBuffer::placements() const {
  std::vector<Placement> found;
  int64_t from = bounds_[static_cast<size_t>(sharing_.shard->rank())], to = from + chunk_;
  for (size_t i = 0; i < specs_.size(); ++i) {
    int64_t first = std::max(from, offsets_[i]),
            last = std::min(to, offsets_[i] + boxes_[i].numel());
    cover(boxes_[i], first - offsets_[i], last - offsets_[i], [&](const Box& box, int64_t offset) {
      found.push_back({specs_[i].name, specs_[i].shape, box, offsets_[i] + offset - from});
    });
  }
  std::ranges::sort(found, {}, &Placement::offset);
  return found;
}

ParamBuffer::Memory ParamBuffer::memory() const {
  auto bytes = [](const at::Tensor& t) {
    return t.defined() ? static_cast<int64_t>(t.nbytes()) : 0;
  };
  bool apart = !master_.is_alias_of(own_);
  return {bytes(here() ? data_ : own_), bytes(grad_.defined() ? grad_ : chunk_grad_),
          apart ? bytes(master_) : 0};
}

std::pair<int64_t, int64_t> ParamBuffer::written() const {
  return part_of_copies(chunk_, sharing_.copy, sharing_.copies);
}

}  // namespace neox
