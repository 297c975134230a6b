#include "comm/mpi/session.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/mpi/check_mpi.h"

namespace neox::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kLong{100};  // a wait that takes so long looks at notes too

// Answers at once where the other side is about to arrive, and leaves the core to others where it
// is not.
class Backoff {
 public:
  explicit Backoff(Clock::duration spin = microseconds(20)) : spin_(spin) {}
  // As of the last pause. Of a stop of this process (SIGSTOP), which is no rank's delay, it has no
  // more than kLong.
  Clock::duration waited() const { return waited_; }
  void pause() {
    auto now = Clock::now();
    waited_ += std::min<Clock::duration>(now - std::exchange(looked_, now), kLong);
    if (waited_ < spin_) return;
    if (waited_ < milliseconds(1))
      ::sched_yield();
    else
      std::this_thread::sleep_for(waited_ < milliseconds(50) ? microseconds(20) : milliseconds(1));
  }
  void restart() { *this = Backoff(spin_); }

 private:
  Clock::duration spin_, waited_{0};
  Clock::time_point looked_ = Clock::now();
};

// Waits for one request of MPI's; false at the deadline.
bool wait_for(MPI_Request* request, std::chrono::seconds deadline) {
  Backoff backoff;
  int done = 0;
  while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
    if (backoff.waited() >= deadline) return false;
    backoff.pause();
  }
  return done;
}

void init_mpi() {
  int was_finalized = 0, was_initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Finalized(&was_finalized);
  check(!was_finalized, "MPI has ended in this process and cannot be started again");
  MPI_Initialized(&was_initialized);
  if (was_initialized)
    MPI_Query_thread(&level);
  else
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  check_usage(level >= MPI_THREAD_SERIALIZED,
              "this MPI can only be called by the main thread (MPI_THREAD_SERIALIZED is needed): "
              "use one that was built with support for threads");
}

std::string rank_name(int rank) { return concat("rank ", rank); }

}  // namespace

std::ostream& operator<<(std::ostream& out, const Call& call) {
  out << call.operation;
  if (call.collective && call.numel >= 0) out << " of " << call.numel << " x " << call.type;
  return out << " in group " << call.group->name;
}

std::shared_ptr<Session> Session::get(const MpiOptions& options) {
  static std::mutex mutex;
  static std::weak_ptr<Session> current;
  std::lock_guard lock(mutex);
  std::shared_ptr<Session> session = current.lock();
  if (!session) current = session = std::shared_ptr<Session>(new Session(options));
  return session;
}

Session::Session(const MpiOptions& options) : options_(options) {
  init_mpi();
  // From MPI 4.0 on errors that belong to no communicator are raised on MPI_COMM_SELF.
  for (MPI_Comm each : {MPI_COMM_WORLD, MPI_COMM_SELF})
    MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  data_ = copy_of_world();
  notes_ = copy_of_world();
  int* bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(data_, MPI_TAG_UB, &bound, &found);
  max_tag_ = found ? *bound : 32767;
  post_inbox();
}

MPI_Comm Session::copy_of_world() {
  MPI_Comm copy;
  MPI_Request request;
  check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request), "MPI_Comm_idup");
  if (!wait_for(&request, options_.deadline))
    fail(Exit::kPeerLost, "MPI's world of ", size_, " ranks did not form within ",
         options_.deadline.count(),
         " s: has each rank started, and does Open MPI take the right network "
         "(OMPI_MCA_btl_tcp_if_include)?");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

Session::~Session() {
  // MPI_Finalize waits for all ranks: not where this one leaves because of an error.
  if (aborted_ || std::uncaught_exceptions() > 0) return;
  MPI_Request barrier;
  if (MPI_Ibarrier(notes_, &barrier) != MPI_SUCCESS || !wait_for(&barrier, options_.deadline))
    return;
  MPI_Cancel(&inbox_request_);
  MPI_Wait(&inbox_request_, MPI_STATUS_IGNORE);
  notes_sent();
  MPI_Finalize();
}

void Session::meet_neighbours(Neighbours neighbours) {
  neighbours_ = std::move(neighbours);
  auto here = std::count(neighbours_.node.begin(), neighbours_.node.end(),
                         neighbours_.node[static_cast<size_t>(rank_)]);
  // A core of its own: to yield it to other programs would cost their time slice.
  if (here <= std::thread::hardware_concurrency()) spin_ = microseconds(500);
}

void Session::add(Group* group) {
  std::lock_guard lock(mutex_);
  groups_.push_back(group);
}

void Session::remove(Group* group) {
  std::lock_guard lock(mutex_);
  std::erase(groups_, group);
}

void Session::took_tag(int tag) {
  check(tag + 2 < max_tag_, "MPI allows tags up to ", max_tag_, ": too many groups were made");
  next_tag_ = tag + 2;
}

void Session::start(Call& call) {
  check_alive();
  std::lock_guard lock(mutex_);
  call.number = ++call.group->calls;
}

void Session::send(Transfers& transfers, const void* data, int64_t bytes, int peer, int tag,
                   Mode mode) {
  auto start_send = mode == Mode::kBuffered ? MPI_Isend : MPI_Issend;
  const char* from = static_cast<const char*>(data);
  std::lock_guard lock(mutex_);
  for (int64_t done = 0; done < bytes; done += options_.message_bytes) {
    int64_t part = std::min(options_.message_bytes, bytes - done);
    MPI_Request request;
    check_mpi(start_send(from + done, static_cast<int>(part), MPI_BYTE, peer, tag, data_, &request),
              "MPI: send of ", part, " bytes to rank ", peer);
    transfers.requests_.push_back(request);
    transfers.entries_.push_back({true, peer, part});
  }
}

void Session::receive(Transfers& transfers, void* data, int64_t bytes, int peer, int tag) {
  char* to = static_cast<char*>(data);
  std::lock_guard lock(mutex_);
  for (int64_t done = 0; done < bytes; done += options_.message_bytes) {
    int64_t part = std::min(options_.message_bytes, bytes - done);
    MPI_Request request;
    check_mpi(MPI_Irecv(to + done, static_cast<int>(part), MPI_BYTE, peer, tag, data_, &request),
              "MPI: receive of ", part, " bytes from rank ", peer);
    transfers.requests_.push_back(request);
    transfers.entries_.push_back({false, peer, part});
  }
}

bool Session::test(Transfers& transfers, const Call& call, bool* moved) {
  int count = static_cast<int>(transfers.requests_.size()), done = 0;
  if (count == 0) return true;
  transfers.ended_.resize(transfers.requests_.size());
  transfers.statuses_.resize(transfers.requests_.size());
  std::lock_guard lock(mutex_);
  int code = MPI_Testsome(count, transfers.requests_.data(), &done, transfers.ended_.data(),
                          transfers.statuses_.data());
  if (code != MPI_ERR_IN_STATUS) check_mpi(code, call, ": MPI_Testsome");
  if (done == MPI_UNDEFINED) return true;  // all were done before
  *moved = *moved || done > 0;
  for (int i = 0; i < done; ++i) {
    auto at = static_cast<size_t>(i);
    const auto& entry = transfers.entries_[static_cast<size_t>(transfers.ended_[at])];
    const MPI_Status& status = transfers.statuses_[at];
    if (code == MPI_ERR_IN_STATUS)
      check_mpi(status.MPI_ERROR, call, ": ", entry.send ? "send of " : "receive of ", entry.bytes,
                " bytes, peer rank ", entry.peer);
    int bytes = 0;
    if (!entry.send) MPI_Get_count(&status, MPI_BYTE, &bytes);
    check(entry.send || bytes == entry.bytes, call, ": rank ", entry.peer, " sent ", bytes,
          " bytes, rank ", rank_, " expects ", entry.bytes);
  }
  return std::all_of(transfers.requests_.begin(), transfers.requests_.end(),
                     [](MPI_Request r) { return r == MPI_REQUEST_NULL; });
}

void Session::wait(Transfers& transfers, const Call& call) {
  Backoff backoff(spin_);
  bool moved = false;
  for (int polls = 1; !test(transfers, call, &moved); ++polls) {
    check_alive();
    if (polls % 16 != 0) continue;  // reading the clock takes as long as asking MPI
    if (moved) backoff.restart();
    moved = false;
    backoff.pause();
    if (backoff.waited() < kLong) continue;
    wait_long(transfers, call);
    break;
  }
  transfers.requests_.clear();
  transfers.entries_.clear();
}

void Session::wait_long(Transfers& transfers, const Call& call) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(&call);
  }
  struct Leave {
    Session* session;
    const Call* call;
    ~Leave() {
      std::lock_guard lock(session->mutex_);
      std::erase(session->waiting_, call);
    }
  } leave{this, &call};
  Backoff backoff;
  bool moved = false;
  while (!test(transfers, call, &moved)) {
    check_alive();
    serve();
    if (moved) backoff.restart();
    moved = false;
    backoff.pause();
    if (backoff.waited() + kLong >= options_.deadline) return give_up(transfers, call);
  }
}

// Returns where the transfers end after all.
void Session::give_up(Transfers& transfers, const Call& call) {
  std::string reason;
  if (!call.collective) {
    reason = without_peer(transfers, call);
  } else {
    {
      std::lock_guard lock(mutex_);
      std::erase_if(answers_, [&](const auto& a) { return a.first.first == call.group->tag; });
    }
    for (int peer : call.group->ranks)
      if (peer != rank_) post_note(peer, Note::kAsk, call.group->tag, 0, "");
    Backoff asked;
    auto patience = std::min<Clock::duration>(std::chrono::seconds(1), options_.deadline);
    while (asked.waited() < patience) {
      bool moved = false;
      if (test(transfers, call, &moved)) return;
      serve();
      check_alive();
      asked.pause();
    }
    reason = missing(call);
  }
  tell_all(reason);
  abort(reason);
  check_alive();
}

std::string Session::missing(const Call& call) {
  std::lock_guard lock(mutex_);
  std::string late;
  for (int peer : call.group->ranks) {
    auto answer = answers_.find({call.group->tag, peer});
    if (peer == rank_ || (answer != answers_.end() && answer->second.calls >= call.number))
      continue;
    late += (late.empty() ? "" : ", ") + rank_name(peer);
    if (answer != answers_.end()) late += concat(" (in ", answer->second.text.data(), ")");
  }
  if (late.empty())
    return concat(call, ": all ranks arrived, but nothing moved for ", options_.deadline.count(),
                  " s; is the network up?");
  return concat(call, ": ", late, " did not arrive within ", options_.deadline.count(), " s");
}

std::string Session::without_peer(const Transfers& transfers, const Call& call) {
  std::string text;
  for (size_t i = 0; i < transfers.entries_.size(); ++i) {
    const auto& entry = transfers.entries_[i];
    if (transfers.requests_[i] == MPI_REQUEST_NULL) continue;
    text += concat(text.empty() ? "" : ", ", entry.send ? "send to " : "receive from ", entry.peer,
                   " (", entry.bytes, " bytes)");
  }
  return concat(call, ": no peer for rank ",
                call.group->ranks[static_cast<size_t>(call.group->rank)], "'s ", text);
}

void Session::check_alive() const {
  if (!aborted_) return;
  std::lock_guard lock(reason_mutex_);
  fail(Exit::kPeerLost, reason_);
}

void Session::abort(const std::string& reason) {
  std::lock_guard lock(reason_mutex_);
  if (reason_.empty()) reason_ = reason.empty() ? "aborted" : reason;
  aborted_ = true;
}

}  // namespace neox::mpi
