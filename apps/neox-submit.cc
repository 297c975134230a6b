// neox-submit: job scripts for Slurm.
#include <iostream>

#include "base/file.h"
#include "base/log.h"
#include "jobs/request.h"

int main(int argc, char** argv) {
  using namespace neox;
  return run_program("neox-submit", [&] {
    CommandLine line = part_at_dashes({argv + 1, argv + argc});
    Program program = submit_program();
    if (!program.parse(line.own)) return 0;
    SubmitRequest request = read_submit_request(
        program, line.sbatch,
        {.environment = environment(), .programs = program_file().parent_path()});
    for (const std::string& note : request.notes) log_info("note: ", note);
    carry_out(request, std::cout);
    return 0;
  });
}
