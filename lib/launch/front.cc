#include "launch/front.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "launch/openmp.h"

namespace neox {

void become_whole_program() {
  std::error_code gone;  // in which libraries of LibTorch would not find each other
  fs::path here = fs::current_path(gone);
  check_io(!gone, "the working directory is not there any more (", describe_errno(gone.value()),
           "); change to one that is");
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string command(std::istreambuf_iterator<char>(file), {});
  std::vector<char*> arguments;
  for (size_t at = 0; at < command.size(); at = command.find('\0', at) + 1)
    arguments.push_back(&command[at]);
  arguments.push_back(nullptr);
  fs::path self = program_file();
  fs::path whole = self.parent_path().parent_path() / "libexec" / self.filename();
  std::cout << std::flush;
  let_openmp_threads_sleep();
  ::execv(whole.c_str(), arguments.data());
  fail(Exit::kIo, "cannot start ", whole.string(), ", which does the work of ", self.string(), ": ",
       describe_errno(errno), "; copy the whole tree, not bin alone");
}

}  // namespace neox
