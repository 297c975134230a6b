#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/mesh.h"
#include "comm/thread.h"

namespace neox {
namespace {

using std::chrono::seconds;
using Kind = Communicator::Transfer::Kind;

// The message of what run_thread_ranks throws.
std::string error_of(int ranks, const RankBody& body) {
  try {
    run_thread_ranks(ranks, body, seconds(1));
  } catch (const Error& e) { return e.what(); }
  return "";
}

TEST(Comm, CollectivesOfIntegersAreExact) {
  for (int n : {1, 2, 5}) {
    run_thread_ranks(n, [&](Communicator& world, Control&) {
      int r = world.rank();
      Tensor t = at::full({3}, r + 1.0);
      world.all_reduce(t);
      EXPECT_EQ(t[2].item<double>(), n * (n + 1) / 2);
      world.all_reduce(t = at::full({3}, double(r)), Communicator::Op::kMax);
      EXPECT_EQ(t[0].item<double>(), n - 1);
      Tensor full = at::arange(2 * n, at::kDouble).add(r), mine = full.narrow(0, 2 * r, 2);
      world.reduce_scatter(full, mine);
      EXPECT_EQ(mine[1].item<double>(), n * (2 * r + 1) + n * (n - 1) / 2);
      Tensor all = at::zeros({n}, at::kDouble);
      world.all_gather(at::full({1}, double(r), at::kDouble), all);
      EXPECT_TRUE(all.equal(at::arange(n, at::kDouble)));
      world.broadcast(t = at::full({2}, double(r)), n - 1);
      EXPECT_EQ(t[0].item<double>(), n - 1);
    });
  }
}

TEST(Comm, ExchangeInARingDoesNotDeadlock) {
  run_thread_ranks(4, [](Communicator& world, Control&) {
    int r = world.rank(), n = world.size();
    Tensor out = at::full({5}, double(r)), in = at::zeros({5});
    std::vector<Communicator::Transfer> ring = {{Kind::kSend, (r + 1) % n, out},
                                                {Kind::kReceive, (r + n - 1) % n, in}};
    world.exchange(ring);
    EXPECT_EQ(in[4].item<double>(), (r + n - 1) % n);
  });
}

TEST(Comm, ASendWaitsForItsReceive) {
  EXPECT_NE(error_of(2,
                     [](Communicator& world, Control&) {
                       Tensor t = at::zeros({1});
                       std::vector<Communicator::Transfer> send = {{Kind::kSend, 1, t}};
                       if (world.rank() == 0) world.exchange(send);
                     })
                .find("no peer for rank 0's send to 1"),
            std::string::npos);
}

TEST(Comm, AMissingRankIsNamed) {
  std::string error = error_of(3, [](Communicator& world, Control&) {
    Tensor t = at::zeros({7});
    if (world.rank() != 1) world.all_reduce(t);
  });
  EXPECT_NE(error.find("all_reduce sum of 7 x Float in group world: rank 1 did not arrive"),
            std::string::npos)
      << error;
}

TEST(Comm, DifferentCallsAreAnErrorOnEveryRank) {
  std::string error = error_of(2, [](Communicator& world, Control&) {
    Tensor t = at::zeros({world.rank() + 1});
    world.all_reduce(t);
  });
  EXPECT_NE(error.find("the ranks call different operations"), std::string::npos) << error;
}

TEST(Comm, AnErrorOnOneRankWakesTheOthersAndIsTheOneReported) {
  EXPECT_EQ(error_of(3,
                     [](Communicator& world, Control& control) {
                       check_io(world.rank() != 2, "disk on fire");
                       if (world.rank() == 0) control.barrier();
                       Tensor t = at::zeros({1});
                       world.all_reduce(t);
                     }),
            "rank 2: disk on fire");
}

TEST(Comm, MeshAxesHoldTheRanksThatDifferInOneCoordinate) {
  Layout layout{.pp = 2, .replicate = 2, .shard = 3, .tp = 2};
  run_thread_ranks(layout.size(), [&](Communicator& world, Control&) {
    Mesh mesh(layout, world);
    int r = world.rank();
    EXPECT_EQ(mesh.tp().rank(), r % 2);
    EXPECT_EQ(mesh.shard().rank(), r / 2 % 3);
    EXPECT_EQ(mesh.replicate().rank(), r / 6 % 2);
    EXPECT_EQ(mesh.data().rank(), r / 2 % 6);
    EXPECT_EQ(mesh.pp().rank(), r / 12);
    Tensor sum = at::full({1}, double(r), at::kDouble);
    mesh.data().all_reduce(sum);
    EXPECT_EQ(sum.item<double>(), r / 12 * 12 * 6 + r % 2 * 6 + 30);
    EXPECT_EQ(mesh.pp_ends().size(), 2);
  });
}

TEST(Comm, AMeshThatDoesNotFillTheWorldIsRefused) {
  EXPECT_NE(error_of(3, [](Communicator& world, Control&) { Mesh mesh({.tp = 2}, world); })
                .find("needs 2 ranks, the job has 3"),
            std::string::npos);
}

TEST(Control, GathersTextByRank) {
  run_thread_ranks(3, [](Communicator&, Control& control) {
    auto all = control.gather(std::to_string(control.rank()), seconds(5));
    EXPECT_EQ(all, (std::vector<std::string>{"0", "1", "2"}));
  });
}

}  // namespace
}  // namespace neox
