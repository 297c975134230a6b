// What a compressed file holds: its streams one after another, decoded by several threads where it
// has many (dumps of Wikipedia, files of pbzip2, pzstd, xz -T).
#pragma once
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "prepare/byte_source.h"
#include "prepare/decoder.h"

namespace neox {

// Memory: about 10 MB for each of at most kMostThreads threads.
class DecompressedSource : public ByteSource {
 public:
  // `name`, of a file or a member, stands in messages.
  DecompressedSource(std::string name, Compression compression, std::unique_ptr<ByteSource> from,
                     int threads);
  // Throws Error (74) naming the byte where the file is damaged, or that it is cut off.
  size_t read(std::span<char> to) override;
  int64_t consumed() const override;

  static constexpr int kMostThreads = 16;

 private:
  // Compressed bytes that begin where the piece before ends, and what they hold where another
  // thread finds them to be whole streams.
  struct Piece {
    std::shared_ptr<const std::string> bytes = std::make_shared<std::string>();
    std::future<std::optional<std::string>> text = {};
  };
  bool read_more();
  size_t piece_end();
  void cut_pieces();
  bool next_piece();
  size_t decode(std::span<char> to);

  const std::string name_;
  const Compression compression_;
  const std::unique_ptr<ByteSource> from_;
  const int threads_;
  const bool ahead_;  // whether other threads decode
  const std::unique_ptr<Decoder> decoder_;

  std::string raw_;         // read, and not yet cut
  bool raw_ended_ = false;  // nothing more to read
  bool at_stream_ = true;   // a stream may begin where raw_ does
  std::deque<Piece> pieces_;
  Piece piece_;          // that is decoded here ...
  size_t taken_ = 0;     // ... as far as it is
  bool inside_ = false;  // of a stream
  bool begun_ = false;   // any stream
  std::string text_;     // or what another thread has decoded ...
  size_t given_ = 0;     // ... as far as it was given out
};

}  // namespace neox
