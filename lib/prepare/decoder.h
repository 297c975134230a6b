// The formats of compressed files, one stream (or frame) at a time.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace neox {

enum class Compression { kGzip, kZstd, kXz, kBzip2, kLz4 };

const char* name_of(Compression compression);  // "zstd"

// By the first bytes of a file.
std::optional<Compression> compression_of(std::string_view head);

// By the ending of its name (".zst", ".tgz").
std::optional<Compression> compression_named(std::string_view ending);

// The first place behind `from` where another stream may begin in compressed bytes; npos: none
// does, or only one that begins beyond them. Streams can be decoded at the same time from there;
// that it is none after all shows when the one before does not end there.
size_t next_stream(Compression compression, std::string_view bytes, size_t from);

// For one thread.
class Decoder {
 public:
  struct Step {
    size_t taken = 0, given = 0;
    bool ended = false;      // the stream; the next step begins another one
    std::string error = {};  // what is wrong
  };
  virtual ~Decoder() = default;
  // Takes what it can from compressed bytes and gives what fits. One that neither takes nor gives
  // lacks the rest of its bytes.
  virtual Step decode(std::span<const char> from, std::span<char> to) = 0;
};

// Up to so many threads decode, where the format allows it.
std::unique_ptr<Decoder> make_decoder(Compression compression, int threads);

}  // namespace neox
