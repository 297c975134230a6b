// Which ranks of a job train. A job may have more ranks than its layout fills, after a restart on
// other nodes: as many replicas as fit train, the ranks left over are idle until the run ends.
#pragma once
#include "comm/mesh.h"
#include "config/config.h"
#include "launch/control.h"

namespace neox {

// The largest layout that `ranks` ranks fill. Throws where not even one replica fits.
Layout fitting_layout(const LayoutConfig& config, int ranks);

// What slows each layer down, or empty: tp groups of ranks on several nodes. hosts: by rank.
std::string spread_groups(const Layout& layout, const std::vector<std::string>& hosts);

// Collective. Throws (64), naming the ranks, where not all of them have read what rank 0 has under
// the same path, as from disks of the nodes' own. what: "the training data".
void check_read_alike(Control& control, const std::string& what, const std::string& fingerprint);

// Control of the first `size` ranks of a job, which the others, who idle, take part in.
class TrainingControl : public Control {
 public:
  using Control::gather;
  TrainingControl(Control& job, int size) : job_(job), size_(size) {}
  int rank() const override { return job_.rank(); }
  int size() const override { return size_; }
  std::vector<std::string> gather(const std::string& mine, std::chrono::seconds deadline) override;
  std::vector<std::string> gather_to_first(const std::string& mine,
                                           std::chrono::seconds deadline) override;
  std::unique_ptr<Control> channel(const std::string& name, int size) override {
    return job_.channel(name, size);
  }
  // Collective: the ranks that idle go on.
  void release();

 private:
  Control& job_;
  int size_;
};

// What a rank left over does: it answers the gathers of the others until they release it.
void idle(Control& job);

}  // namespace neox
