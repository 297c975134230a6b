#include "comm/mesh.h"

#include "base/error.h"

namespace neox {

std::string to_string(const Layout& l) {
  return concat("pp ", l.pp, " x replicate ", l.replicate, " x shard ", l.shard, " x tp ", l.tp);
}

Mesh::Mesh(const Layout& layout, Communicator& world) : layout_(layout), world_(world) {
  check_usage(world.size() == layout.size(), "the layout ", to_string(layout), " needs ",
              layout.size(), " ranks, the job has ", world.size());
  // Ranks that differ only in a coordinate of this extent, and stride in the rank number.
  auto axis = [&](int extent, int stride, const char* name) {
    int coordinate = world.rank() / stride % extent;
    return world.split(world.rank() - coordinate * stride, name);
  };
  tp_ = axis(layout.tp, 1, "tp");
  shard_ = axis(layout.shard, layout.tp, "shard");
  replicate_ = axis(layout.replicate, layout.tp * layout.shard, "replicate");
  data_ = axis(layout.shard * layout.replicate, layout.tp, "data");
  pp_ = axis(layout.pp, layout.tp * layout.shard * layout.replicate, "pp");
  bool end = first_stage() || last_stage();
  pp_ends_ = pp_->split(end ? 0 : pp_->rank(), "pp_ends");
}

}  // namespace neox
