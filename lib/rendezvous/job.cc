#include "rendezvous/job.h"

#include <exception>

#include "base/error.h"
#include "rendezvous/alone.h"
#include "rendezvous/heart.h"
#include "rendezvous/meet.h"
#include "rendezvous/store_control.h"

namespace neox {
namespace {

class StoreJob : public Job {
 public:
  StoreJob(const ProcessInfo& process, const JoinOptions& options, Meeting meeting)
      : process_(process),
        meeting_(std::move(meeting)),
        heart_(process, meeting_.hosts, {options.heartbeat, options.silence, options.answer},
               std::move(meeting_.heart_client)),
        control_(process_, meeting_.hosts, heart_, *meeting_.client,
                 std::move(meeting_.channel_client)) {}
  ~StoreJob() override {
    if (std::uncaught_exceptions() > exceptions_)
      failed("it ended by an error of its own", Exit::kInternal);
  }
  const ProcessInfo& process() const override { return process_; }
  Control& control() override { return control_; }
  const std::vector<std::string>& hosts() const override { return meeting_.hosts; }
  void watch(std::function<void(const std::string&)> lost, const std::atomic<int>& signal,
             std::chrono::seconds grace) override {
    heart_.watch(std::move(lost), signal, grace);
  }
  void failed(const std::string& reason, Exit exit) noexcept override {
    heart_.failed(reason, exit);
  }
  void tell(const std::string& text) override { heart_.tell(text); }
  std::vector<std::string> told() const override { return heart_.told(); }
  void check_all_alive() const override { heart_.check_all_alive(); }

 private:
  const int exceptions_ = std::uncaught_exceptions();
  ProcessInfo process_;
  Meeting meeting_;  // the server ends last
  Heart heart_;
  StoreControl control_;
};

}  // namespace

JoinOptions join_options(const Environment& env) {
  constexpr int kMost = 24 * 3600;
  auto seconds = [&](const char* name, auto& limit) {
    if (!variable(env, name).empty())
      limit = std::chrono::seconds(number_variable(env, name, 1, kMost));
  };
  JoinOptions options;
  seconds("NEOX_ARRIVAL_SECONDS", options.deadline);
  seconds("NEOX_SILENCE_SECONDS", options.silence);
  options.mpi_plugin = variable(env, "NEOX_MPI_PLUGIN");
  return options;
}

std::unique_ptr<Job> join(const ProcessInfo& process, const JoinOptions& options) {
  if (process.size == 1) return job_of_one(process);
  return std::make_unique<StoreJob>(process, options, meet(process, options));
}

}  // namespace neox
