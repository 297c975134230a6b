// What neox-serve does: a checkpoint behind HTTP.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/program.h"

namespace neox {

struct ServeOptions {
  std::filesystem::path checkpoint;
  std::vector<std::string> overrides;
  std::string chat_template;  // "": none
  std::string listen = "127.0.0.1:5000";
  int64_t batch_size = 8;
};

ServeOptions serve_options(const Program& program);

// Until a signal asks to stop.
void serve(const ServeOptions& options);

}  // namespace neox
