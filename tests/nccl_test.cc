#include "comm/nccl_communicator.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "comm/mesh.h"
#include "comm/thread.h"
#include "comm_cases.h"
#include "nccl_stand_in.h"
#include "tiny_run.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::NcclStandIn;
using Kind = Communicator::Transfer::Kind;
using Strings = std::vector<std::string>;

constexpr NcclTimes kTimes{
    .deadline = seconds(20), .poll = milliseconds(2), .patience = milliseconds(200)};
constexpr NcclTimes kShort{
    .deadline = milliseconds(150), .poll = milliseconds(2), .patience = milliseconds(50)};

using Body = std::function<void(Communicator& world, NcclStandIn& nccl)>;

// n ranks as threads, each with an NCCL of its own.
void run_ranks(int n, const Body& body, const NcclTimes& times = kTimes) {
  run_thread_ranks(
      n,
      [&](Communicator& ranks, Control& control) {
        auto nccl = std::make_shared<NcclStandIn>(ranks);
        {
          auto world = nccl_communicator(nccl, control, at::kCPU, times);
          body(*world, *nccl);
        }
        EXPECT_EQ(nccl->wrong(), Strings{});
      },
      seconds(20));
}

// A world of one, whose calls go to the stand-in all the same.
struct Alone {
  explicit Alone(const NcclTimes& times = kTimes) {
    world = nccl_communicator(nccl, control, at::kCPU, times);
    nccl->forget();
  }
  std::unique_ptr<Communicator> self = self_communicator();
  AloneControl control;
  std::shared_ptr<NcclStandIn> nccl = std::make_shared<NcclStandIn>(*self);
  std::unique_ptr<Communicator> world;
  Tensor t = at::zeros({7});
};

struct Thrown {
  std::string text;
  Exit exit = Exit::kDone;
};

template <class Body>
Thrown thrown_by(const Body& body) {
  try {
    body();
  } catch (const Error& e) { return {e.what(), e.exit()}; }
  return {};
}

template <class Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return condition();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class NcclCases : public ::testing::TestWithParam<testing::CommCase> {};

TEST_P(NcclCases, Holds) {
  for (int n : {1, 2, 3, 5})
    run_ranks(n, [](Communicator& world, NcclStandIn&) { GetParam().body(world, at::kCPU); });
}

INSTANTIATE_TEST_SUITE_P(, NcclCases, ::testing::ValuesIn(testing::comm_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Nccl, AnExchangeIsOneGroup) {
  run_ranks(3, [](Communicator& world, NcclStandIn& nccl) {
    int r = world.rank(), next = (r + 1) % 3, last = (r + 2) % 3;
    Tensor out = at::full({5}, double(r), at::kDouble), in = at::zeros({5}, at::kDouble);
    std::vector<Communicator::Transfer> ring = {{Kind::kSend, next, out},
                                                {Kind::kReceive, last, in}};
    nccl.forget();
    world.exchange(ring);
    EXPECT_EQ(in[4].item<double>(), last);
    EXPECT_EQ(nccl.calls(), (Strings{"group_start", concat("send 40 to ", next, " of 1"),
                                     concat("receive 40 from ", last, " of 1"), "group_end",
                                     "make_event", "record"}));
  });
}

TEST(Nccl, AFailedSendEndsTheGroup) {
  Alone a;
  a.nccl->result = 4;
  std::vector<Communicator::Transfer> transfers = {{Kind::kSend, 0, a.t}, {Kind::kReceive, 0, a.t}};
  Thrown thrown = thrown_by([&] { a.world->exchange(transfers); });
  EXPECT_EQ(
      thrown.text,
      "exchange of 14 x Float with rank 0, 0 in group world (rank 0 of 1, operation 2): error 4");
  a.world.reset();
  EXPECT_EQ(a.nccl->calls(),
            (Strings{"group_start", "send 28 to 0 of 1", "group_end", "abort of 1"}));
}

TEST(Nccl, AMeshOfItsSplits) {
  Layout layout{.pp = 2, .replicate = 1, .shard = 3, .tp = 2};
  run_ranks(layout.size(), [&](Communicator& world, NcclStandIn& nccl) {
    Mesh mesh(layout, world);
    int r = world.rank();
    EXPECT_EQ(mesh.tp().rank(), r % 2);
    EXPECT_EQ(mesh.shard().rank(), r / 2 % 3);
    EXPECT_EQ(mesh.pp().rank(), r / 6);
    EXPECT_EQ(mesh.data().size(), 3);
    Tensor sum = at::full({1}, double(r), at::kDouble);
    mesh.shard().all_reduce(sum);
    EXPECT_EQ(sum.item<double>(), r / 6 * 18 + r % 2 * 3 + 6);
    EXPECT_EQ(nccl.count("split"), 4);  // the world, tp, shard and pp
    EXPECT_EQ(nccl.count("a split that changes"), 0);
  });
}

TEST(Nccl, AMeshMakesNoCommunicatorTwice) {
  run_ranks(3, [&](Communicator& world, NcclStandIn& nccl) {
    Mesh mesh({.replicate = 3}, world);
    EXPECT_EQ(nccl.count("split"), 2);  // the world and the replicas
    Tensor sum = at::full({1}, 1.0);
    mesh.data().all_reduce(sum), mesh.replicate().all_reduce(sum), mesh.shard().all_reduce(sum);
    EXPECT_EQ(sum.item<double>(), 9);
  });
}

// Steps of as many micro-batches as samples, and of one.
TEST(Nccl, StepsOfAnyLayoutCallItAsItAllows) {
  at::set_num_threads(1);
  for (Layout layout : std::vector<Layout>{{.pp = 2},
                                           {.pp = 4},
                                           {.replicate = 2, .shard = 2, .tp = 2},
                                           {.pp = 3, .shard = 2, .tp = 2}}) {
    for (int64_t micro : {1, 5}) {
      std::mutex mutex;
      std::vector<std::shared_ptr<NcclStandIn>> libraries;
      TinyOptions options;
      options.micro = micro;
      options.model.tied_embedding = true;
      TinyResult want = TinyRun(layout, options).train(0, 2);
      options.world = [&](Communicator& threads, Control& control) {
        auto nccl = std::make_shared<NcclStandIn>(threads);
        {
          std::lock_guard lock(mutex);
          libraries.push_back(nccl);
        }
        return nccl_communicator(nccl, control, at::kCPU, kTimes);
      };
      TinyResult got = TinyRun(layout, options).train(0, 2);
      EXPECT_LE(distance(got.state, want.state), 1e-12) << to_string(layout);
      for (const auto& nccl : libraries) EXPECT_EQ(nccl->wrong(), Strings{}) << to_string(layout);
    }
  }
}

TEST(Nccl, AGroupOfOneIsNoCommunicatorAndAWholeGroupSharesItsParents) {
  run_ranks(2, [](Communicator& world, NcclStandIn& nccl) {
    nccl.forget();
    auto one = world.split(world.rank(), "one"), all = world.split(3, "all");
    EXPECT_EQ(one->size(), 1);
    EXPECT_EQ(all->rank(), world.rank());
    Tensor t = at::full({1}, 2.0);
    one->all_reduce(t);
    all->all_reduce(t);
    EXPECT_EQ(t.item<double>(), 4);
    EXPECT_EQ(nccl.count("destroy"), 2);
    EXPECT_EQ(nccl.count("all_reduce sum 1 of 1"), 1);
  });
}

TEST(Nccl, EachCommunicatorIsFinalizedAndDestroyedOnce) {
  Strings calls;
  run_thread_ranks(2, [&](Communicator& ranks, Control& control) {
    auto nccl = std::make_shared<NcclStandIn>(ranks);
    {
      auto world = nccl_communicator(nccl, control, at::kCPU, kTimes);
      auto tp = world->split(0, "tp"), same = tp->split(0, "same");
      tp.reset();
      EXPECT_EQ(nccl->count("destroy"), 3);  // the first, and what the two splits into all made
      Tensor t = at::zeros({1});
      same->all_reduce(t);
    }
    EXPECT_EQ(nccl->count("destroy"), 4);
    EXPECT_EQ(nccl->count("finalize"), 4);
    EXPECT_EQ(nccl->count("abort"), 0);
    EXPECT_EQ(nccl->wrong(), Strings{});
  });
}

TEST(Nccl, AnErrorThatUnwindsAborts) {
  auto self = self_communicator();
  auto nccl = std::make_shared<NcclStandIn>(*self);
  AloneControl control;
  Thrown thrown = thrown_by([&] {
    auto world = nccl_communicator(nccl, control, at::kCPU, kTimes);
    nccl->forget();
    fail(Exit::kIo, "disk on fire");
  });
  EXPECT_EQ(thrown.text, "disk on fire");
  EXPECT_EQ(nccl->calls(), Strings{"abort of 1"});
}

TEST(Nccl, WhatIsInProgressIsWaitedForBeforeTheNextCall) {
  run_ranks(2, [](Communicator& world, NcclStandIn& nccl) {
    nccl.polls_in_progress = 3;
    auto tp = world.split(0, "tp");
    Tensor t = at::full({1}, 1.0);
    for (int i = 0; i < 3; ++i) tp->all_reduce(t);
    EXPECT_EQ(t.item<double>(), 8);
  });
}

TEST(Nccl, AWorldThatDoesNotFormEndsWithinTheDeadline) {
  auto self = self_communicator();
  auto nccl = std::make_shared<NcclStandIn>(*self);
  nccl->polls_in_progress = 1 << 30;
  AloneControl control;
  Thrown thrown = thrown_by([&] { nccl_communicator(nccl, control, at::kCPU, kShort); });
  EXPECT_TRUE(contains(thrown.text, "init in group of all ranks (rank 0 of 1, operation 1)"))
      << thrown.text;
  EXPECT_TRUE(contains(thrown.text, "within 0.15 s")) << thrown.text;
  EXPECT_EQ(thrown.exit, Exit::kPeerLost);
  EXPECT_EQ(nccl->count("abort"), 1);
}

TEST(Nccl, AnAsynchronousErrorAbortsAllAndEveryLaterCallThrows) {
  run_ranks(2, [](Communicator& world, NcclStandIn& nccl) {
    auto first = world.split(world.rank(), "one"), tp = world.split(0, "tp");
    nccl.state = kNcclRemoteError;
    EXPECT_TRUE(soon([&] { return nccl.count("abort") > 0; }));
    Tensor t = at::zeros({2});
    for (Communicator* c : {&world, tp.get(), tp.get()}) {
      Thrown thrown = thrown_by([&] { c->all_reduce(t); });
      EXPECT_TRUE(contains(thrown.text, "remote process exited")) << thrown.text;
      EXPECT_EQ(thrown.exit, Exit::kPeerLost);
    }
  });
}

TEST(Nccl, AbortEndsAllCommunicatorsOnceAndTheFirstReasonStays) {
  Alone a;
  std::thread other([&] { a.world->abort("rank 3 on node7 was lost"); });
  other.join();
  a.world->abort("another reason");
  Thrown thrown = thrown_by([&] { a.world->all_reduce(a.t); });
  EXPECT_EQ(thrown.text, "rank 3 on node7 was lost");
  EXPECT_EQ(thrown.exit, Exit::kPeerLost);
  EXPECT_EQ(thrown_by([&] { a.world->exchange({}); }).text, "rank 3 on node7 was lost");
  a.world.reset();
  EXPECT_EQ(a.nccl->calls(), Strings{"abort of 1"});
  EXPECT_EQ(a.nccl->wrong(), Strings{});
}

TEST(Nccl, AbortWakesAThreadThatWaits) {
  Alone a;
  a.nccl->polls_in_progress = 1 << 30;
  std::thread other([&] {
    soon([&] { return a.nccl->count("all_reduce") > 0; });
    a.world->abort("a peer is gone");
  });
  EXPECT_EQ(thrown_by([&] { a.world->all_reduce(a.t); }).text, "a peer is gone");
  other.join();
}

// NCCL's abort waits for the end of graphs that hold its operations: what the error unwinds.
TEST(Nccl, AnErrorIsThrownBeforeCommunicatorsHaveEnded) {
  Alone a;
  a.nccl->graph_lives = true;
  a.nccl->result = 4;
  std::atomic<bool> thrown = false;
  std::thread other([&] {
    thrown_by([&] { a.world->all_reduce(a.t); });
    thrown = true;
  });
  EXPECT_TRUE(soon([&] { return thrown.load(); }));
  a.nccl->graph_lives = false;
  other.join();
  a.world.reset();
  EXPECT_EQ(a.nccl->count("abort"), 1);
}

TEST(Nccl, AnOperationThatDoesNotEndIsNamed) {
  Alone a(kShort);
  a.world->all_reduce(a.t);
  EXPECT_TRUE(soon([&] { return a.nccl->ended == 1; }));
  a.nccl->device_works = false;
  a.world->all_reduce(a.t, Communicator::Op::kMax);
  a.world->broadcast(a.t, 0);
  EXPECT_TRUE(soon([&] { return a.nccl->count("abort") > 0; }));
  Thrown thrown = thrown_by([&] { a.world->all_reduce(a.t); });
  EXPECT_EQ(thrown.text,
            "all_reduce max of 7 x Float in group world (rank 0 of 1, operation 3) has not ended "
            "within 0.15 s: another rank did not arrive, or the network hangs");
}

TEST(Nccl, WhatEndsInTimeIsLeftAloneHoweverLongTheRun) {
  Alone a({.deadline = milliseconds(500), .poll = milliseconds(2)});
  for (int i = 0; i < 700; ++i) {
    a.world->all_reduce(a.t);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LE(a.nccl->count("make_event"), 256);
  EXPECT_EQ(a.nccl->count("abort"), 0);
}

TEST(Nccl, WhatDoesNotEndIsNoticedHoweverFarTheHostIsAhead) {
  Alone a(kShort);
  a.nccl->does = 300;
  a.nccl->device_works = false;
  for (int i = 0; i < 400; ++i) a.world->all_reduce(a.t);
  a.nccl->device_works = true;
  EXPECT_TRUE(soon([&] { return a.nccl->count("abort") > 0; }));
  EXPECT_LE(a.nccl->count("make_event"), 256);
  Thrown thrown = thrown_by([&] { a.world->all_reduce(a.t); });
  EXPECT_TRUE(contains(thrown.text, "operation 401) has not ended within")) << thrown.text;
}

TEST(Nccl, ACallThatHangsIsWaitedForLongerThanALostRank) {
  EXPECT_GT(NcclTimes{}.patience, seconds(5));  // the grace of Job::watch()
}

TEST(Nccl, ACallThatHangsIsAbortedFromOutside) {
  Alone a(kShort);
  a.nccl->hangs = true;
  EXPECT_TRUE(contains(thrown_by([&] {
                         a.world->all_reduce(a.t);
                         a.world->all_reduce(a.t);
                       }).text,
                       "operation 2) did not return within 0.15 s"));
}

TEST(Nccl, UnderCaptureNoEventIsRecorded) {
  Alone a;
  a.nccl->is_capturing = true;
  a.world->all_reduce(a.t);
  EXPECT_EQ(a.nccl->calls(), Strings{"all_reduce sum 7 of 1"});
}

TEST(Nccl, WrongTensorsAreRefusedWithTheirGroup) {
  run_ranks(2, [](Communicator& world, NcclStandIn&) {
    Tensor t = at::zeros({4, 4}).t(), full = at::zeros({8}), other = full.narrow(0, 1, 4);
    EXPECT_TRUE(contains(thrown_by([&] { world.all_reduce(t); }).text, "is not contiguous"));
    EXPECT_TRUE(contains(thrown_by([&] { world.reduce_scatter(full, other); }).text,
                         "not at the place of rank"));
    Tensor device = at::zeros({2}, at::device(at::kMeta));
    EXPECT_TRUE(
        contains(thrown_by([&] { world.all_reduce(device); }).text,
                 "all_reduce sum in group world: the tensor is on meta, the group works on cpu"));
    EXPECT_TRUE(
        contains(thrown_by([&] { world.broadcast(full, 2); }).text, "rank 2 is not one of its 2"));
  });
}

TEST(Nccl, AnOldLibraryIsRefused) {
  auto self = self_communicator();
  auto nccl = std::make_shared<NcclStandIn>(*self);
  nccl->version_code = 21602;
  AloneControl control;
  Thrown thrown = thrown_by([&] { nccl_communicator(nccl, control, at::kCPU, kTimes); });
  EXPECT_EQ(
      thrown.text,
      "NCCL 2.16.2 (libnccl.so.2) is too old: 2.18 or newer is needed, which has ncclCommSplit");
  EXPECT_EQ(thrown.exit, Exit::kUsage);
}

TEST(Nccl, AnIdThatRank0CannotMakeIsAnErrorOfAll) {
  std::atomic<int> failed{0};
  run_thread_ranks(2, [&](Communicator& ranks, Control& control) {
    auto nccl = std::make_shared<NcclStandIn>(ranks);
    nccl->no_id = true;
    Thrown thrown = thrown_by([&] { nccl_communicator(nccl, control, at::kCPU, kTimes); });
    failed += thrown.text == "NCCL on rank 0 failed: no network interface";
  });
  EXPECT_EQ(failed, 2);
}

}  // namespace
}  // namespace neox
