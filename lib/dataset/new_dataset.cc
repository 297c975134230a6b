#include "dataset/new_dataset.h"

#include <fcntl.h>

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "data/dataset_builder.h"

namespace neox {
namespace {

constexpr int64_t kPieceBytes = int64_t{64} << 20;  // between two reports of progress

void on_signal(int number) {
  if (HeldSignals::take(number)) return;
  std::signal(number, SIG_DFL);  // as if there were no handler
  std::raise(number);
}

HeldSignals hold_signals() {
  on_stop_signals(on_signal);
  return {};
}

void check_signals() {
  HeldSignals::check("; what was written is removed, and the same command does it again");
}

const std::string& check_free(const std::string& prefix) {
  check_usage(!prefix.empty() && !prefix.ends_with('/'), "--output-prefix '", prefix,
              "' is not a path with the beginning of a name, such as data/all_text_document");
  std::error_code error;
  for (const char* ending : {".bin", ".idx"})
    check_usage(!fs::exists(prefix + ending, error), prefix, ending,
                " exists; name another --output-prefix, or remove it first");
  make_directories(directory_of(prefix));
  return prefix;
}

}  // namespace

Totals& Totals::operator+=(const Totals& other) {
  documents += other.documents;
  sequences += other.sequences;
  tokens += other.tokens;
  bytes += other.bytes;
  return *this;
}

Totals write_index(OutputFile& idx, TokenType type, std::span<const IndexPart> parts) {
  Totals all;
  for (const IndexPart& part : parts) {
    all.sequences += part.lengths.size();
    all.documents += part.ends.size();
  }
  write_index_header(idx, type, all.sequences, all.documents);
  for (const IndexPart& part : parts) idx.write(part.lengths.bytes());
  for (const IndexPart& part : parts) {
    for (int64_t i = 0; i < part.lengths.size(); ++i) {
      idx.write_value<int64_t>(all.tokens * token_bytes(type));
      all.tokens += part.lengths[i];
    }
  }
  idx.write_value<int64_t>(0);
  int64_t before = 0;
  for (const IndexPart& part : parts) {
    for (int64_t i = 0; i < part.ends.size(); ++i)
      idx.write_value<int64_t>(before + part.ends[i] - part.first);
    before += part.lengths.size();
  }
  all.bytes = all.tokens * token_bytes(type);
  return all;
}

NewDataset::NewDataset(const std::string& prefix)
    : prefix_(check_free(prefix)),
      signals_(hold_signals()),
      bin_(prefix + ".bin"),
      idx_(prefix + ".idx") {}

void NewDataset::copy(const std::string& path, int64_t position, int64_t bytes,
                      const OnCopied& copied) {
  if (bytes == 0) return;
  Descriptor file(path, O_RDONLY, "open");
  for (int64_t done = 0; done < bytes;) {
    int64_t piece = std::min(kPieceBytes, bytes - done);
    check_signals();
    bin_.copy(file.get(), path, position + done, piece);
    done += piece;
    copied(piece);
  }
}

Totals NewDataset::write_index(TokenType type, std::span<const IndexPart> parts) {
  Totals all = neox::write_index(idx_, type, parts);
  check_signals();
  bin_.flush_to_disk();
  idx_.flush_to_disk();
  check_signals();
  return all;
}

void NewDataset::publish() { publish_dataset(prefix_, bin_, idx_); }

}  // namespace neox
