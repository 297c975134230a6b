// The ranks of a job as a grid of named axes. Each axis is a Communicator of the ranks that differ
// only in that coordinate; an axis of size 1 is a group of one.
#pragma once
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace neox {

// Sizes of the axes, slowest first: tp ranks are neighbours on a node.
struct Layout {
  int pp = 1;         // pipeline stages
  int replicate = 1;  // copies of the whole state
  int shard = 1;      // ranks that share one copy of the state (ZeRO)
  int tp = 1;         // ranks that share each layer
  int size() const { return pp * replicate * shard * tp; }
};

std::string to_string(const Layout& layout);  // "pp 2 x replicate 1 x shard 3 x tp 2"

class Mesh {
 public:
  // Collective over world, which must outlive the mesh. Throws where the layout does not fill it.
  Mesh(const Layout& layout, Communicator& world);
  const Layout& layout() const { return layout_; }
  Communicator& world() { return world_; }
  Communicator& pp() { return *pp_; }
  Communicator& replicate() { return *replicate_; }
  Communicator& shard() { return *shard_; }
  Communicator& tp() { return *tp_; }
  // The ranks that hold other samples: replicate x shard.
  Communicator& data() { return *data_; }
  // The first and the last pipeline stage, which share a tied embedding; the other stages are alone
  // in it.
  Communicator& pp_ends() { return *pp_ends_; }
  bool first_stage() const { return pp_->rank() == 0; }
  bool last_stage() const { return pp_->rank() == pp_->size() - 1; }

 private:
  Layout layout_;
  Communicator& world_;
  // Some are the same: data ranks that are all replicas or all shards, the ends of two stages.
  std::shared_ptr<Communicator> pp_, replicate_, shard_, tp_, data_, pp_ends_;
};

}  // namespace neox
