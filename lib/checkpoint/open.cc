#include "base/error.h"
#include "checkpoint/layout.h"

namespace neox {
namespace {

void check_file(const fs::path& path, int64_t bytes) {
  std::error_code error;
  auto found = static_cast<int64_t>(fs::file_size(path, error));
  if (error)
    fail_to_read(error.value(),
                 concat(path.string(), " cannot be used: ", describe_errno(error.value())));
  check_io(found == bytes, path.string(), " has ", found, " bytes, not the ", bytes,
           " that were saved");
}

// One under the name of another step would be taken for newer or older than it is.
void check_name(const Opened& opened) {
  std::optional<int64_t> step = step_of(opened.dir.filename().string());
  check_io(!step || *step == opened.state.iteration, opened.dir.string(),
           " holds the checkpoint of iteration ", opened.state.iteration, ": give it the name ",
           step_name(opened.state.iteration), ", or move it away");
}

// A box outside of its file would be a bug of the writer.
void check_ranges(const Opened& opened) {
  const Catalog& c = opened.catalog;
  std::vector<std::vector<ByteRange>> ranges = c.ranges();
  for (size_t i = 0; i < c.files.size(); ++i)
    check_io(ranges[i].empty() || ranges[i].back().end <= c.files[i].bytes,
             (opened.dir / kIndexFile).string(), " names bytes beyond the end of ",
             c.files[i].name);
}

}  // namespace

Opened open_complete(const fs::path& dir) {
  using enum fs::file_type;
  check_io(type_of(dir) == directory, dir.string(), " is not there");
  check_io(type_of(dir / kCompleteFile) != not_found, dir.string(), " is not complete: it has no ",
           kCompleteFile);
  std::string index = read_file(dir / kIndexFile), state = read_file(dir / kStateFile);
  check_complete(dir, read_file(dir / kCompleteFile), index, state);
  std::string index_name = (dir / kIndexFile).string();
  // In memory: HDF5 sees nothing but bytes whose checksum is right.
  Opened opened{dir, train_state_from_json(state, (dir / kStateFile).string()),
                get_catalog(Hdf5File::from_image(index, index_name), index_name)};
  check_name(opened);
  check_ranges(opened);
  return opened;
}

void check_rank_files(const Opened& opened) {
  for (const StoredFile& file : opened.catalog.files)
    check_file(opened.dir / file.name, file.bytes);
}

}  // namespace neox
