// neox-convert: checkpoints from and to other programs' formats; looks into them, compares them.
#include <iostream>

#include "base/memory.h"
#include "base/program.h"
#include "convert/commands.h"

int main(int argc, char** argv) {
  neox::share_freed_memory();  // tensors are read on one thread and freed on another
  return neox::run_program("neox-convert", [&] {
    return neox::run_convert_command({argv + 1, argv + argc}, std::cout);
  });
}
