// Megatron-LM's torch_dist: tensors put together of the parts of torch.distributed.checkpoint.
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>

#include "convert/megatron_distcp.h"
#include "convert/megatron_names.h"
#include "megatron_files.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Box> halves(const at::Tensor& tensor, size_t dim) {
  Box first = whole(tensor.sizes().vec()), second = first;
  first.extent[dim] /= 2;
  second.start[dim] = first.extent[dim];
  second.extent[dim] -= first.extent[dim];
  return {first, second};
}

// Gate and up one after the other.
at::Tensor gates_apart(const at::Tensor& ours) {
  at::Tensor pairs = ours.view({ours.size(0) / 2, 2, -1});
  return at::cat({pairs.select(1, 0), pairs.select(1, 1)}).view(ours.sizes());
}

// The model by Megatron-Core's names, layers stacked, each tensor in two parts.
Dist dist_of(const ModelFiles& model) {
  Dist dist;
  std::map<std::string, std::vector<at::Tensor>> layers;
  for (const ModelTensor& t : model.tensors) {
    std::string name = megatron_names(t.info.name)[1];
    bool gated = model.config.model.gated && name.find("linear_fc1.weight") != std::string::npos;
    at::Tensor tensor = gated ? gates_apart(t.read()) : t.read();
    if (name.starts_with("decoder.layers."))
      layers["decoder.layers." + name.substr(17)].push_back(tensor);
    else
      dist.add(name, tensor, halves(tensor, 0));
  }
  for (const auto& [name, tensors] : layers) {
    at::Tensor stacked = at::stack(tensors);
    dist.add(name, stacked, halves(stacked, stacked.dim() - 1));
  }
  return dist;
}

Item common_of(const ModelFiles& model) {
  return Item::dict({{"args", megatron_args(model.config, {}, 128, 3)},
                     {"checkpoint_version", 3.0},
                     {"iteration", 3}});
}

struct Scene {
  ModelFiles model;
  Dist dist;
  Directory dir;
  explicit Scene(const char* yaml = kLlama) : model(model_of(yaml)), dist(dist_of(model)) {}
  fs::path write() const { return dist.write(dir.path() / "in", common_of(model)); }
  DistChunk& chunk_of(const std::string& name, size_t number) {
    for (DistChunk& chunk : dist.chunks)
      if (chunk.name == name && number-- == 0) return chunk;
    fail(Exit::kInternal, "no chunk of ", name);
  }
  // What converting says, and what it leaves.
  std::string error() const {
    std::string text = error_of([&] {
      convert(
          {.from = "megatron-dist", .to = "neox.cpp", .source = write(), .target = dir / "out"});
    });
    return dir.list() == std::vector<std::string>{"in"} ? text : text + " LEFT";
  }
};

constexpr const char* kEmbedding = "embedding.word_embeddings.weight";
constexpr const char* kQkvOfLayers = "decoder.layers.self_attention.linear_qkv.weight";

TEST(MegatronDist, ReadsStackedLayersInParts) {
  for (const char* yaml : {kGpt2, kLlama}) {
    Scene scene(yaml);
    fs::path path = scene.write();
    EXPECT_EQ(detect_format(path).name, std::string("megatron-dist"));
    EXPECT_EQ(difference(open_megatron_dist(path), scene.model), "");
  }
}

TEST(MegatronDist, ReadsLayersByThemselvesAndGatesApart) {
  Scene scene;
  Dist flat;
  for (const ModelTensor& t : scene.model.tensors) {
    std::string name = megatron_names(t.info.name)[1];
    at::Tensor tensor = t.read();
    if (name.find("linear_fc1.weight") == std::string::npos) {
      flat.add(name, tensor, halves(tensor, 0));
      continue;
    }
    auto gates = gates_apart(tensor).chunk(2);
    flat.add(name + "_w", gates[0], {whole(gates[0].sizes().vec())});
    flat.add(name + "_v", gates[1], halves(gates[1], 1));
  }
  scene.dist = flat;
  EXPECT_EQ(difference(open_megatron_dist(scene.write()), scene.model), "");
}

TEST(MegatronDist, LeavesOutTheOptimizer) {
  Scene scene;
  at::Tensor moment = at::arange(6, at::kFloat);
  scene.dist.add("optimizer.state.exp_avg.x", moment, {whole({6})});
  ModelFiles read = open_megatron_dist(scene.write());
  ASSERT_EQ(read.ignored.size(), 1U);
  EXPECT_EQ(read.ignored[0].reason, "state of the optimizer");
}

// A tensor in these parts, as it is read; undefined where it is refused, which `error` says.
at::Tensor read_in(const std::vector<Box>& parts, const Dims& shape, std::string& error) {
  Directory dir;
  Dist dist;
  at::Tensor read;
  dist.add("t", at::arange(num_elements(shape), at::kFloat).view(shape), parts);
  fs::path path = dist.write(dir / "in", Item::dict({}));
  error = error_of([&] { read = DistDirectory(path).read("t", whole(shape)); });
  return read;
}

TEST(MegatronDist, ReadsManyPartsOfAGrid) {
  const Dims shape = {22, 2, 51};
  std::vector<Box> grid;
  for (int64_t column = 0; column < 17; ++column)
    for (int64_t row = 0; row < 11; ++row) grid.push_back({{2 * row, 0, 3 * column}, {2, 2, 3}});
  std::string error;
  EXPECT_TRUE(read_in(grid, shape, error).equal(at::arange(2244, at::kFloat).view(shape)));
  grid[100].start[0] -= 1;
  read_in(grid, shape, error);
  EXPECT_THAT(error, HasSubstr("t: its parts [0:2, 0:2, 27:30] and [1:3, 0:2, 27:30] overlap"));
}

TEST(MegatronDist, ReadsPartsThatNoBorderCuts) {
  std::vector<Box> wheel = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  std::string error;
  EXPECT_TRUE(read_in(wheel, {3, 3}, error).equal(at::arange(9, at::kFloat).view({3, 3})));
  wheel.back() = {{1, 0}, {1, 2}};
  read_in(wheel, {3, 3}, error);
  EXPECT_THAT(error, HasSubstr("overlap"));
}

TEST(MegatronDist, NamesPartsThatOverlap) {
  Scene scene;
  scene.chunk_of(kEmbedding, 1).box.start[0] -= 1;
  EXPECT_THAT(scene.error(), AllOf(StartsWith("74"), HasSubstr(kEmbedding), HasSubstr("overlap"),
                                   Not(HasSubstr("LEFT"))));
}

TEST(MegatronDist, NamesHoles) {
  Scene scene;
  scene.chunk_of(kQkvOfLayers, 1).in_metadata = false;
  EXPECT_THAT(scene.error(), AllOf(StartsWith("74"), HasSubstr(kQkvOfLayers),
                                   HasSubstr("of 4608 elements"), Not(HasSubstr("LEFT"))));
}

TEST(MegatronDist, NamesPartsThatNoFileHas) {
  Scene scene;
  scene.chunk_of(kQkvOfLayers, 0).in_storage = false;
  EXPECT_THAT(scene.error(), AllOf(StartsWith("74"), HasSubstr(kQkvOfLayers),
                                   HasSubstr("no file has"), Not(HasSubstr("LEFT"))));
}

TEST(MegatronDist, NamesPartsOfAnotherSize) {
  Scene scene;
  DistChunk& first = scene.chunk_of(kEmbedding, 0);
  first.box.extent[0] -= 1;
  fs::path path = scene.write();
  Dist right = dist_of(scene.model);
  fs::copy_file(path / "__0_0.distcp", path / "kept");
  right.write(path, common_of(scene.model));
  fs::rename(path / "kept", path / "__0_0.distcp");
  std::string error = error_of([&] {
    convert({.from = "", .to = "neox.cpp", .source = path, .target = scene.dir / "out"});
  });
  EXPECT_THAT(error, StartsWith("74"));
  EXPECT_EQ(scene.dir.list(), std::vector<std::string>{"in"});
}

TEST(MegatronDist, NamesGatesThatHaveNoRows) {
  Scene scene;
  for (const char* end : {"w", "v"})
    scene.dist.add(concat("decoder.layers.0.mlp.linear_fc1.weight_", end),
                   at::scalar_tensor(1, at::kFloat), {Box()});
  EXPECT_THAT(scene.error(),
              AllOf(StartsWith("74"), HasSubstr("linear_fc1.weight_w is a single number"),
                    Not(HasSubstr("LEFT"))));
}

TEST(MegatronDist, NamesFilesThatAreCutOff) {
  Scene scene;
  scene.dist.cut = 10;
  EXPECT_THAT(scene.error(), AllOf(StartsWith("74"), HasSubstr("__0_0.distcp"),
                                   HasSubstr("cut off"), Not(HasSubstr("LEFT"))));
}

TEST(MegatronDist, NamesFilesThatAreMissing) {
  Scene scene;
  fs::path path = scene.write();
  fs::remove(path / "__0_0.distcp");
  EXPECT_THAT(error_of([&] { open_megatron_dist(path); }),
              AllOf(StartsWith("74"), HasSubstr("__0_0.distcp"), HasSubstr("is missing")));
}

TEST(MegatronDist, RefusesOtherBackends) {
  Scene scene;
  scene.dist.backend = "zarr";
  EXPECT_THAT(scene.error(), AllOf(StartsWith("74"), HasSubstr("sharded_backend is 'zarr'")));
}

TEST(MegatronDist, IsNotWritten) {
  Scene scene;
  std::string error = error_of([&] {
    convert(
        {.from = "", .to = "megatron-dist", .source = scene.write(), .target = scene.dir / "out"});
  });
  EXPECT_THAT(error, AllOf(StartsWith("64"), HasSubstr("not written")));
  EXPECT_EQ(scene.dir.list(), std::vector<std::string>{"in"});
}

}  // namespace
}  // namespace neox::testing
