// neox-convert: checkpoints from and to other programs' formats; looks into them, compares them.
#include <iostream>

#include "base/program.h"
#include "convert/commands.h"

int main(int argc, char** argv) {
  return neox::run_program("neox-convert", [&] {
    return neox::run_convert_command({argv + 1, argv + argc}, std::cout);
  });
}
