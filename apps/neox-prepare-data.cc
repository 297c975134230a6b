// neox-prepare-data: text, JSON lines and corpora by name to tokenized datasets.
#include <iostream>

#include "base/log.h"
#include "base/memory.h"
#include "base/program.h"
#include "base/text.h"
#include "base/version.h"
#include "corpus/corpus.h"
#include "launch/cpu.h"
#include "launch/front.h"
#include "prepare/interrupt.h"
#include "rendezvous/alone.h"

namespace {

using namespace neox;

void prepare(const Program& program, const ProcessInfo& process, Control& control) {
  Environment env = environment();
  CorpusOptions corpus = read_corpus_options(program, env["DATA_DIR"]);
  PrepareDefaults defaults = corpus.name.empty() ? PrepareDefaults() : corpus_defaults(corpus);
  env.erase("OMP_NUM_THREADS");  // our threads are not OpenMP's
  defaults.workers = cpu_share(env, cpu_counts(), process).threads;
  PrepareOptions options = read_prepare_options(program, defaults);
  options.life = process.life;
  if (!corpus.name.empty()) fetch_corpus(corpus, options, control);
  if (!corpus.name.empty() && corpus.until == CorpusOptions::Until::kFetched) return;
  PrepareResult result = prepare_data(options, control);
  pass_over_interrupts();  // to ask for the job again would do all of it again
  if (control.rank() == 0) std::cout << summary(options, result);
}

// A rank that is lost is found where the others wait for it; one that cannot leave its work then is
// ended.
void prepare_in_job(const Program& program, const ProcessInfo& process,
                    const std::vector<std::pair<std::string, std::string>>& must_agree) {
  static const std::atomic<int> no_signal = 0;
  set_log_rank(process.rank, process.size);
  std::unique_ptr<Job> job;
  if constexpr (kFront) {
    job = process.size == 1 ? job_of_one(process) : (become_whole_program(), nullptr);
  } else {
    JoinOptions options = join_options(environment());
    options.must_agree = must_agree;
    job = join(process, options);
  }
  job->watch([](const std::string&) {}, no_signal, std::chrono::seconds(20));
  try {
    prepare(program, process, job->control());
  } catch (const Error& e) {
    job->failed(e.what(), e.exit());
    if (process.size == 1) throw;
    fail(e.exit(), "rank ", process.rank, " on ", process.host, ": ", e.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  share_freed_memory();  // blocks go from the reader to the workers and the writer
  return run_program("neox-prepare-data", [&] {
    std::vector<std::string> arguments = canonical_arguments({argv, argv + argc});
    Program program = prepare_program();
    add_corpus_options(program);
    if (!program.parse({arguments.begin() + 1, arguments.end()})) return 0;
    if (program.has("list")) return std::cout << table_of_corpora(program), 0;
    if (program.has("check")) {
      CorpusCheck check = check_corpora(program);
      std::cout << check.text;
      return static_cast<int>(check.exit);
    }
    end_when_interrupted();
    prepare_in_job(program, process_info(environment(), host_name()),
                   {{"the version of neox-prepare-data", kVersion},
                    {"the command line", join(arguments, " ")}});
    return 0;
  });
}
