#include "convert/megatron_distcp.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "convert/tensor_source.h"
#include "torchfile/tensor.h"

namespace neox {
namespace {

using torchfile::Kind;
using torchfile::TorchFile;
using torchfile::Value;

// As many bytes as a tensor's may have.
constexpr int64_t kMost = int64_t{1} << 50;

Dims dims_of(Value tuple) {
  Dims dims;
  int64_t numel = 1;
  for (Value size : tuple.items()) {
    dims.push_back(size.as_int());
    int64_t n = std::max<int64_t>(dims.back(), 1);
    check_io(dims.back() >= 0 && n <= kMost / numel, "a tensor has the size or offset ",
             to_string(dims));
    numel *= n;
  }
  return dims;
}

at::ScalarType dtype_of(Value properties) {
  Value state = properties.state();
  Value type =
      state.is(Kind::kTuple) && !state.items().empty() ? state.items()[0] : properties.at("dtype");
  std::string_view name = type.text();
  if (name.starts_with("torch.")) name.remove_prefix(6);
  auto dtype = torchfile::dtype_named(name);
  check_io(dtype.has_value(), "a tensor has the type ", name, ", which is not known");
  return torchfile::scalar_type(*dtype);
}

DistPlace place_of(Value info) {
  std::optional<Value> transforms = info.find("transform_descriptors");
  bool plain = !transforms || transforms->is(Kind::kNone) || transforms->items().empty();
  check_io(plain, "parts are compressed, which is not supported");
  DistPlace place{std::string(info.at("relative_path").as_string()), info.at("offset").as_int(),
                  info.at("length").as_int()};
  bool beside = !place.file.empty() && place.file.find('/') == std::string::npos;
  check_io(beside && place.file != "." && place.file != "..", "a part lies in '", place.file,
           "', which is no file of the directory");
  check_io(place.offset >= 0 && place.length > 0 && place.offset < kMost && place.length < kMost,
           "a part lies at byte ", place.offset, " and has ", place.length, " bytes");
  return place;
}

// By name and offset; without an offset what is no tensor.
using Places = std::map<std::pair<std::string, std::string>, DistPlace>;

Places places_of(Value storage) {
  Places places;
  for (const torchfile::Entry& entry : storage.entries()) {
    std::string name(entry.key.at("fqn").as_string());
    std::optional<Value> offset = entry.key.find("offset");
    bool tensor = offset && !offset->is(Kind::kNone);
    places[{name, tensor ? to_string(dims_of(*offset)) : ""}] = place_of(entry.value);
  }
  return places;
}

using Boxes = std::vector<const Box*>;

// Cut wherever a border in this dimension goes through all of them: boxes on its two sides share
// nothing.
std::vector<Boxes> cut_at_borders(Boxes boxes, size_t dim) {
  std::ranges::sort(boxes, {}, [dim](const Box* box) { return box->start[dim]; });
  std::vector<Boxes> groups;
  int64_t end = -1;  // of the boxes so far
  for (const Box* box : boxes) {
    if (groups.empty() || box->start[dim] >= end) groups.emplace_back();
    groups.back().push_back(box);
    end = std::max(end, box->start[dim] + box->extent[dim]);
  }
  return groups;
}

void check_pairs(const std::string& name, Boxes boxes) {
  std::ranges::sort(boxes, {}, &Box::start);
  for (size_t i = 0; i < boxes.size(); ++i)
    for (size_t j = i + 1; j < boxes.size(); ++j) {
      const Box &box = *boxes[i], &next = *boxes[j];
      if (!box.start.empty() && next.start[0] >= box.start[0] + box.extent[0]) break;
      if (intersect(box, next))
        fail(Exit::kIo, name, ": its parts ", to_string(box), " and ", to_string(next), " overlap");
    }
}

// A grid is cut into its boxes by one dimension after the other, in n log n; what no border cuts is
// compared each with each.
void check_overlaps(const std::string& name, Boxes boxes, size_t dims) {
  struct Group {
    Boxes boxes;
    size_t dim, uncut;  // to look at next; dimensions before it without a border
  };
  std::vector<Group> left;
  left.push_back({std::move(boxes), 0, 0});
  while (!left.empty()) {
    auto [group, dim, uncut] = std::move(left.back());
    left.pop_back();
    if (group.size() < 2) continue;
    if (uncut == dims) {
      check_pairs(name, std::move(group));
      continue;
    }
    std::vector<Boxes> parts = cut_at_borders(std::move(group), dim);
    size_t before = parts.size() > 1 ? 0 : uncut;
    for (Boxes& part : parts) left.push_back({std::move(part), (dim + 1) % dims, before + 1});
  }
}

// The chunks fill the tensor once.
void check_chunks(const std::string& name, const DistTensor& tensor) {
  Boxes boxes;
  int64_t filled = 0;
  for (const auto& [box, place] : tensor.chunks) boxes.push_back(&box);
  check_overlaps(name, boxes, tensor.shape.size());
  for (const Box* box : boxes) filled += box->numel();
  check_io(filled == num_elements(tensor.shape), name, ": its parts have ", filled, " of ",
           num_elements(tensor.shape), " elements of ", to_string(tensor.shape));
}

DistTensor tensor_of(const std::string& name, Value meta, const Places& places) {
  DistTensor tensor{dtype_of(meta.at("properties")), dims_of(meta.at("size")), {}};
  for (Value chunk : meta.at("chunks").items()) {
    Box box{dims_of(chunk.at("offsets")), dims_of(chunk.at("sizes"))};
    bool inside = box.start.size() == tensor.shape.size() && box.extent.size() == box.start.size();
    for (size_t d = 0; inside && d < box.start.size(); ++d)
      inside = box.start[d] + box.extent[d] <= tensor.shape[d];
    check_io(inside, name, ": its part at ", to_string(box.start), " of size ",
             to_string(box.extent), " is not in ", to_string(tensor.shape));
    auto place = places.find({name, to_string(box.start)});
    check_io(place != places.end(), name, ": no file has its part ", to_string(box));
    if (box.numel() > 0) tensor.chunks.emplace_back(std::move(box), place->second);
  }
  check_chunks(name, tensor);
  return tensor;
}

// A part of a file, with its bytes.
struct Mapped {
  MappedFile file;
  std::unique_ptr<TorchFile> part;
};

std::shared_ptr<Mapped> map_place(const fs::path& dir, const DistPlace& place,
                                  const std::string& name) {
  auto mapped = std::make_shared<Mapped>();
  mapped->file = MappedFile(dir / place.file);
  auto bytes = mapped->file.bytes().subspan(static_cast<size_t>(place.offset),
                                            static_cast<size_t>(place.length));
  mapped->part =
      std::make_unique<TorchFile>(bytes, concat((dir / place.file).string(), ": ", name));
  return mapped;
}

// The tensor of a part, which must be what .metadata says.
torchfile::TensorRef chunk_in(const TorchFile& file, const DistTensor& tensor, size_t chunk) {
  const torchfile::TensorRef& ref = file.root().tensor();
  const Box& box = tensor.chunks[chunk].first;
  bool right = ref.sizes == box.extent && torchfile::scalar_type(ref.dtype) == tensor.dtype;
  check_io(right, file.name(), " is ", to_string(ref.sizes), " ", torchfile::info(ref.dtype).name,
           ", but .metadata says ", to_string(box.extent), " ", type_words(tensor.dtype));
  return ref;
}

}  // namespace

DistDirectory::DistDirectory(fs::path dir) : dir_(std::move(dir)) {
  fs::path path = dir_ / ".metadata";
  TorchFile metadata = TorchFile::plain_pickle(path);
  try {
    Places places = places_of(metadata.root().at("storage_data"));
    for (const auto& entry : metadata.root().at("state_dict_metadata").entries()) {
      std::string name(entry.key.as_string());
      if (entry.value.find("chunks"))
        tensors_[name] = tensor_of(name, entry.value, places);
      else if (auto place = places.find({name, ""}); place != places.end())
        objects_[name] = place->second;
    }
  } catch (const Error& e) { throw Error(e.exit(), concat(path.string(), ": ", e.what())); }
  for (const auto& [name, tensor] : tensors_)
    for (const auto& [box, place] : tensor.chunks) check_place(name, place);
  for (const auto& [name, place] : objects_) check_place(name, place);
}

void DistDirectory::check_place(const std::string& name, const DistPlace& place) const {
  std::error_code error;
  auto size = fs::file_size(dir_ / place.file, error);
  check_io(!error, (dir_ / place.file).string(), ", which has a part of ", name, ", is missing");
  check_io(static_cast<uint64_t>(place.offset + place.length) <= size, (dir_ / place.file).string(),
           " has ", size, " bytes, but a part of ", name, " ends at ", place.offset + place.length,
           ": it is cut off");
}

at::Tensor DistDirectory::read(const std::string& name, const Box& box) const {
  const DistTensor& tensor = tensors_.at(name);
  at::Tensor whole = at::empty(box.extent, tensor.dtype);
  for (size_t i = 0; i < tensor.chunks.size(); ++i) {
    const auto& [chunk, place] = tensor.chunks[i];
    std::optional<Box> shared = intersect(chunk, box);
    if (!shared) continue;
    std::shared_ptr<Mapped> mapped = map_place(dir_, place, name);
    torchfile::TensorRef from = chunk_in(*mapped->part, tensor, i);
    at::Tensor to = whole;
    for (size_t d = 0; d < box.start.size(); ++d) {
      from.offset += (shared->start[d] - chunk.start[d]) * from.strides[d];
      to = to.narrow(static_cast<int64_t>(d), shared->start[d] - box.start[d], shared->extent[d]);
    }
    from.sizes = shared->extent;
    to.copy_(torchfile::to_tensor(from));
  }
  return whole;
}

std::shared_ptr<const TorchFile> DistDirectory::object(const std::string& name) const {
  auto found = objects_.find(name);
  if (found == objects_.end()) return nullptr;
  std::shared_ptr<Mapped> mapped = map_place(dir_, found->second, name);
  return {mapped, mapped->part.get()};
}

}  // namespace neox
