// Small messages between the ranks of a job, apart from training's communicators: deciding together
// that a checkpoint is whole, comparing configs, telling who is missing.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace neox {

class Control {
 public:
  virtual ~Control() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Collective: every rank's text (any bytes), by rank. Throws naming the ranks that did not arrive
  // within the deadline.
  virtual std::vector<std::string> gather(const std::string& mine,
                                          std::chrono::seconds deadline) = 0;
  std::vector<std::string> gather(const std::string& mine) {
    return gather(mine, std::chrono::seconds(600));
  }
  // Collective: every rank's text for rank 0 alone; the others get as many texts, which are of no
  // use. For what would be too much to send to all ranks. Those that idle may call gather()
  // instead.
  virtual std::vector<std::string> gather_to_first(const std::string& mine,
                                                   std::chrono::seconds deadline) {
    return gather(mine, deadline);
  }
  void barrier() { gather(""); }
  // Collective over ranks 0 to size - 1, in the same order of calls on all. A Control of those for
  // another thread, which is in the way of neither this one nor its other channels.
  virtual std::unique_ptr<Control> channel(const std::string& name, int size) = 0;
};

// A job of one rank.
class AloneControl : public Control {
 public:
  using Control::gather;
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> gather(const std::string& mine, std::chrono::seconds) override {
    return {mine};
  }
  std::unique_ptr<Control> channel(const std::string&, int) override {
    return std::make_unique<AloneControl>();
  }
};

}  // namespace neox
