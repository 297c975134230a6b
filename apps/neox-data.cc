// neox-data: counts, shows, checks, joins, cuts and mends datasets.
#include <iostream>

#include "base/program.h"
#include "dataset/commands.h"

int main(int argc, char** argv) {
  return neox::run_program("neox-data", [&] {
    return neox::run_data_command({argv + 1, argv + argc}, std::cout);
  });
}
