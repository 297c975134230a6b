// Environments in few words, those recorded on a real cluster, and what is refused of them.
#pragma once
#include <gmock/gmock.h>

#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "launch/process_info.h"

namespace neox::testing {

inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kUsage) << e.what();
    return e.what();
  }
  return "no error";
}

inline std::string refusal(const Environment& env) {
  return error_of([&] { process_info(env, "here"); });
}

// "A=1 B=2" on top of `base`; "A=" unsets A.
inline Environment with(Environment base, const std::string& changes) {
  for (const std::string& change : split(changes, ' ')) {
    size_t equals = change.find('=');
    if (equals == std::string::npos) continue;
    base[change.substr(0, equals)] = change.substr(equals + 1);
    if (equals + 1 == change.size()) base.erase(change.substr(0, equals));
  }
  return base;
}

inline Environment of(const std::string& changes) { return with({}, changes); }

inline const fs::path kRecorded = fs::path(NEOX_SOURCE_DIR) / "tests/golden/environments";

inline Environment recorded(const std::string& kase, int rank) {
  Environment env;
  for (const std::string& line :
       split(read_file(kRecorded / concat(kase, ".", rank, ".env")), '\n')) {
    size_t equals = line.find('=');
    if (equals != std::string::npos) env[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return env;
}

// What enroot's hook writes into the container of rank 3 of the recorded step.
inline const std::string kHook =
    "PYTORCH_VERSION=2.11.0 MASTER_ADDR=node1 MASTER_PORT=61010 WORLD_SIZE=4 RANK=3 LOCAL_RANK=1";

}  // namespace neox::testing
