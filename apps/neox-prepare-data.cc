// neox-prepare-data: text and JSON lines to tokenized datasets.
#include <iostream>

#include "base/program.h"
#include "data/prepare_options.h"

int main(int argc, char** argv) {
  return neox::run_program("neox-prepare-data", [&] {
    std::vector<std::string> arguments =
        neox::canonical_arguments(std::vector<std::string>(argv, argv + argc));
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    neox::Program program = neox::prepare_program();
    if (!program.parse(argc, pointers.data())) return 0;
    neox::PrepareOptions options = neox::read_prepare_options(program);
    std::cout << neox::summary(options, neox::prepare_data(options));
    return 0;
  });
}
