#include "rendezvous/alone.h"

namespace neox {
namespace {

class AloneJob : public Job {
 public:
  explicit AloneJob(const ProcessInfo& process) : process_(process), hosts_{process.host} {}
  const ProcessInfo& process() const override { return process_; }
  Control& control() override { return control_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  void watch(std::function<void(const std::string&)>, const std::atomic<int>&,
             std::chrono::seconds) override {}
  void failed(const std::string&, Exit) noexcept override {}
  void tell(const std::string& text) override { text_ = text; }
  std::vector<std::string> told() const override { return {text_}; }
  void check_all_alive() const override {}

 private:
  ProcessInfo process_;
  std::vector<std::string> hosts_;
  std::string text_;
  AloneControl control_;
};

}  // namespace

std::unique_ptr<Job> job_of_one(const ProcessInfo& process) {
  return std::make_unique<AloneJob>(process);
}

}  // namespace neox
