// Processes that meet, and what they say and end with when one of them is not as it should be.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "rendezvous/names.h"
#include "rendezvous/store.h"
#include "rendezvous_ranks.h"
#include "stranger.h"

namespace neox::testing {
namespace {

using std::chrono::steady_clock;

constexpr int kPeerLost = static_cast<int>(Exit::kPeerLost);
constexpr int kUsage = static_cast<int>(Exit::kUsage);

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

TEST(Rendezvous, AllMeetAndLearnTheHosts) {
  for (const Ended& end :
       Ranks(4, {"nodes=node1,node2", "do=barrier"}).at(next_ports()).start_all().end()) {
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_NE(end.out.find("hosts node1,node1,node2,node2"), std::string::npos) << end.out;
  }
}

TEST(Rendezvous, AJobOfOneOpensNoSocket) {
  expect_all(Ranks(1, {"do=barrier"}).start_all().end(), 0);  // port 0 would need PMIx
}

TEST(Rendezvous, TwentyRanksMeetWithinSeconds) {
  auto ended = Ranks(20, {"do=barrier"}).at(next_ports()).start_all().end();
  expect_all(ended, 0);
  RecordProperty("rank_0", ended[0].out);
  std::cout << "20 ranks, rank 0: " << ended[0].out;
}

TEST(Rendezvous, ARankKnocksOnceAndConnectsTwice) {
  Ranks ranks(3, {"do=connections"});
  ranks.at(next_ports()).start(0).wait_for("waiting"), ranks.start(1), ranks.start(2);
  expect_all(ranks.end(), 0, "connections 7, knocks 3");
}

TEST(Rendezvous, MissingRanksAreNamedWithTheirNodeByAll) {
  const std::string reason = "rank 2 on node2 of 4 did not arrive within 20 s";  // by rank 0
  Ranks ranks(4, {"nodes=node1,node2", "deadline=3"});
  ranks.at(next_ports()).start(0, {"deadline=20"}), ranks.start(1), ranks.start(3);
  auto start = steady_clock::now();  // the first deadline that passes is that of all
  expect_all({ranks[1].end()}, kPeerLost, reason);
  expect_all({ranks.start(2).end()}, kPeerLost, reason);  // and by who comes too late
  expect_all({ranks[0].end(), ranks[2].end()}, kPeerLost, reason);
  EXPECT_LT(seconds_since(start), 10);
}

TEST(ExpectedHosts, AreToldWhereRanksFollowOneAnotherAlone) {
  ProcessInfo info{.size = 3, .local_size = 2, .host = "a", .nodes = {"a", "b"}, .tasks = {2, 1}};
  EXPECT_EQ(expected_hosts(info, std::vector<std::string>{"a", "", ""}),
            (std::vector<std::string>{"a", "a", "b"}));
  EXPECT_TRUE(expected_hosts(info, std::vector<std::string>{"a", "b", ""}).empty());
  info.tasks.clear();  // as with --distribution=cyclic
  EXPECT_TRUE(expected_hosts(info, std::vector<std::string>{"a", "", ""}).empty());
}

TEST(Rendezvous, ARankZeroWhereNobodyLooksForItEndsAtOnce) {
  Ranks ranks(2, {"nodes=node1,node2", "host=node1", "node=1"});
  ranks.at(next_ports()).start(0);
  expect_all(ranks.end(), kUsage, "rank 0 is on node2, but the others look for it on node1");
}

TEST(Rendezvous, ARankZeroThatDoesNotSayWhoIsMissingIsNamed) {
  Ranks ranks(3, {"deadline=2", "naming=1"});
  ranks.at(next_ports()).start(0, {"deadline=20", "stuck=5"}), ranks.start(1);
  expect_all(ranks.end(), kPeerLost, "rank 0 on here did not say who is missing");
}

TEST(Rendezvous, AMissingRankZeroIsNamed) {
  Ranks ranks(3, {"deadline=1"});
  ranks.at(next_ports()).start(1), ranks.start(2);
  expect_all(ranks.end(), kPeerLost, "rank 0 did not arrive within 1 s");
}

TEST(Rendezvous, WhoIsWaitedForIsSaidBeforeTheDeadline) {
  Ranks ranks(4, {"nodes=node1,node2", "patience=1", "do=barrier"});
  ranks.at(next_ports()).start(2), ranks.start(3, {"host=nowhere.invalid", "deadline=4"});
  EXPECT_TRUE(ranks[0].wait_for("still waiting for rank 0 at port"));
  ranks.start(0), ranks.start(1);
  EXPECT_TRUE(ranks[2].wait_for("still waiting for rank 3 on node2 of 4"));
  ranks.start(3);
  for (size_t rank : {0, 2, 3, 4}) EXPECT_EQ(ranks[rank].end().code, 0) << rank;
  EXPECT_EQ(ranks[1].end().err.find("still waiting"), std::string::npos);  // node2 has a voice
}

TEST(Rendezvous, ANameThatDoesNotResolveIsSaidBeforeTheDeadline) {
  Ranks ranks(2, {"nodes=node1,node2", "patience=1", "host=nowhere.invalid", "deadline=20"});
  ranks.at(next_ports()).start(1);
  EXPECT_TRUE(ranks[0].wait_for("(nowhere.invalid: "));
  ranks[0].signal(SIGTERM);
  EXPECT_NE(ranks[0].end().code, 0);
}

TEST(Rendezvous, ALimitOfFilesTooLowForTheConnectionsOfAllRanksIsNamed) {
  Ranks ranks(12, {"files=40", "channel=1"});
  ranks.at(next_ports()).start(0);
  expect_all(ranks.end(), kUsage,
             "rank 0 may have 40 files open on here (ulimit -n, hard limit), but 12 ranks need");
}

TEST(Rendezvous, TwoProcessesOfOneRankAreNamed) {
  for (int twin : {0, 1}) {
    Ranks ranks(3);
    ranks.at(next_ports()).start(0), ranks.start(1), ranks.start(twin);
    expect_all(ranks.end(), kUsage, "rank " + std::to_string(twin) + " is taken by pid ");
  }
}

TEST(Rendezvous, ALateTwinLeavesTheJobAlone) {
  Ranks ranks(2, {"do=slow"});
  ranks.at(next_ports()).start_all().wait_joined();
  EXPECT_EQ(ranks.start(1).end().code, kUsage);
  expect_all(ranks.end(2), 0);
}

TEST(Rendezvous, RanksThatDifferAreNamed) {
  Ranks ranks(3, {"nodes=node1,node2,node3"});
  ranks.at(next_ports()).start(0), ranks.start(1, {"config=bad"}), ranks.start(2);
  expect_all(ranks.end(), kUsage,
             "config is c0ffee on ranks 0 on node1, 2 on node3, but bad on rank 1 on node2");
}

TEST(Rendezvous, SizesThatDifferAreNamed) {
  Ranks ranks(2);
  ranks.at(next_ports()).start(0), ranks.start(1, {"size=3"});
  expect_all(ranks.end(), kUsage, "rank 1 on here is one of 3 ranks, rank 0 on here one of 2");
}

TEST(Rendezvous, AStopWhileWaitingEndsAll) {
  Ranks ranks(3);
  ranks.at(next_ports()).start(0), ranks.start(1);
  ranks[1].wait_for("waiting");
  std::this_thread::sleep_for(std::chrono::seconds(2));
  ranks[1].signal(SIGTERM);
  auto ended = ranks.end();
  EXPECT_EQ(ended[0].code, kPeerLost);
  EXPECT_NE(ended[0].err.find("rank 1 on here stopped: stopped by signal 15"), std::string::npos)
      << ended[0].err;
}

TEST(Rendezvous, AnotherLifeOrJobAtTheSamePortIsPassedOver) {
  int port = next_ports();
  Ranks old_life(2, {"life=7.0.0", "do=slow"}), new_life(2, {"life=7.0.1", "do=barrier"});
  old_life.at(port).start_all().wait_joined();
  expect_all(new_life.at(port).start_all().end(), 0);
  expect_all(old_life.end(), 0);
}

TEST(Rendezvous, AnOrphanOfAnEarlierLifeDoesNotJoin) {
  int port = next_ports();
  Ranks orphan(2, {"life=7.0.0", "deadline=4"}), job(2, {"life=7.0.1", "do=work"});
  job.at(port).start_all().wait_joined();
  orphan.at(port).start(1);
  expect_all(orphan.end(), kPeerLost, "the store of another job");
  for (size_t rank : {0, 1}) job[rank].signal(SIGTERM);
  expect_all(job.end(), static_cast<int>(Exit::kRequeue));
}

TEST(Rendezvous, OtherProgramsAtThePortArePassedOver) {
  int port = next_ports();
  Stranger silent(port, Stranger::kSilent), http(port + 1, Stranger::kHttp);
  auto start = steady_clock::now();
  expect_all(Ranks(3, {"do=barrier"}).at(port).start_all().end(), 0);
  EXPECT_LT(seconds_since(start), 10);
}

// The store of a program that accepts and says nothing is still waited for as the rank ends.
TEST(Rendezvous, AThreadThatIsLeftBehindDoesNotChangeHowARankEnds) {
  int port = next_ports();
  Stranger silent(port, Stranger::kSilent);
  Ranks ranks(2, {"deadline=1", "destructors=1"});
  ranks.at(port).start(1);
  Ended ended = ranks[0].end();
  EXPECT_EQ(ended.code, kPeerLost) << ended.err;
  EXPECT_EQ(ended.err.find("static objects are destroyed"), std::string::npos) << ended.err;
}

TEST(Rendezvous, AThreadThatIsOnlyLateIsNotLeftBehind) {
  Ranks ranks(1, {"do=drop_client", "destructors=1"});
  ranks.at(next_ports()).start(0);
  expect_all(ranks.end(), 0, "static objects are destroyed");
}

TEST(Rendezvous, RankZeroSaysWhereThroughPmix) {
  std::string path = ::testing::TempDir() + "neox_share_" + std::to_string(::getpid());
  expect_all(Ranks(3, {"do=barrier", "share=" + path, "port=0"}).start_all().end(), 0);
  std::filesystem::remove(path);
}

TEST(Rendezvous, WithoutThePluginTheNodeListServesOrTheCureIsNamed) {
  auto ended = Ranks(2, {"do=barrier", "share=none"}).at(next_ports()).start_all().end();
  expect_all(ended, 0);
  EXPECT_NE(ended[0].err.find("PMIx is not used, ranks meet at localhost"), std::string::npos);
  expect_all(Ranks(2, {"share=none", "port=0"}).start_all().end(), kUsage, "NEOX_MASTER=HOST:PORT");
}

TEST(Control, GathersMebibytesOfBytes) {
  expect_all(
      Ranks(3, {"do=gather", "bytes=1048576", "rounds=3"}).at(next_ports()).start_all().end(), 0);
}

TEST(Control, GathersMoreThanTheStoreTakesAtOnce) {
  expect_all(
      Ranks(2, {"do=gather", "bytes=9000001", "rounds=2"}).at(next_ports()).start_all().end(), 0);
}

TEST(Control, AChannelOfSomeRanksAndTheirJobsDoNotMix) {
  expect_all(Ranks(3, {"do=channels", "channel=1"}).at(next_ports()).start_all().end(), 0);
}

TEST(Control, AChannelIsTriedAgain) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers open pipes to look at objects, and here no file can be opened";
#endif
  expect_all(Ranks(3, {"do=channels", "trouble=1"}).at(next_ports()).start_all().end(), 0);
}

// What would be sent to all is as much for each rank as all have.
TEST(Control, WhatIsForRankZeroGoesToNobodyElse) {
  expect_all(Ranks(4, {"do=first"}).at(next_ports()).start_all().end(), 0);
}

TEST(Job, RankZeroHearsWhatRanksTell) {
  expect_all(Ranks(4, {"do=tell"}).at(next_ports()).start_all().end(), 0);
}

TEST(Control, RoundsLeaveNothingInTheStore) {
  for (const char* what : {"do=gather", "do=first"}) {
    auto keys_after = [&](const char* rounds) {
      auto ended = Ranks(3, {what, rounds}).at(next_ports()).start_all().end();
      return std::stoi(ended[0].out.substr(ended[0].out.find("keys ") + 5));
    };
    EXPECT_NEAR(keys_after("rounds=2"), keys_after("rounds=20"), 3);  // the last round's go last
  }
}

TEST(Control, RanksThatDoNotComeAreNamed) {
  for (std::string wait : {"1", "9"}) {  // of rank 0, which names them as soon as one is late
    Ranks ranks(3, {"nodes=node1,node2,node3", "wait=1"});
    ranks.at(next_ports()).start(0, {"do=barrier", "wait=" + wait}), ranks.start(1, {"do=work"});
    ranks.start(2, {"do=barrier"});
    auto ended = ranks.wait_joined().end(1);
    expect_all(ended, kPeerLost, "rank 1 on node2 did not come within " + wait + " s");
    EXPECT_NE(ranks[1].end().code, 0);
  }
}

TEST(Control, AStopOfAllRanksIsNoDelay) {
  Ranks ranks(2, {"wait=3"});
  ranks.at(next_ports()).start(0, {"do=barrier"}), ranks.start(1, {"do=slow"});
  ranks.wait_joined();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 0 waits
  for (size_t rank : {0, 1}) ranks[rank].signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  for (size_t rank : {0, 1}) ranks[rank].signal(SIGCONT);
  expect_all(ranks.end(), 0);
}

TEST(Watch, AKilledRankIsNamedByAll) {
  for (int victim : {2, 0}) {
    Ranks ranks(4, {"nodes=node1,node2", "do=work", "silence=1000"});
    ranks.at(next_ports()).start_all().wait_joined()[static_cast<size_t>(victim)].signal(SIGKILL);
    auto start = steady_clock::now();
    expect_all(ranks.end(victim), kPeerLost,
               victim == 0 ? "rank 0 on node1 is lost" : "rank 2 on node2 is lost");
    EXPECT_LT(seconds_since(start), 8);
  }
}

TEST(Watch, AStoppedRankIsLostAndLearnsOfIt) {
  for (int victim : {1, 0}) {
    Ranks ranks(3, {"do=work", "silence=1000"});
    size_t v = static_cast<size_t>(victim);
    ranks.at(next_ports()).start_all().wait_joined()[v].signal(SIGSTOP);
    std::string name = "rank " + std::to_string(victim) + " on here is lost";
    expect_all(ranks.end(victim), kPeerLost, name);
    ranks[v].signal(SIGCONT);
    EXPECT_EQ(ranks[v].end().code, kPeerLost);
  }
}

TEST(Watch, AProcessThatHangsIsEnded) {
  Ranks ranks(3, {"do=hang", "silence=1000"});
  ranks.at(next_ports()).start_all().wait_joined()[1].signal(SIGKILL);
  expect_all(ranks.end(1), kPeerLost, "rank 1 on here is lost: no sign of life for 1 s");
}

TEST(Watch, SigtermOfAllIsAnsweredTogether) {
  Ranks ranks(3, {"do=work"});
  ranks.at(next_ports()).start_all().wait_joined();
  for (size_t rank : {0, 1, 2}) ranks[rank].signal(SIGTERM);
  expect_all(ranks.end(), static_cast<int>(Exit::kRequeue));
}

TEST(Watch, SigtermWithADeadPeerEndsSooner) {
  for (int victim : {0, 2}) {
    Ranks ranks(3, {"do=work", "silence=30000"});
    size_t v = static_cast<size_t>(victim);
    ranks.at(next_ports()).start_all().wait_joined()[v].signal(SIGSTOP);
    ranks[1].signal(SIGTERM);
    if (victim == 0) ranks[2].signal(SIGTERM);  // else rank 0 tells
    auto start = steady_clock::now();
    expect_all(ranks.end(victim), kPeerLost, "rank " + std::to_string(victim) + " on here is lost");
    EXPECT_LT(seconds_since(start), 8);
  }
}

TEST(Watch, AFailedRankWakesTheOthersWithItsReason) {
  for (int victim : {2, 0}) {
    Ranks ranks(3, {"silence=30000"});
    ranks.at(next_ports());
    for (int rank : {0, 1, 2}) ranks.start(rank, {rank == victim ? "do=fail" : "do=work"});
    auto ended = ranks.end(victim);
    int io = static_cast<int>(Exit::kIo);  // all end as the one that failed
    expect_all(ended, io, "rank " + std::to_string(victim) + " on here failed: disk full");
    EXPECT_EQ(ranks[static_cast<size_t>(victim)].end().code, static_cast<int>(Exit::kIo));
  }
}

TEST(Watch, ARankThatFailsBehindAnotherEndsAsThatOne) {
  Ranks ranks(2, {"silence=30000", "heartbeat=5000"});
  ranks.at(next_ports()).start(0, {"do=fail"}), ranks.start(1, {"do=fail_behind"});
  expect_all(ranks.end(0), static_cast<int>(Exit::kIo), "rank 0 on here failed: disk full");
}

TEST(Watch, ARankThatFailsWaitsForNobody) {
  for (int victim : {1, 0}) {
    Ranks ranks(3);
    ranks.at(next_ports());
    for (int rank : {0, 1, 2}) ranks.start(rank, {rank == victim ? "do=fail_alone" : "do=work"});
    auto start = steady_clock::now();
    std::string name = "rank " + std::to_string(victim) + " on here failed: disk full";
    expect_all(ranks.end(), static_cast<int>(Exit::kIo), name);
    EXPECT_LT(seconds_since(start), 8);
  }
}

TEST(Watch, ARankThatFailsAndDoesNotEndIsEnded) {
  Ranks ranks(2);
  ranks.at(next_ports()).start(0, {"do=stay"}), ranks.start(1, {"do=work"});
  expect_all(ranks.end(), static_cast<int>(Exit::kIo), "rank 0 on here failed: disk full");
}

TEST(Watch, AnErrorThatNobodyReportedWakesTheOthersToo) {
  Ranks ranks(2, {"silence=30000"});
  ranks.at(next_ports()).start(0, {"do=work"}), ranks.start(1, {"do=throw"});
  expect_all(ranks.end(1), static_cast<int>(Exit::kInternal), "rank 1 on here failed");
}

TEST(Watch, RankZeroWaitsForSlowerRanksToEnd) {
  Ranks ranks(2);
  ranks.at(next_ports()).start(0, {"do=leave"}), ranks.start(1, {"do=sleep"});
  expect_all(ranks.end(), 0);
}

}  // namespace
}  // namespace neox::testing
