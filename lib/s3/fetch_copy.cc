#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/writing.h"
#include "s3/checkpoint_copies.h"
#include "s3/file_transfer.h"

namespace neox {
namespace {

// What is left of a directory that did not get its name.
struct Temporary {
  fs::path dir;
  ~Temporary() {
    std::error_code ignored;
    fs::remove_all(dir, ignored);
  }
};

}  // namespace

void fetch_copy(S3Directory& place, int64_t step, const std::filesystem::path& run_dir,
                const std::string& life, const Poll& poll) {
  auto start = SaveClock::now();
  std::string name = step_name(step);
  log_info("fetching ", name, " from ", place.url(), " to ", run_dir.string());
  std::vector<S3Directory::Object> objects = place.list(name);
  Temporary temporary{start_directory({.dir = run_dir, .life = life}, step)};
  try {
    fetch_files(place, objects, temporary.dir, poll);
    check_rank_files(open_complete(temporary.dir));
  } catch (const Error& e) {
    fail(e.exit(), "cannot fetch ", name, " from ", place.url(), ": ", e.what());
  }
  publish(temporary.dir, run_dir / name, life);
  write_file_atomically(run_dir / kLatestFile, name);
  double bytes = 0;
  for (const S3Directory::Object& object : objects) bytes += static_cast<double>(object.bytes);
  double seconds = std::chrono::duration<double>(SaveClock::now() - start).count();
  log_info("fetched ", name, ": ", human_bytes(bytes), " in ", human_duration(seconds), ", ",
           human_bytes(bytes / seconds), "/s");
}

}  // namespace neox
