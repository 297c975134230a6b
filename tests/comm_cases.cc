#include "comm_cases.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

namespace neox::testing {
namespace {

using Kind = Communicator::Transfer::Kind;
using Op = Communicator::Op;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                     at::kLong,  at::kInt,    at::kByte};

// Small integers, different on each rank, whose sums are exact in all types.
Tensor numbers(int64_t n, int rank, at::ScalarType type, at::Device device) {
  return at::arange(n, at::kLong).mul(3 + rank).remainder(17).add(rank).to(device, type);
}

Tensor sum_of_numbers(int64_t n, int ranks, at::ScalarType type, at::Device device) {
  Tensor sum = at::zeros({n}, at::kLong);
  for (int r = 0; r < ranks; ++r) sum.add_(numbers(n, r, at::kLong, at::kCPU));
  return sum.to(device, type);
}

// Values whose sums must be rounded.
Tensor fractions(int64_t n, int rank, at::ScalarType type, at::Device device) {
  return at::arange(n, at::kDouble).mul(0.7 + rank).sin().mul(1.0 + rank * 37).to(device, type);
}

void sums_of_integers_are_exact(Communicator& world, at::Device device) {
  for (at::ScalarType type : kTypes)
    for (int64_t n : {1, 7, 4099, 20011}) {
      Tensor t = numbers(n, world.rank(), type, device);
      world.all_reduce(t);
      EXPECT_TRUE(t.equal(sum_of_numbers(n, world.size(), type, device))) << n << " x " << type;
    }
}

void maxima_are_exact(Communicator& world, at::Device device) {
  for (at::ScalarType type : kTypes) {
    Tensor t = at::full({3}, world.rank(), at::TensorOptions(type).device(device));
    world.all_reduce(t, Op::kMax);
    EXPECT_EQ(t[1].item<double>(), world.size() - 1) << type;
  }
}

void chunks_are_summed_and_gathered(Communicator& world, at::Device device) {
  int n = world.size(), r = world.rank();
  for (at::ScalarType type : kTypes)
    for (int64_t chunk : {1, 5, 9001}) {
      Tensor full = numbers(n * chunk, r, type, device), mine = at::zeros({chunk}, full.options());
      Tensor sum = sum_of_numbers(n * chunk, n, type, device);
      world.reduce_scatter(full, mine);
      EXPECT_TRUE(mine.equal(sum.narrow(0, r * chunk, chunk))) << chunk << " x " << type;
      world.all_gather(mine, full);
      EXPECT_TRUE(full.equal(sum)) << chunk << " x " << type;
    }
}

void a_chunk_may_lie_in_the_whole(Communicator& world, at::Device device) {
  int n = world.size(), r = world.rank();
  for (int64_t chunk : {3, 9001}) {
    Tensor full = numbers(n * chunk, r, at::kFloat, device);
    Tensor mine = full.narrow(0, r * chunk, chunk);
    world.reduce_scatter(full, mine);
    world.all_gather(mine, full);
    EXPECT_TRUE(full.equal(sum_of_numbers(n * chunk, n, at::kFloat, device)));
  }
}

void every_rank_can_broadcast(Communicator& world, at::Device device) {
  for (int root = 0; root < world.size(); ++root)
    for (int64_t n : {1, 5, 20011}) {
      Tensor t = numbers(n, world.rank(), at::kHalf, device);
      world.broadcast(t, root);
      EXPECT_TRUE(t.equal(numbers(n, root, at::kHalf, device))) << n << " from " << root;
    }
}

void booleans_are_ored(Communicator& world, at::Device device) {
  Tensor t = at::zeros({2}, at::TensorOptions(at::kBool).device(device));
  t[1] = world.rank() == world.size() - 1;
  world.all_reduce(t);
  EXPECT_FALSE(t[0].item<bool>());
  EXPECT_TRUE(t[1].item<bool>());
}

void no_elements_are_no_error(Communicator& world, at::Device device) {
  Tensor none = at::zeros({0}, device), chunk = at::zeros({0}, device);
  world.all_reduce(none);
  world.reduce_scatter(none, chunk);
  world.all_gather(chunk, none);
  world.broadcast(none, world.size() - 1);
}

void bits_are_equal_on_all_ranks_and_in_every_run(Communicator& world, at::Device device) {
  for (at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (int64_t n : {1, 1001, 20011}) {
      Tensor t = fractions(n, world.rank(), type, device), again = t.clone();
      world.all_reduce(t);
      world.all_reduce(again);
      EXPECT_TRUE(t.equal(again)) << n << " x " << type;
      Tensor all = at::zeros({world.size(), n}, t.options());
      world.all_gather(t, all);
      for (int r = 0; r < world.size(); ++r) EXPECT_TRUE(all[r].equal(t)) << n << " x " << type;
    }
}

void exchange_in_a_ring(Communicator& world, at::Device device) {
  int r = world.rank(), n = world.size();
  if (n == 1) return;
  for (int64_t numel : {1, 5, 60013}) {
    Tensor out = numbers(numel, r, at::kFloat, device), in = at::zeros({numel}, device);
    std::vector<Communicator::Transfer> ring = {{Kind::kSend, (r + 1) % n, out},
                                                {Kind::kReceive, (r + n - 1) % n, in}};
    world.exchange(ring);
    EXPECT_TRUE(in.equal(numbers(numel, (r + n - 1) % n, at::kFloat, device)));
  }
}

void transfers_of_two_ranks_match_in_order(Communicator& world, at::Device device) {
  if (world.size() == 1 || world.rank() > 1) return;  // the others take no part
  Kind kind = world.rank() == 0 ? Kind::kSend : Kind::kReceive;
  std::vector<Communicator::Transfer> transfers;
  for (int64_t i : {1, 2, 3}) {
    Tensor t = at::full({i * 2000}, world.rank() == 0 ? double(i) : 0.0, device);
    transfers.push_back({kind, 1 - world.rank(), t});
  }
  world.exchange(transfers);
  for (int i : {0, 1, 2})
    EXPECT_EQ(transfers[static_cast<size_t>(i)].tensor.max().item<double>(), i + 1);
}

void groups_are_worlds_of_their_own(Communicator& world, at::Device device) {
  int r = world.rank(), n = world.size();
  auto parity = world.split(r % 2, "parity");
  EXPECT_EQ(parity->rank(), r / 2);
  EXPECT_EQ(parity->size(), (n + 1 - r % 2) / 2);
  auto low = world.split(r < 2 ? 7 : 1000 + r, "low");  // groups that share ranks with others
  auto inner = parity->split(0, "inner");
  for (int repeat = 0; repeat < 3; ++repeat)
    for (Communicator* group : {inner.get(), low.get(), parity.get(), &world}) {
      Tensor t = at::full({1}, double(r), device);
      group->broadcast(t, group->size() - 1);
      Tensor ones = at::full({9001}, 1.0, device);
      group->all_reduce(ones);
      EXPECT_EQ(ones[9000].item<double>(), group->size());
      double last = group == &world      ? n - 1
                    : group == low.get() ? (r < 2 ? low->size() - 1 : r)
                                         : r % 2 + 2 * (parity->size() - 1);
      EXPECT_EQ(t[0].item<double>(), last);
    }
  EXPECT_EQ(low->size(), r < 2 ? std::min(n, 2) : 1);
}

void sums_go_in_the_order_of_the_ranks(Communicator& world, at::Device device) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (int64_t n : {11, 20011}) {
      Tensor t = fractions(n, world.rank(), type, device);
      Tensor sum = fractions(n, 0, type, device).to(at::kFloat);
      for (int r = 1; r < world.size(); ++r) sum.add_(fractions(n, r, type, device).to(at::kFloat));
      world.all_reduce(t);
      EXPECT_TRUE(t.equal(sum.to(type))) << n << " x " << type;
    }
}

void two_groups_can_work_at_once(Communicator& world, at::Device device) {
  auto repeat = [&](Communicator& group, double value) {
    for (int64_t n : {1, 9001, 1, 30011, 1, 9001}) {
      Tensor t = at::full({n}, value, device);
      group.all_reduce(t);
      EXPECT_EQ(t[n - 1].item<double>(), value * group.size());
    }
  };
  auto one = world.split(0, "one"), two = world.split(0, "two");
  std::jthread other([&] { repeat(*one, 1); });
  repeat(*two, 3);
}

void a_maximum_with_nan_is_nan(Communicator& world, at::Device device) {
  for (at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (int rank = 0; rank < world.size(); ++rank) {
      double mine = world.rank() == rank ? NAN : world.rank();
      Tensor t = at::full({3}, mine, at::TensorOptions(type).device(device));
      world.all_reduce(t, Op::kMax);
      EXPECT_TRUE(std::isnan(t[1].item<double>())) << type << " of rank " << rank;
    }
}

constexpr CommCase kCases[] = {
    {"SumsOfIntegersAreExact", sums_of_integers_are_exact},
    {"MaximaAreExact", maxima_are_exact},
    {"ChunksAreSummedAndGathered", chunks_are_summed_and_gathered},
    {"AChunkMayLieInTheWhole", a_chunk_may_lie_in_the_whole},
    {"EveryRankCanBroadcast", every_rank_can_broadcast},
    {"BooleansAreOred", booleans_are_ored},
    {"NoElementsAreNoError", no_elements_are_no_error},
    {"BitsAreEqualOnAllRanksAndInEveryRun", bits_are_equal_on_all_ranks_and_in_every_run},
    {"ExchangeInARing", exchange_in_a_ring},
    {"TransfersOfTwoRanksMatchInOrder", transfers_of_two_ranks_match_in_order},
    {"GroupsAreWorldsOfTheirOwn", groups_are_worlds_of_their_own},
};

constexpr CommCase kHostCases[] = {
    {"TwoGroupsCanWorkAtOnce", two_groups_can_work_at_once},
    {"SumsGoInTheOrderOfTheRanks", sums_go_in_the_order_of_the_ranks},
    {"AMaximumWithNanIsNan", a_maximum_with_nan_is_nan},
};

}  // namespace

std::span<const CommCase> comm_cases() { return kCases; }
std::span<const CommCase> host_comm_cases() { return kHostCases; }

}  // namespace neox::testing
