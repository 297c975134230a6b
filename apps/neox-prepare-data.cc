// neox-prepare-data: text, JSON lines and corpora by name to tokenized datasets.
#include <iostream>

#include "base/program.h"
#include "corpus/corpus.h"
#include "launch/environment.h"

namespace {

using namespace neox;

int run(const Program& program, Control& control, const std::string& life) {
  Environment env = environment();
  CorpusOptions corpus = read_corpus_options(program, env["DATA_DIR"]);
  PrepareDefaults defaults = corpus.name.empty() ? PrepareDefaults() : corpus_defaults(corpus);
  PrepareOptions options = read_prepare_options(program, defaults);
  options.life = life;
  if (!corpus.name.empty()) fetch_corpus(corpus, options, control);
  if (!corpus.name.empty() && corpus.until == CorpusOptions::Until::kFetched) return 0;
  PrepareResult result = prepare_data(options, control);
  if (control.rank() == 0) std::cout << summary(options, result);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("neox-prepare-data", [&] {
    std::vector<std::string> arguments =
        canonical_arguments(std::vector<std::string>(argv, argv + argc));
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    Program program = prepare_program();
    add_corpus_options(program);
    if (!program.parse(argc, pointers.data())) return 0;
    if (program.has("list")) return std::cout << table_of_corpora(program), 0;
    AloneControl control;
    return run(program, control, life_of_job(environment()));
  });
}
