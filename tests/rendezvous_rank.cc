#include "rendezvous_rank.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "base/text.h"
#include "comm/mpi_plugin.h"
#include "rendezvous/job.h"
#include "rendezvous/store.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::map<std::string, std::string> g_options;
std::atomic<int> g_signal{0};

std::string option(const std::string& name, const std::string& otherwise) {
  auto found = g_options.find(name);
  return found == g_options.end() ? otherwise : found->second;
}
int number(const std::string& name, int otherwise) {
  return std::stoi(option(name, std::to_string(otherwise)));
}

// Stands in for PMIx: a file.
std::string share_by_file(const std::string& mine, seconds deadline) {
  std::string path = option("share", "");
  if (!mine.empty()) {
    std::ofstream(path + ".part") << mine;
    check_io(std::rename((path + ".part").c_str(), path.c_str()) == 0, "cannot rename");
  }
  auto until = std::chrono::steady_clock::now() + deadline;
  for (std::string text; std::chrono::steady_clock::now() < until;) {
    if (std::getline(std::ifstream(path), text)) return text;
    std::this_thread::sleep_for(milliseconds(20));
  }
  fail(Exit::kPeerLost, "no PMIx server answers");
}

ProcessInfo process() {
  ProcessInfo info;
  info.rank = number("rank", 0), info.size = number("size", 1);
  info.nodes = split(option("nodes", "here"), ',');
  info.num_nodes = static_cast<int>(info.nodes.size());
  int per_node = std::max(1, info.size / info.num_nodes);
  info.node = number("node", std::min(info.rank / per_node, info.num_nodes - 1));
  info.tasks.assign(info.nodes.size(), per_node);
  info.tasks.back() += info.size - per_node * info.num_nodes;
  info.host = info.nodes[static_cast<size_t>(info.node)];
  info.local_rank = info.rank % per_node, info.local_size = per_node;
  info.rendezvous_host = option("host", "localhost");
  info.rendezvous_port = number("port", 0);
  info.pmix = !option("share", "").empty();
  info.life = option("life", "1.0.0");
  return info;
}

JoinOptions join_options() {
  JoinOptions options;
  options.must_agree = {{"config", option("config", "c0ffee")}, {"build", "0.1.0"}};
  options.deadline = seconds(number("deadline", 20));
  options.channel = number("channel", 0) != 0;
  options.naming = seconds(number("naming", 30));
  options.patience = seconds(number("patience", 20));
  options.heartbeat = milliseconds(number("heartbeat", 100));
  options.silence = milliseconds(number("silence", 5000)), options.answer = seconds(1);
  options.poll = [said = false]() mutable {
    if (!std::exchange(said, true)) std::cerr << "waiting" << std::endl;
    std::this_thread::sleep_for(seconds(number("stuck", 0)));
    check(g_signal == 0, "stopped by signal ", g_signal.load());
  };
  return options;
}

std::string binary(int rank, int bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>((i * 131 + i / 251 + static_cast<size_t>(rank)) & 255);
  return text;
}

// For a second no file, and so no connection, can be opened.
class NoFiles {
 public:
  NoFiles() {
    ::getrlimit(RLIMIT_NOFILE, &usual_);
    int next = ::dup(0);
    ::close(next);
    rlimit none{static_cast<rlim_t>(next), usual_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    end_ = std::thread([this] {
      std::this_thread::sleep_for(seconds(1));
      ::setrlimit(RLIMIT_NOFILE, &usual_);
    });
  }
  ~NoFiles() { end_.join(); }

 private:
  rlimit usual_{};
  std::thread end_;
};

// Two threads decide about different things at once.
void gather_on_channels(Job& job) {
  int ranks = job.process().size, part = std::max(ranks - 1, 1);
  auto rounds = [&](Control& control, char name) {
    for (int round = 0; round < number("rounds", 20); ++round) {
      auto texts = control.gather(concat(name, round, "/", control.rank()), seconds(20));
      check(texts.size() == static_cast<size_t>(control.size()), "texts of ", texts.size());
      for (size_t rank = 0; rank < texts.size(); ++rank)
        check(texts[rank] == concat(name, round, "/", rank), "rank ", rank, " said ", texts[rank]);
    }
  };
  std::unique_ptr<Control> channel;
  std::optional<NoFiles> trouble;
  if (number("trouble", 0) && job.process().rank > 0) trouble.emplace();
  if (job.process().rank < part) channel = job.control().channel("part", part);
  std::string failure;
  std::jthread other([&] {  // joined too where this thread fails
    try {
      if (channel) rounds(*channel, 'b');
    } catch (const std::exception& e) { failure = e.what(); }
  });
  rounds(job.control(), 'a');
  other.join();
  check(failure.empty(), failure);
}

void gather(Job& job) {
  for (int round = 0; round < number("rounds", 1); ++round) {
    auto texts = job.control().gather(binary(job.process().rank, number("bytes", 100)));
    for (int rank = 0; rank < job.process().size; ++rank)
      check(texts.at(static_cast<size_t>(rank)) == binary(rank, number("bytes", 100)),
            "the text of rank ", rank, " arrived wrong");
  }
}

// Texts for rank 0 alone; the last rank has none, as one that idles.
void gather_to_first(Job& job) {
  int rank = job.process().rank, last = job.process().size - 1;
  for (int round = 0; round < number("rounds", 20); ++round) {
    std::string mine = rank == last ? "" : binary(rank, 1000 + round);
    auto texts = rank == last ? job.control().gather(mine, seconds(20))
                              : job.control().gather_to_first(mine, seconds(20));
    check(static_cast<int>(texts.size()) == last + 1, "texts of ", texts.size());
    for (int of = 0; of <= last; ++of) {
      std::string said = rank != 0 || of == last ? "" : binary(of, 1000 + round);
      check(texts[static_cast<size_t>(of)] == said, "rank ", rank, " has another text of ", of);
    }
  }
}

// Rank 0 hears what each rank has told last.
void tell(Job& job) {
  auto told_by = [](int rank) { return concat("of rank ", rank, ": 2 words"); };
  int ranks = job.process().size;
  job.tell("something older");
  job.tell(told_by(job.process().rank));
  auto all_told = [&] {
    auto told = job.told();
    for (int rank = 0; rank < ranks; ++rank)
      if (told.at(static_cast<size_t>(rank)) != told_by(rank)) return false;
    return true;
  };
  auto until = std::chrono::steady_clock::now() + seconds(20);
  while (job.process().rank == 0 && !all_told()) {
    check(std::chrono::steady_clock::now() < until, "rank 0 has heard ", join(job.told(), "; "));
    std::this_thread::sleep_for(milliseconds(10));
  }
  job.control().gather("", seconds(30));
}

// All keys of the store, which must not grow with the rounds.
void print_keys(Job& job) {
  job.control().barrier();
  if (job.process().rank == 0) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(job.process().rendezvous_port);
    std::cout << "keys " << c10d::TCPStore("127.0.0.1", options).getNumKeys() << "\n";
  }
  job.control().barrier();
}

// Those to the store, of which one is its own process's, and those that their openers have closed.
void print_connections(Job& job) {
  job.control().barrier();
  int open = 0, closed = 0;
  std::ostringstream port;
  port << ':' << std::uppercase << std::hex << job.process().rendezvous_port;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::string number, local, remote, state;
      std::istringstream(line) >> number >> local >> remote >> state;
      if (remote.ends_with(port.str())) ++(state == "01" ? open : closed);
    }
  }
  std::cerr << "connections " << open << ", knocks " << closed << std::endl;
  job.control().barrier();
}

// What a training loop does: goes on until a signal, then decides together.
int work(Job& job, const std::atomic<bool>& lost, const std::string& reason) {
  while (!g_signal) {
    if (lost) job.check_all_alive(), fail(Exit::kInternal, "not lost: ", reason);
    std::this_thread::sleep_for(milliseconds(10));
  }
  job.control().gather("stop", seconds(5));
  return static_cast<int>(Exit::kRequeue);
}

// Fails while a thread waits for the others, as that of a save does, or stays for good.
[[noreturn]] void fail_alone(Job& job, bool stays) {
  auto waiting = std::async(std::launch::async, [&] { job.control().gather("", seconds(60)); });
  std::this_thread::sleep_for(milliseconds(300));
  job.failed("disk full", Exit::kIo);
  if (stays) std::this_thread::sleep_for(seconds(60));
  waiting.get();
  fail(Exit::kInternal, "others came");
}

// Fails behind another rank, of which it has not heard yet.
[[noreturn]] void fail_behind(Job& job) {
  std::this_thread::sleep_for(milliseconds(500));
  job.failed("an operation was broken off", Exit::kPeerLost);
  job.check_all_alive();
  fail(Exit::kInternal, "no other rank has failed");
}

// All threads but this one are late, as on a node with more threads than CPUs.
void delay_other_threads() {
  std::signal(SIGUSR2, [](int) { ::usleep(500'000); });
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    int thread = std::stoi(entry.path().filename());
    if (thread != ::gettid()) ::tgkill(::getpid(), thread, SIGUSR2);
  }
}

// The client's thread has nothing to do, but cannot end at once.
int drop_client() {
  Listener listener = listen_from(number("port", 0), 1);
  std::pair<std::string, std::string> value{"key", "value"};
  StoreServer server(listener, {&value, 1});
  StoreClient client({"127.0.0.1", listener.port}, "key", StoreClient::Knock::kBefore);
  check(client.wait_connected(seconds(10)) == StoreClient::State::kConnected, "no connection");
  check(client.get("key") == "value", "another value");
  std::this_thread::sleep_for(milliseconds(100));
  delay_other_threads();
  return 0;
}

int run() {
  if (option("do", "") == "drop_client") return drop_client();
  std::atomic<bool> lost = false;
  std::string reason;
  std::string what = option("do", "leave");
  auto start = std::chrono::steady_clock::now();
  auto job = join(process(), join_options());
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::cout << "hosts " << join(job->hosts(), ",") << "\nseconds " << took.count() << "\n";
  job->watch(
      [&](const std::string& why) {
        if (what != "hang") reason = why, lost = true;
      },
      g_signal, seconds(1));
  std::cerr << "joined" << std::endl;
  if (what == "gather") gather(*job), print_keys(*job);
  if (what == "first") gather_to_first(*job), gather(*job), print_keys(*job);
  if (what == "tell") tell(*job);
  if (what == "connections") print_connections(*job);
  if (what == "channels") gather_on_channels(*job), job->control().barrier();
  if (what == "work" || what == "hang") return work(*job, lost, reason);
  if (what == "barrier") job->control().gather("", seconds(number("wait", 10)));
  for (int i = 0; what == "slow" && i < 15; ++i) std::this_thread::sleep_for(milliseconds(100));
  if (what == "slow") job->control().barrier();
  if (what == "fail") job->failed("disk full", Exit::kIo), fail(Exit::kIo, "disk full");
  if (what == "fail_alone" || what == "stay") fail_alone(*job, what == "stay");
  if (what == "fail_behind") fail_behind(*job);
  if (what == "sleep") std::this_thread::sleep_for(milliseconds(1500));
  if (what == "throw") fail(Exit::kInternal, "a bug");
  return 0;
}

// As where main() returns, which a Child's body does not.
[[noreturn]] void end_with_destructors(int code) {
  struct Static {
    ~Static() { std::cerr << "static objects are destroyed" << std::endl; }
  };
  static Static object;
  std::exit(code);
}

}  // namespace

const MpiPlugin& mpi_plugin(const std::string&) {
  check_usage(option("share", "") != "none", "libneox_mpi.so is not there");
  static const MpiPlugin plugin{"", "", nullptr, share_by_file};
  return plugin;
}

namespace testing {

int be_rank(const std::map<std::string, std::string>& options) {
  g_options = options;
  ::setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);  // c10d asks DNS for the name of each peer
  std::signal(SIGTERM, [](int number) { g_signal = number; });
  rlim_t files = static_cast<rlim_t>(number("files", 0));
  if (rlimit limit{files, files}; files) ::setrlimit(RLIMIT_NOFILE, &limit);
  int code = run_program("rank " + option("rank", "0"), run);
  if (number("destructors", 0)) end_with_destructors(code);
  return code;
}

}  // namespace testing
}  // namespace neox
