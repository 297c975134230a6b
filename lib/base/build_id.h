// Which build this program is.
#pragma once
#include <string>

namespace neox {

// The linker's build id of the running program, as hexadecimal digits: the same for copies of one
// file, different after a change of any linked code. "" where the linker wrote none.
std::string build_id();

}  // namespace neox
