// An ordered set of ranks with a handful of operations on tensors. A group of one is a real group
// whose operations are the identity, so no model, optimizer or trainer asks whether it is
// distributed.
//
// Collective: every rank of the group calls the same operations in the same order, from one thread
// at a time. Tensors are contiguous, of equal type and size on all ranks. Results are bitwise equal
// on all ranks. Errors and time-outs throw on every rank that waits, naming the operation, the
// group and the ranks that did not arrive.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>

namespace neox {

using at::Tensor;

class Communicator {
 public:
  enum class Op { kSum, kMax };
  struct Transfer {
    enum Kind { kSend, kReceive } kind;
    int peer;
    Tensor tensor;  // receives are written in place
  };

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void all_reduce(Tensor& t, Op op = Op::kSum) = 0;
  // full is size() chunks of mine's size; mine may be this rank's own chunk of it.
  virtual void reduce_scatter(const Tensor& full, Tensor& mine) = 0;
  virtual void all_gather(const Tensor& mine, Tensor& full) = 0;
  virtual void broadcast(Tensor& t, int root) = 0;
  // A group of sends and receives that happen together. Only the peers named take part; between two
  // ranks transfers match in order.
  virtual void exchange(std::span<Transfer> transfers) = 0;
  // Collective. The ranks that give the same color form a group, in the order of their ranks here.
  // The name is for messages.
  virtual std::unique_ptr<Communicator> split(int color, const std::string& name) = 0;
  // Seconds that this rank has spent in operations of all groups of the job, where they end before
  // they return, most of it waiting for other ranks; where they go on without the host: 0.
  virtual double seconds_spent() const { return 0; }
  // Any thread. Wakes every waiter of every communicator of the job, which then throws `reason`.
  virtual void abort(const std::string& reason) = 0;
};

// The group of one.
std::unique_ptr<Communicator> self_communicator();

}  // namespace neox
