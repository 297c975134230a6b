// MPI of this process. It is initialised once and called by one thread at a time; groups are lists
// of ranks that share a tag, so none of MPI's collectives is needed. Every wait has a deadline and
// ends at an abort. Ranks that wait answer each other's question "where are you?", so that an
// operation that is late can name the ranks that did not arrive.
#pragma once
#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "comm/mpi_plugin.h"

namespace neox::mpi {

// What the ranks of a communicator agree on, and how far this rank is in it.
struct Group {
  std::string name;
  std::vector<int> ranks;  // of the world, by rank in the group
  int rank = 0;            // in the group
  int tag = 0;        // no other group of one of these ranks has it; even, the next is ours too
  int64_t calls = 0;  // operations started; the session's mutex guards it
};

struct Call {
  Group* group;
  const char* operation;
  int64_t numel;
  at::ScalarType type;
  bool collective = true;  // all ranks of the group take part
  int64_t number = 0;      // in the group; the session sets it
};

// "all_reduce sum of 7 x Float in group world"
std::ostream& operator<<(std::ostream& out, const Call& call);

// Sends and receives that were started and not yet waited for. Their memory must live until then;
// after an error, for ever.
class Transfers {
 public:
  bool empty() const { return requests_.empty(); }

 private:
  friend class Session;
  struct Entry {
    bool send;
    int peer;
    int64_t bytes;
  };
  std::vector<MPI_Request> requests_;
  std::vector<Entry> entries_;  // by request
  std::vector<int> ended_;      // scratch of MPI_Testsome
  std::vector<MPI_Status> statuses_;
};

class Session {
 public:
  // Collective at the first call, where it initialises MPI.
  static std::shared_ptr<Session> get(const MpiOptions& options);
  ~Session();
  int rank() const { return rank_; }
  int size() const { return size_; }
  // The tag that a new group of this rank may have; the group takes the largest of its ranks' tags.
  // Groups are made by one thread at a time.
  int next_tag() const { return next_tag_; }
  void took_tag(int tag);
  const MpiOptions& options() const { return options_; }

  // Which ranks of the world share a node and may read each other's memory: one number for each
  // node, -1 for a rank that may not. And the process of each rank.
  struct Neighbours {
    std::vector<int> node, pid;
  };
  const Neighbours& neighbours() const { return neighbours_; }
  void meet_neighbours(Neighbours neighbours);

  void add(Group* group);
  void remove(Group* group);
  void start(Call& call);  // numbers it

  enum class Mode { kBuffered, kUntilReceived };
  // Peers are ranks of the world.
  void send(Transfers& transfers, const void* data, int64_t bytes, int peer, int tag,
            Mode mode = Mode::kBuffered);
  void receive(Transfers& transfers, void* data, int64_t bytes, int peer, int tag);
  // Where it throws, the transfers may still be on their way: abort() must follow.
  void wait(Transfers& transfers, const Call& call);

  // Of operations, by the one thread that calls them.
  void spent(std::chrono::duration<double> time) { spent_ += time; }
  double seconds_spent() const { return spent_.count(); }

  // Any thread; calls no MPI.
  void abort(const std::string& reason);

 private:
  struct Note {  // from rank to rank, of one size
    enum Kind : int32_t { kAsk, kAnswer, kAbort } kind;
    int32_t tag;
    int64_t calls;
    std::array<char, 1008> text;
  };
  struct Sent {
    std::unique_ptr<Note> note;
    MPI_Request request;
  };

  explicit Session(const MpiOptions& options);
  MPI_Comm copy_of_world();
  void check_alive() const;
  bool test(Transfers& transfers, const Call& call, bool* moved);
  void wait_long(Transfers& transfers, const Call& call);
  void give_up(Transfers& transfers, const Call& call);
  std::string missing(const Call& call);
  static std::string without_peer(const Transfers& transfers, const Call& call);
  void post_inbox();
  void serve();
  void answer(int peer, int tag);
  void post_note(int peer, Note::Kind kind, int tag, int64_t calls, const std::string& text);
  bool notes_sent();
  void tell_all(const std::string& reason);

  MpiOptions options_;
  int rank_ = 0, size_ = 1, next_tag_ = 2, max_tag_ = 0;
  Neighbours neighbours_;
  std::chrono::duration<double> spent_{0};
  std::chrono::microseconds spin_{5};  // of a wait, before it yields the core
  MPI_Comm data_ = MPI_COMM_NULL, notes_ = MPI_COMM_NULL;

  std::mutex mutex_;  // MPI, and all below
  std::vector<const Group*> groups_;
  std::vector<const Call*> waiting_;  // for long
  Note inbox_;
  MPI_Request inbox_request_ = MPI_REQUEST_NULL;
  std::deque<Sent> outbox_;
  std::map<std::pair<int, int>, Note> answers_;  // by tag and rank, to the last question

  std::atomic<bool> aborted_ = false;
  mutable std::mutex reason_mutex_;
  std::string reason_;
};

}  // namespace neox::mpi
