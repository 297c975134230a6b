// The command line of neox-prepare-data, and the project's table of corpora.
#pragma once
#include <string>
#include <vector>

#include "corpus/corpus.h"

namespace neox::testing {

using Arguments = std::vector<std::string>;

inline const char* const kRegistry = NEOX_SOURCE_DIR "/configs/corpora.yml";

inline Program program_of(const Arguments& arguments) {
  Program program = prepare_program();
  add_corpus_options(program);
  check(program.parse(canonical_arguments(arguments)), "help was asked");
  return program;
}

}  // namespace neox::testing
