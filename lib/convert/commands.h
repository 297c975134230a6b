// neox-convert: converts checkpoints, looks into them, compares them.
#pragma once
#include <ostream>
#include <string>
#include <vector>

namespace neox {

// arguments: without the program's name. Returns an exit code.
int run_convert_command(const std::vector<std::string>& arguments, std::ostream& out);

}  // namespace neox
