#include "rendezvous/meet.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "comm/mpi_plugin.h"
#include "rendezvous/agree.h"
#include "rendezvous/names.h"
#include "rendezvous/packed.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kPorts = 8;
constexpr milliseconds kPoll{100};
constexpr milliseconds kTwin{3000};    // to look for another rank 0 at the ports that are taken
constexpr milliseconds kLinger{2000};  // for the others to read why the job does not start

// The job does not start, for a reason that all ranks read in the store.
struct Refused : Error {
  using Error::Error;
};

// Each connection of each rank is a socket at rank 0, and usual limits are 1024 files. With too few
// the store would accept no more, and the network of those that wait would look broken.
void allow_sockets(const ProcessInfo& process, int connections) {
  constexpr rlim_t kOwn = 16, kBeside = 512;  // files that are open here, and that may come to be
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlim_t least = static_cast<rlim_t>(process.size) * static_cast<rlim_t>(connections) + kOwn;
  if (limit.rlim_cur < least + kBeside) {
    rlimit raised{std::min(least + kBeside, limit.rlim_max), limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  check_usage(limit.rlim_cur >= least, "rank 0 may have ", limit.rlim_cur, " files open on ",
              process.host, " (ulimit -n, hard limit), but ", process.size, " ranks need at least ",
              least, ", ", connections,
              " connections each; raise the limit there, for Slurm LimitNOFILE of slurmd");
}

class Arrival {
 public:
  Arrival(const ProcessInfo& process, const JoinOptions& options)
      : process_(process),
        options_(options),
        keys_(process.life),
        until_(steady_clock::now() + options.deadline),
        patience_(options.patience),
        next_word_(steady_clock::now() + patience_) {}
  Meeting run();

 private:
  void serve();
  void find();
  void connect();
  std::unique_ptr<StoreClient> connect_again();
  void refuse_twin(int port);
  void check_is_looked_for_here() const;
  void arrive();
  std::string await_verdict();
  void obey(const std::string& verdict);
  void tell(const Error& error) noexcept;
  std::optional<std::string> share(const std::string& mine);
  std::vector<Address> ports(const std::string& host, int count) const;
  std::string judge();
  std::string name_missing();
  std::string not_arrived();
  std::string not_named() const;
  template <class Text>
  void say_waiting(const Text& text);
  void poll() const {
    if (options_.poll) options_.poll();
  }
  bool late(milliseconds beyond = {}) const { return steady_clock::now() > until_ + beyond; }
  StoreClient& client() { return *meeting_.client; }
  std::string decide(const std::vector<std::string>& verdict) {
    return client().compare_set(keys_.verdict(), "", pack(verdict));
  }
  std::string row() const;
  std::vector<std::string> row_keys() const;

  const ProcessInfo& process_;
  const JoinOptions& options_;
  Keys keys_;
  steady_clock::time_point until_;
  seconds patience_;  // until the next word on who is waited for
  steady_clock::time_point next_word_;
  Meeting meeting_;
  bool twin_ = false;                   // another process is this rank
  std::string where_ = "its own port";  // this rank looks for rank 0
  std::string rank_zero_ = "rank 0";    // with its host, once that is known
};

Meeting Arrival::run() {
  try {
    process_.rank == 0 ? serve() : find();
    connect();
    meeting_.heart_client = connect_again();
    if (options_.channel) meeting_.channel_client = connect_again();
    arrive();
    obey(await_verdict());
  } catch (const Refused& e) {
    tell(e);
    throw Error(e.exit(), e.what());
  } catch (const StoreLost& e) {
    fail(Exit::kPeerLost, rank_zero_, " is lost: ", e.what());
  } catch (const std::exception& e) {
    tell(Error(Exit::kPeerLost, concat(name_of(process_), " stopped: ", e.what())));
    throw;
  }
  return std::move(meeting_);
}

void Arrival::serve() {
  allow_sockets(process_, options_.channel ? 3 : 2);
  bool any_port = process_.rendezvous_port == 0;
  Listener listener = listen_from(process_.rendezvous_port, any_port ? 1 : kPorts);
  if (!any_port) refuse_twin(listener.port);
  std::vector<std::pair<std::string, std::string>> values;
  for (int rank = 0; rank < process_.size; ++rank) values.emplace_back(keys_.beat(rank), "0");
  values.insert(values.end(), {{keys_.lost(), ""}, {keys_.ask(), ""}, {keys_.here(), row()}});
  meeting_.server = std::make_unique<StoreServer>(listener, values);
  if (!share(to_string(Address{reachable_name(process_), listener.port})))
    check_is_looked_for_here();
  meeting_.finder =
      std::make_unique<Finder>(std::vector{Address{"127.0.0.1", listener.port}}, keys_.here());
}

// Another process that is rank 0 of this job would have taken a port before ours.
void Arrival::refuse_twin(int port) {
  std::vector<Address> before = ports("127.0.0.1", port - process_.rendezvous_port);
  if (before.empty()) return;
  meeting_.finder = std::make_unique<Finder>(before, keys_.here());
  meeting_.client = meeting_.finder->find(steady_clock::now() + kTwin, [this] { poll(); });
  twin_ = meeting_.client != nullptr;
  if (twin_) throw Refused(Exit::kUsage, taken_twice(0, client().greeting(), row()));
}

// Under srun -m arbitrary rank 0 may be on any node, which the other ranks are not told.
void Arrival::check_is_looked_for_here() const {
  const std::vector<std::string>& nodes = process_.nodes;
  bool elsewhere = process_.node > 0 && !nodes.empty() && process_.rendezvous_host == nodes.front();
  check_usage(!elsewhere, "rank 0 is on ", process_.host, ", but the others look for it on ",
              process_.rendezvous_host, ", the first node of ", process_.launcher,
              ": set NEOX_MASTER=", process_.host, ":PORT on all ranks");
}

void Arrival::find() {
  std::optional<std::string> shared = share("");
  std::string host = process_.local_size == process_.size ? "127.0.0.1" : process_.rendezvous_host;
  where_ = shared ? *shared + ", told through PMIx"
                  : concat("port ", process_.rendezvous_port, " of ", host, " or the ", kPorts - 1,
                           " after it");
  meeting_.finder = std::make_unique<Finder>(
      shared ? std::vector{parse_address(*shared)} : ports(host, kPorts), keys_.here());
}

// A job that does not begin should not look as if it hung: after `patience` it is said who is
// waited for, then after twice as long each time.
template <class Text>
void Arrival::say_waiting(const Text& text) {
  if (steady_clock::now() < next_word_) return;
  patience_ *= 2;
  next_word_ += patience_;
  log_info("still waiting for ", text());
}

void Arrival::connect() {
  auto where_it_is = [this] {
    return concat("rank 0 at ", where_, " (", meeting_.finder->problems(), ')');
  };
  meeting_.client = meeting_.finder->find(until_, [this, &where_it_is] {
    poll();
    if (process_.local_rank == 0) say_waiting(where_it_is);
  });
  if (!meeting_.client)
    fail(Exit::kPeerLost, "rank 0 did not arrive within ", options_.deadline.count(),
         " s: no store of job ", process_.life, " at ", where_, " (", meeting_.finder->problems(),
         "); look at rank 0's log, and whether ", process_.host, " reaches it");
  client().on_wait([this](milliseconds waited) {
    if (waited > kPoll * 10) poll();
    if (late(options_.naming + kLinger)) throw StoreLost("the rendezvous store does not answer");
  });
  std::vector<std::string> zero = unpack(client().greeting());
  rank_zero_ = concat("rank 0 on ", zero.at(1));
  if (zero.at(0) != concat(process_.size))
    throw Refused(Exit::kUsage,
                  concat(name_of(process_), " is one of ", process_.size, " ranks, ", rank_zero_,
                         " one of ", zero.at(0), "; start all ranks of a job with one command"));
}

std::string Arrival::row() const {
  std::vector<std::string> row{concat(process_.size), process_.host, concat(::getpid())};
  for (const auto& [name, value] : options_.must_agree) row.insert(row.end(), {name, value});
  return pack(row);
}

std::vector<std::string> Arrival::row_keys() const {
  std::vector<std::string> keys;
  for (int rank = 0; rank < process_.size; ++rank) keys.push_back(keys_.row(rank));
  return keys;
}

// Before the arrival, since a server that looks up the name of a new client (c10d's does) may be
// deaf for some seconds, and a heart would take that for its loss.
std::unique_ptr<StoreClient> Arrival::connect_again() {
  Finder finder(client(), keys_.here());
  auto until = std::min(until_, steady_clock::now() + kConnectAgain);
  auto again = finder.find(until, [this] { poll(); });
  if (!again) throw StoreLost("no further connection to its store: " + finder.problems());
  return again;
}

void Arrival::arrive() {
  std::string found = client().compare_set(keys_.row(process_.rank), "", row());
  twin_ = found != row();
  if (twin_) throw Refused(Exit::kUsage, taken_twice(process_.rank, found, row()));
  if (client().add(keys_.arrived(), 1) == process_.size) judge();
}

// Who arrives last does it.
std::string Arrival::judge() {
  std::vector<std::string> verdict{"0"};
  std::vector<std::string> rows = client().get(row_keys());
  std::string differences = name_differences(rows);
  if (differences.empty())
    for (const std::string& row : rows) verdict.push_back(unpack(row).at(1));
  else
    verdict = {concat(static_cast<int>(Exit::kUsage)), differences};
  return decide(verdict);
}

// The first deadline that passes on any rank ends the wait, but rank 0 alone finds out who is
// missing. It asks for each rank's row; if all ranks did, the store would still be busy with their
// questions when rank 0 has lingered and leaves with it, and they would take rank 0 for lost.
std::string Arrival::await_verdict() {
  const std::string key = keys_.verdict();
  const std::string lost = concat(static_cast<int>(Exit::kPeerLost));
  for (bool told = false; !client().wait({&key, 1}, kPoll); poll()) {
    if (late() && !std::exchange(told, true)) client().set(keys_.late(), "");
    if (process_.rank != 0) {
      if (late(options_.naming)) return decide({lost, not_named()});
      continue;
    }
    if (client().has(keys_.late())) return decide({lost, not_arrived()});
    say_waiting([this] { return name_missing(); });
  }
  return client().get(key);
}

std::string Arrival::not_arrived() {
  return concat(name_missing(), " did not arrive within ", options_.deadline.count(),
                " s; look at their logs and nodes, and whether these reach ", rank_zero_);
}

std::string Arrival::not_named() const {
  return concat("not all of ", process_.size, " ranks arrived within ", options_.deadline.count(),
                " s, and ", rank_zero_, " did not say who is missing; look at its log and node");
}

void Arrival::obey(const std::string& verdict) {
  std::vector<std::string> parts = unpack(verdict);
  int code = std::stoi(parts.at(0));
  if (code != 0) throw Refused(static_cast<Exit>(code), parts.at(1));
  meeting_.hosts.assign(parts.begin() + 1, parts.end());
}

// "rank 2 on node2 of 4"
std::string Arrival::name_missing() {
  std::vector<int> missing;
  std::vector<std::string> hosts;
  for (int rank = 0; rank < process_.size; ++rank) {
    bool here = client().has(keys_.row(rank));
    hosts.push_back(here ? unpack(client().get(keys_.row(rank))).at(1) : "");
    if (!here) missing.push_back(rank);
  }
  return concat(name_ranks(missing, expected_hosts(process_, hosts)), " of ", process_.size);
}

// So that all ranks end for the same reason, and not because the store is gone.
void Arrival::tell(const Error& error) noexcept try {
  if (!meeting_.client) return;
  decide({concat(static_cast<int>(error.exit())), error.what()});
  if (!meeting_.server) {
    if (!twin_) client().set(keys_.read(process_.rank), "");
    return;
  }
  std::vector<std::string> read;
  for (int rank = 1; rank < process_.size; ++rank) read.push_back(keys_.read(rank));
  client().wait(read, kLinger);
} catch (const std::exception&) {}  // the store is gone; the error at hand is told by the caller

std::vector<Address> Arrival::ports(const std::string& host, int count) const {
  std::vector<Address> addresses;
  for (int port = process_.rendezvous_port; count-- > 0 && port < 65536; ++port)
    addresses.push_back({host, port});
  return addresses;
}

// Rank 0's text through PMIx; nothing where the ranks can find each other without it.
std::optional<std::string> Arrival::share(const std::string& mine) {
  bool derivable = process_.rendezvous_port != 0 && !process_.rendezvous_host.empty();
  if (!process_.pmix && derivable) return std::nullopt;
  try {
    auto left = std::chrono::duration_cast<seconds>(until_ - steady_clock::now());
    return mpi_plugin(options_.mpi_plugin).share(mine, std::max(left, seconds(1)));
  } catch (const Error& e) {
    if (!derivable)
      fail(e.exit(), "nothing tells where rank 0 listens: ", e.what(),
           "; or set NEOX_MASTER=HOST:PORT on all ranks");
    if (process_.rank == 0)
      log_info("PMIx is not used, ranks meet at ", process_.rendezvous_host, ": ", e.what());
    return std::nullopt;
  }
}

}  // namespace

Meeting meet(const ProcessInfo& process, const JoinOptions& options) {
  return Arrival(process, options).run();
}

}  // namespace neox
