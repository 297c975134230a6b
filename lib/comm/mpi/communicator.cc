// Communicator over MPI. Ranks send each other what they need directly, and every rank sums in the
// order of the ranks (comm/reduce.h): the bits do not depend on the algorithms of an MPI, on their
// tuning, or on how a tensor is cut into messages.
#include "comm/mpi/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "comm/mpi/peer_memory.h"
#include "comm/mpi/session.h"
#include "comm/reduce.h"

namespace neox::mpi {
namespace {

constexpr int64_t kSmallBytes = 32 << 10;  // sent whole to all others, which saves a round

std::byte* bytes(const Tensor& t) { return static_cast<std::byte*>(t.data_ptr()); }

// A tensor cut for n ranks: rank r's part is [begin(r), begin(r + 1)).
struct Cut {
  int64_t numel, part;
  Cut(int64_t count, int64_t n) : numel(count), part((count + n - 1) / n) {}
  int64_t begin(int64_t r) const { return std::min(numel, r * part); }
  int64_t size(int64_t r) const { return begin(r + 1) - begin(r); }
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<Session> session, Group group)
      : session_(std::move(session)), group_(std::move(group)) {
    one_node_ = find_one_node();
    session_->add(&group_);
  }
  // Collective, in the first communicator: finds out who can read whose memory.
  void find_neighbours();
  ~MpiCommunicator() override { session_->remove(&group_); }
  int rank() const override { return group_.rank; }
  int size() const override { return static_cast<int>(group_.ranks.size()); }

  void all_reduce(Tensor& t, Op op) override {
    const char* name = op == Op::kSum ? "all_reduce sum" : "all_reduce max";
    run({&group_, name, t.numel(), t.scalar_type()}, {t}, [&](const Call& call) {
      if (t.nbytes() <= static_cast<size_t>(kSmallBytes))
        all_reduce_small(t, op, call);
      else if (direct(nbytes(t)))
        all_reduce_direct(t, op, call);
      else
        all_reduce_large(t, op, call);
    });
  }

  void reduce_scatter(const Tensor& full, Tensor& mine) override {
    check(full.numel() == mine.numel() * size(), "reduce_scatter: ", full.numel(),
          " elements are not ", size(), " chunks of ", mine.numel());
    run({&group_, "reduce_scatter", full.numel(), full.scalar_type()}, {full, mine},
        [&](const Call& call) {
          if (direct(nbytes(full)))
            reduce_scatter_direct(full, mine, call);
          else
            reduce_pieces(full, mine, call);
        });
  }

  void all_gather(const Tensor& mine, Tensor& full) override {
    check(full.numel() == mine.numel() * size(), "all_gather: ", full.numel(), " elements are not ",
          size(), " chunks of ", mine.numel());
    run({&group_, "all_gather", mine.numel(), mine.scalar_type()}, {mine, full},
        [&](const Call& call) {
          if (direct(nbytes(full)))
            all_gather_direct(mine, full, call);
          else
            gather_bytes(bytes(mine), bytes(full), nbytes(mine), call);
        });
  }

  void broadcast(Tensor& t, int root) override {
    check(root >= 0 && root < size(), "broadcast from rank ", root, " of ", size());
    run({&group_, "broadcast", t.numel(), t.scalar_type()}, {t}, [&](const Call& call) {
      if (direct(nbytes(t))) return broadcast_direct(t, root, call);
      // To many ranks, or of much, the root sends each a part only, which they then hand around.
      if (size() > 2 && nbytes(t) > kSmallBytes)
        return broadcast_parts(bytes(t), nbytes(t), root, call);
      if (rank() == root)
        for_others([&](int r) { send(0, bytes(t), nbytes(t), r); });
      else
        receive(0, bytes(t), nbytes(t), root);
      session_->wait(transfers_[0], call);
    });
  }

  void exchange(std::span<Transfer> transfers) override {
    if (transfers.empty()) return;
    std::vector<Tensor> tensors;
    for (const Transfer& transfer : transfers) tensors.push_back(transfer.tensor);
    run({&group_, "exchange", 0, at::kByte, false}, tensors, [&](const Call& call) {
      for (const Transfer& transfer : transfers) {
        check(transfer.peer >= 0 && transfer.peer < size() && transfer.peer != rank(),
              "exchange in group ", group_.name, ": rank ", rank(), " has no peer ", transfer.peer);
        int peer = group_.ranks[static_cast<size_t>(transfer.peer)];
        // A send waits for its receive, also where it would fit into a buffer on the way.
        if (transfer.kind == Transfer::kSend)
          session_->send(transfers_[0], bytes(transfer.tensor), nbytes(transfer.tensor), peer,
                         group_.tag + 1, Session::Mode::kUntilReceived);
        else
          session_->receive(transfers_[0], bytes(transfer.tensor), nbytes(transfer.tensor), peer,
                            group_.tag + 1);
      }
      session_->wait(transfers_[0], call);
    });
  }

  std::unique_ptr<Communicator> split(int color, const std::string& name) override {
    struct Bid {
      int color, tag;
    };
    Bid mine{color, next_tag()};
    std::vector<Bid> bids(static_cast<size_t>(size()));
    std::string operation = "split " + name;
    run({&group_, operation.c_str(), -1, at::kByte}, {}, [&](const Call& call) {
      gather_bytes(reinterpret_cast<std::byte*>(&mine), reinterpret_cast<std::byte*>(bids.data()),
                   sizeof(Bid), call);
    });
    Group group{name, {}, 0, 0};
    for (int r = 0; r < size(); ++r) {
      const Bid& bid = bids[static_cast<size_t>(r)];
      group.tag = std::max(group.tag, bid.tag);
      if (bid.color != color) continue;
      group.rank += r < rank();
      group.ranks.push_back(group_.ranks[static_cast<size_t>(r)]);
    }
    session_->took_tag(group.tag);
    return std::make_unique<MpiCommunicator>(session_, std::move(group));
  }

  double seconds_spent() const override { return session_->seconds_spent(); }
  void abort(const std::string& reason) override { session_->abort(reason); }

 private:
  const MpiOptions& options() const { return session_->options(); }
  int next_tag() const { return session_->next_tag(); }
  static int64_t nbytes(const Tensor& t) { return static_cast<int64_t>(t.nbytes()); }

  // An error ends the session: messages of this operation may still be on their way, and MPI may
  // still write to what was being received, so the memory then lives for ever.
  template <class Body>
  void run(Call call, const std::vector<Tensor>& tensors, const Body& body) {
    for (const Tensor& t : tensors)
      check(t.is_cpu() && t.is_contiguous(), call.operation, " in group ", group_.name,
            ": MPI takes contiguous tensors of the host, this one is on ", t.device().str());
    auto begin = std::chrono::steady_clock::now();
    session_->start(call);
    try {
      body(call);
    } catch (const std::exception& e) {
      session_->abort(e.what());
      new std::vector<Tensor>(tensors);
      for (auto& staging : staging_) new std::vector<std::byte>(std::move(staging));
      throw;
    }
    session_->spent(std::chrono::steady_clock::now() - begin);
  }

  void send(size_t slot, const std::byte* from, int64_t n, int peer) {
    session_->send(transfers_[slot], from, n, group_.ranks[static_cast<size_t>(peer)], group_.tag);
  }
  void receive(size_t slot, std::byte* to, int64_t n, int peer) {
    session_->receive(transfers_[slot], to, n, group_.ranks[static_cast<size_t>(peer)], group_.tag);
  }

  // The others in an order that differs from rank to rank, so that not all begin with the same.
  template <class Body>
  void for_others(const Body& body) const {
    for (int i = 1; i < size(); ++i) body((rank() + i) % size());
  }

  // Starts: others' parts of mine to them, my part of theirs to the staging area of this slot.
  template <class Begin, class Bytes>
  void collect(size_t slot, int64_t my_bytes, const Begin& begin, const Bytes& bytes_of) {
    staging_[slot].resize(std::max(staging_[slot].size(), static_cast<size_t>(my_bytes * size())));
    for_others([&](int r) { receive(slot, staging(slot, r, my_bytes), my_bytes, r); });
    for_others([&](int r) { send(slot, begin(r), bytes_of(r), r); });
  }
  std::byte* staging(size_t slot, int r, int64_t stride) {
    return staging_[slot].data() + r * stride;
  }

  void combine(Op op, at::ScalarType type, size_t slot, const std::byte* mine, std::byte* to,
               int64_t numel, int64_t stride) {
    std::vector<const void*> from;
    for (int r = 0; r < size(); ++r) from.push_back(r == rank() ? mine : staging(slot, r, stride));
    void* out = to;
    reduce_ranks(op, type, from, {&out, 1}, numel);
  }

  void all_reduce_small(Tensor& t, Op op, const Call& call) {
    int64_t n = nbytes(t);
    collect(
        0, n, [&](int) { return bytes(t); }, [&](int) { return n; });
    session_->wait(transfers_[0], call);
    combine(op, t.scalar_type(), 0, bytes(t), bytes(t), t.numel(), n);
  }

  // In pieces, so that the sums find in the cache what has just arrived: a piece is collected while
  // the one before is handed out.
  void all_reduce_large(Tensor& t, Op op, const Call& call) {
    int64_t item = t.element_size(), piece = options().chunk_bytes / item * size();
    int64_t pieces = (t.numel() + piece - 1) / piece;
    auto cut = [&](int64_t i) { return Cut(std::min(piece, t.numel() - i * piece), size()); };
    auto at = [&](int64_t i, int r) { return bytes(t) + (i * piece + cut(i).begin(r)) * item; };
    auto size_of = [&](int64_t i, int r) { return cut(i).size(r) * item; };
    auto start = [&](int64_t i) {
      collect(
          static_cast<size_t>(i % 2), size_of(i, rank()), [&](int r) { return at(i, r); },
          [&](int r) { return size_of(i, r); });
    };
    start(0);
    for (int64_t i = 0; i < pieces; ++i) {
      auto slot = static_cast<size_t>(i % 2);
      if (i + 1 < pieces) start(i + 1);
      session_->wait(transfers_[slot], call);
      combine(op, t.scalar_type(), slot, at(i, rank()), at(i, rank()), cut(i).size(rank()),
              size_of(i, rank()));
      session_->wait(transfers_[2], call);
      for_others([&](int r) { receive(2, at(i, r), size_of(i, r), r); });
      for_others([&](int r) { send(2, at(i, rank()), size_of(i, rank()), r); });
    }
    session_->wait(transfers_[2], call);
  }

  void reduce_pieces(const Tensor& full, Tensor& mine, const Call& call) {
    int64_t item = full.element_size(), chunk = mine.numel(), piece = options().chunk_bytes / item;
    int64_t pieces = (chunk + piece - 1) / piece;
    auto numel = [&](int64_t i) { return std::min(piece, chunk - i * piece); };
    auto at = [&](int64_t i, int r) { return bytes(full) + (r * chunk + i * piece) * item; };
    auto start = [&](int64_t i) {
      int64_t n = numel(i) * item;
      collect(
          static_cast<size_t>(i % 2), n, [&](int r) { return at(i, r); }, [&](int) { return n; });
    };
    if (pieces > 0) start(0);
    for (int64_t i = 0; i < pieces; ++i) {
      auto slot = static_cast<size_t>(i % 2);
      if (i + 1 < pieces) start(i + 1);
      session_->wait(transfers_[slot], call);
      combine(Op::kSum, full.scalar_type(), slot, at(i, rank()), bytes(mine) + i * piece * item,
              numel(i), numel(i) * item);
    }
  }

  void broadcast_parts(std::byte* all, int64_t n, int root, const Call& call) {
    Cut cut(n, size());
    auto send_part = [&](int part, int r) { send(0, all + cut.begin(part), cut.size(part), r); };
    auto receive_part = [&](int part, int r) {
      receive(0, all + cut.begin(part), cut.size(part), r);
    };
    if (rank() == root) {
      for_others([&](int r) { send_part(r, r); });
      for_others([&](int r) { send_part(root, r); });
    } else {
      receive_part(rank(), root);
      session_->wait(transfers_[0], call);
      for_others([&](int r) { receive_part(r, r); });
      for_others([&](int r) {
        if (r != root) send_part(rank(), r);
      });
    }
    session_->wait(transfers_[0], call);
  }

  void gather_bytes(std::byte* mine, std::byte* full, int64_t n, const Call& call) {
    for_others([&](int r) { receive(0, full + r * n, n, r); });
    for_others([&](int r) { send(0, mine, n, r); });
    std::byte* own = full + rank() * n;
    if (own != mine) std::memcpy(own, mine, static_cast<size_t>(n));
    session_->wait(transfers_[0], call);
  }

  // --- ranks of one node that read each other's memory: few meetings, and one copy ---

  bool direct(int64_t n) const { return one_node_ && n >= options().direct_bytes; }

  // All ranks are here, with the address of what they bring.
  std::vector<const std::byte*> meet(const std::byte* mine, const Call& call) {
    std::vector<const std::byte*> all(static_cast<size_t>(size()));
    gather_bytes(reinterpret_cast<std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data()),
                 sizeof mine, call);
    return all;
  }
  void read(int r, const std::byte* from, std::byte* to, int64_t n) const {
    int world_rank = group_.ranks[static_cast<size_t>(r)];
    read_peer(session_->neighbours().pid[static_cast<size_t>(world_rank)], world_rank, from, to, n);
  }

  // Sums what all have at `offset`, into `to`, by blocks that stay in the cache.
  void reduce_direct(Op op, const Tensor& t, std::span<const std::byte* const> all, int64_t offset,
                     std::byte* to, int64_t n) {
    int64_t block = options().chunk_bytes / t.element_size() * t.element_size();
    staging_[0].resize(std::max(staging_[0].size(), static_cast<size_t>(block * size())));
    for (int64_t done = 0; done < n; done += block) {
      int64_t part = std::min(block, n - done), at = offset + done;
      for_others(
          [&](int r) { read(r, all[static_cast<size_t>(r)] + at, staging(0, r, block), part); });
      combine(op, t.scalar_type(), 0, bytes(t) + at, to + done, part / t.element_size(), block);
    }
  }

  void all_reduce_direct(Tensor& t, Op op, const Call& call) {
    auto all = meet(bytes(t), call);
    Cut cut(t.numel(), size());
    auto begin = [&](int r) { return cut.begin(r) * t.element_size(); };
    // Of this rank's memory the others read other parts than the one that is written here.
    reduce_direct(op, t, all, begin(rank()), bytes(t) + begin(rank()),
                  begin(rank() + 1) - begin(rank()));
    meet(nullptr, call);
    for_others([&](int r) {
      read(r, all[static_cast<size_t>(r)] + begin(r), bytes(t) + begin(r), begin(r + 1) - begin(r));
    });
    meet(nullptr, call);
  }
  void reduce_scatter_direct(const Tensor& full, Tensor& mine, const Call& call) {
    auto all = meet(bytes(full), call);
    reduce_direct(Op::kSum, full, all, rank() * nbytes(mine), bytes(mine), nbytes(mine));
    meet(nullptr, call);
  }
  void all_gather_direct(const Tensor& mine, Tensor& full, const Call& call) {
    auto all = meet(bytes(mine), call);
    int64_t n = nbytes(mine);
    for_others([&](int r) { read(r, all[static_cast<size_t>(r)], bytes(full) + r * n, n); });
    std::byte* own = bytes(full) + rank() * n;
    if (own != bytes(mine)) std::memcpy(own, bytes(mine), static_cast<size_t>(n));
    meet(nullptr, call);
  }
  void broadcast_direct(Tensor& t, int root, const Call& call) {
    auto all = meet(bytes(t), call);
    if (rank() != root) read(root, all[static_cast<size_t>(root)], bytes(t), nbytes(t));
    meet(nullptr, call);
  }

  bool find_one_node() const {
    const std::vector<int>& node = session_->neighbours().node;
    if (node.empty() || size() == 1) return false;
    auto node_of = [&](int r) { return node[static_cast<size_t>(r)]; };
    int first = node_of(group_.ranks[0]);
    return first >= 0 && std::all_of(group_.ranks.begin(), group_.ranks.end(),
                                     [&](int r) { return node_of(r) == first; });
  }

  std::shared_ptr<Session> session_;
  Group group_;
  bool one_node_ = false;
  std::vector<std::byte> staging_[2];
  Transfers transfers_[3];
};

void MpiCommunicator::find_neighbours() {
  auto gather = [&](auto mine) {
    std::vector<decltype(mine)> all(static_cast<size_t>(size()));
    run({&group_, "find_neighbours", -1, at::kByte}, {}, [&](const Call& call) {
      gather_bytes(reinterpret_cast<std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data()),
                   sizeof mine, call);
    });
    return all;
  };
  std::vector<Ticket> tickets = gather(Ticket::mine());
  std::vector<bool> readable;
  for (const Ticket& ticket : tickets) readable.push_back(ticket.is_readable());
  auto first = std::find(readable.begin(), readable.end(), true) - readable.begin();
  std::vector<int> nodes = gather(static_cast<int>(first));
  bool all_readable = true;
  for (size_t r = 0; r < nodes.size(); ++r)
    all_readable = all_readable && (nodes[r] != first || readable[r]);
  Session::Neighbours neighbours;
  neighbours.node = gather(all_readable ? static_cast<int>(first) : -1);
  for (const Ticket& ticket : tickets) neighbours.pid.push_back(ticket.pid);
  session_->meet_neighbours(std::move(neighbours));
  one_node_ = find_one_node();
}

}  // namespace

std::unique_ptr<Communicator> world(const MpiOptions& options) {
  std::shared_ptr<Session> session = Session::get(options);
  Group group{"world", {}, session->rank(), 0};
  for (int r = 0; r < session->size(); ++r) group.ranks.push_back(r);
  auto world = std::make_unique<MpiCommunicator>(session, std::move(group));
  if (session->neighbours().node.empty()) world->find_neighbours();
  return world;
}

}  // namespace neox::mpi
