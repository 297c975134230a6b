// A bucket of parameters: one flat buffer with views as autograd leaves, their gradients, and the
// chunk of both that this rank owns. Data parallelism and ZeRO 1, 2 and 3 are the sizes and the
// moments at which chunks are summed and gathered.
//
// One rank's object; methods that say "collective" are called by all ranks of the Sharing in the
// same order.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/side_stream.h"
#include "ops/adamw.h"
#include "shard/box.h"

namespace neox {

struct Dtypes {
  at::ScalarType param = at::kFloat;  // what the forward pass computes with
  at::ScalarType grad = at::kFloat;   // what gradients are accumulated in
  at::ScalarType state = at::kFloat;  // master parameters and optimizer state
  // What gradients are sent and summed in over `shard` and `sum`; Undefined: as they are.
  at::ScalarType sent = at::ScalarType::Undefined;
};

// Who owns and who shares the parameters of one bucket.
struct Sharing {
  Communicator* shard;  // this rank owns chunk shard->rank() of shard->size()
  // Gradients are also summed over these: as soon as backward has left the bucket; at the end of
  // the step, by ranks that stand elsewhere in the pipeline, or have parts of the gradient of a
  // whole parameter.
  std::vector<Communicator*> sum, sum_at_end = {};
  int copy = 0,
      copies =
          1;  // the world holds `copies` equal copies of the owned chunk; this one is number `copy`
};

// What a rank keeps of what it shares, beyond its chunk.
enum class Keeping {
  kAll,          // whole parameters, and gradients until the step's last micro-batch (ZeRO 0 and 1)
  kParameters,   // gradients are summed after each micro-batch, and only the chunk stays (ZeRO 2)
  kChunks,       // of layers' matrices neither: they are gathered around their use (ZeRO 3)
  kNoGradients,  // generation: whole parameters without gradients
};

// What may be cut where a bucket is shared out over the shards.
enum class Chunking {
  kElements,      // anything: chunks of equal size
  kWholeTensors,  // no matrix of a layer: each has one owner, and chunks may differ in size
};

struct BufferOptions {
  Dtypes dtypes;
  at::Device device = at::kCPU;
  Keeping keeping = Keeping::kAll;
  int tp_rank = 0, tp_size = 1;
  Chunking chunking = Chunking::kElements;
  std::vector<int64_t> owned = {};  // of buckets before, as of ParamBuffer::owned(); or nothing
  // Beside which gradients are summed and parameters gathered; null: one of its own.
  std::shared_ptr<SideStream> side = nullptr;
};

// The elements that number `copy` of the ranks that hold equal copies of a chunk writes or reads:
// equal parts, and the last one has what is left over.
std::pair<int64_t, int64_t> part_of_copies(int64_t chunk, int copy, int copies);

class ParamBuffer {
 public:
  // Parameters of one kind: all with weight decay or all without, all split over tp or none.
  ParamBuffer(std::string name, std::vector<ParamSpec> specs, Sharing sharing,
              const BufferOptions& options);
  ParamBuffer(const ParamBuffer&) = delete;
  ~ParamBuffer();

  const std::string& name() const { return name_; }
  bool decay() const { return specs_.front().decay; }
  const std::vector<ParamSpec>& specs() const { return specs_; }
  // All of them are matrices of layers that tp splits: no embedding, head, norm or bias.
  bool layer_matrices() const;
  // This rank's box of specs()[i]; a leaf. What this thread's stream is given from now on runs
  // behind the last publish() or gather(), which is called where the parameters are not here.
  // Collective over shard.
  const at::Tensor& param(size_t i);

  // Gradients. begin_step() forgets them; before each backward the trainer calls before_backward(),
  // which lets the bucket start its sync, beside the rest of that backward, as soon as it has left
  // the bucket where that is due; after_backward() joins it, and finish_sync() ends the sum.
  // Collective.
  void begin_step();
  void before_backward(bool last_microbatch);
  // Backward comes to the bucket: its parameters are here, and where gradients are not kept there
  // is room that products can add them to. Without it they are copied to where they are sent from.
  void enter_backward();
  void after_backward();
  void finish_sync();

  // The owned chunk, flat, in Dtypes::state, and its gradient in Dtypes::grad after finish_sync().
  at::Tensor& master() { return master_; }
  at::Tensor& grad() { return chunk_grad_; }
  // Keeps the master on another device, or on the host, from now on; nothing where it is there.
  void move_master(at::Device device);
  // The owned chunk of the parameters, flat, where it is a rounded copy of the master on the same
  // device; else undefined. Who takes it writes it in the pass that updates the master, and the
  // next publish() does not copy.
  at::Tensor take_copy();
  // From now on gradients are not summed over `group`, which is one of those of the Sharing: each
  // rank's own, times the size of the group, stands for the sum. The optimizer makes up for it.
  void leave_unsummed(const Communicator& group);
  // grad(), whose squares count so much that the sum over the world has each element once.
  WeightedSquares squares() const;
  // The masters changed. Starts to send owned chunks to every rank's parameters, beside what
  // follows; the owned chunk may be read meanwhile. Parameters that are gathered around their use
  // are let go instead. Collective over shard.
  void publish();
  // Of parameters that are gathered around their use: starts to, where they are not here, and lets
  // them go. Autograd may hold a parameter that was let go, and must not use it. Collective over
  // shard.
  bool gathered_around_use() const { return !own_.is_alias_of(data_); }
  void gather();
  void let_go();
  // Joins what publish() or gather() started, as param() does.
  void finish_publish();

  // The boxes in the owned chunk.
  std::vector<Placement> placements() const;
  int64_t chunk_size() const { return chunk_; }
  // The elements of whole tensors that each shard owns, of this bucket and those before; nothing
  // where tensors are cut.
  const std::vector<int64_t>& owned() const { return owned_; }
  // Bytes here. master: beyond params, where it is of another type.
  struct Memory {
    int64_t params, grads, master;
  };
  Memory memory() const;
  // The elements of the owned chunk that this rank writes to a checkpoint: part_of_copies().
  std::pair<int64_t, int64_t> written() const;

 private:
  class Hook;
  void place_elements();
  void place_whole_tensors();
  void set_chunks(const std::vector<int64_t>& sizes);
  at::Tensor own_part(const at::Tensor& flat) const;
  bool here() const { return data_.storage().nbytes() > 0; }
  void start_gather();
  void add_leaf(const Box& box, int64_t offset);
  void gradient_ready();
  void sync();
  at::Tensor take_gradients();
  void sum_shards();
  at::Tensor sum_for_owners(at::Tensor& full);
  void sum_chunk();
  at::ScalarType sent_type() const;

  std::string name_;
  std::vector<ParamSpec> specs_;
  Sharing sharing_;
  BufferOptions options_;
  std::vector<Box> boxes_;
  std::vector<int64_t> offsets_;
  std::vector<at::Tensor> leaves_;
  std::vector<int64_t> owned_;
  std::vector<int64_t> bounds_;  // of the chunks
  bool even_ = true;             // the chunks are of one size
  int64_t chunk_ = 0;            // the owned one's
  at::Tensor data_, grad_;       // flat, shard->size() chunks; elements of no parameter stay 0
  // Owned chunk; views of the above, or of each other, where type and size allow it.
  at::Tensor own_, master_, chunk_grad_;
  at::Tensor passing_;     // gradients of one backward, as grad_; from enter_backward() to the sync
  double stands_for_ = 1;  // gradients: the size of the group that they are not summed over
  bool last_microbatch_ = false;
  bool copied_ = false;            // the master, to where take_copy() said
  bool untouched_ = true;          // the gradients, since they were made
  size_t awaited_ = 0;             // gradients that the armed sync still waits for; 0: not armed
  SideStream::Work sum_, gather_;  // the joins of what runs beside; empty: nothing does
};

}  // namespace neox
