// The subcommands of neox-data: their options, what they print, their exit codes.
#pragma once
#include <ostream>
#include <string>
#include <vector>

namespace neox {

// arguments: without the program's name. Returns the exit code, or throws Error.
int run_data_command(const std::vector<std::string>& arguments, std::ostream& out);

}  // namespace neox
