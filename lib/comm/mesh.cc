#include "comm/mesh.h"

#include "base/error.h"

namespace neox {

std::string to_string(const Layout& l) {
  return concat("pp ", l.pp, " x replicate ", l.replicate, " x shard ", l.shard, " x tp ", l.tp);
}

Mesh::Mesh(const Layout& layout, Communicator& world) : layout_(layout), world_(world) {
  check_usage(world.size() == layout.size(), "the layout ", to_string(layout), " needs ",
              layout.size(), " ranks, the job has ", world.size());
  // Ranks that differ only in a coordinate of this extent, and stride in the rank number. To make a
  // group takes the network a while, and memory: those that are there already are taken.
  auto axis = [&](int extent, int stride, const char* name) -> std::shared_ptr<Communicator> {
    if (extent == 1) return self_communicator();
    int coordinate = world.rank() / stride % extent;
    return world.split(world.rank() - coordinate * stride, name);
  };
  tp_ = axis(layout.tp, 1, "tp");
  shard_ = axis(layout.shard, layout.tp, "shard");
  replicate_ = axis(layout.replicate, layout.tp * layout.shard, "replicate");
  data_ = layout.replicate == 1 ? shard_
          : layout.shard == 1   ? replicate_
                                : axis(layout.shard * layout.replicate, layout.tp, "data");
  pp_ = axis(layout.pp, layout.tp * layout.shard * layout.replicate, "pp");
  bool end = first_stage() || last_stage();
  if (layout.pp <= 2)
    pp_ends_ = pp_;
  else
    pp_ends_ = pp_->split(end ? 0 : pp_->rank(), "pp_ends");
}

}  // namespace neox
