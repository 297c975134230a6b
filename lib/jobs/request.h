// The command line of neox-submit.
#pragma once
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "base/program.h"
#include "jobs/job.h"
#include "jobs/profile.h"
#include "launch/environment.h"

namespace neox {

struct SubmitRequest {
  enum class Action { kPrint, kWrite, kSubmit, kLayouts };
  Action action = Action::kPrint;
  std::filesystem::path directory;  // of kWrite
  std::vector<SlurmJob> jobs;       // in their order
  Profile profile;
  std::vector<std::string> notes;
  std::string table;  // of kLayouts
};

// A command line, parted at "--": what follows goes to sbatch.
struct CommandLine {
  std::vector<std::string> own, sbatch;
};
CommandLine part_at_dashes(const std::vector<std::string>& arguments);

// Where the program lies and what surrounds it.
struct Surroundings {
  Environment environment;
  std::filesystem::path programs;  // the directory of neox-submit
};

Program submit_program();

// Loads the profile and, where they are given, the configurations, and checks the training job
// against what it asks for. Throws Error (64).
SubmitRequest read_submit_request(const Program& program, const std::vector<std::string>& sbatch,
                                  const Surroundings& surroundings);

// Prints the scripts or the table to `out`, writes them, or submits them.
void carry_out(const SubmitRequest& request, std::ostream& out);

}  // namespace neox
