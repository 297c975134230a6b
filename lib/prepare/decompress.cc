#include "prepare/decompress.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace neox {
namespace {

constexpr size_t kReadBytes = 1 << 18;
// Of the pieces of compressed bytes that threads decode, and of what they hold: longer ones are
// decoded as they are given out.
constexpr size_t kShortestPiece = 1 << 18, kLongestPiece = 1 << 22, kLongestText = 1 << 24;

// Whether streams can be found in it.
bool has_streams(Compression compression) {
  return compression == Compression::kBzip2 || compression == Compression::kZstd;
}

// What whole streams hold; none where they are not whole, not right, or hold too much.
std::optional<std::string> decode_ahead(Compression compression, std::string_view bytes) {
  std::unique_ptr<Decoder> decoder = make_decoder(compression, 1);
  std::string text;
  bool ended = false;
  while (!bytes.empty() || !ended) {
    size_t size = text.size();
    if (size >= kLongestText) return std::nullopt;
    text.resize(std::min(std::max(2 * size, 4 * bytes.size()), kLongestText));
    Decoder::Step step = decoder->decode(bytes, std::span(text).subspan(size));
    text.resize(size + step.given);
    bytes.remove_prefix(step.taken);
    ended = step.ended;
    if (!step.error.empty() || (step.taken == 0 && step.given == 0)) return std::nullopt;
  }
  return text;
}

}  // namespace

DecompressedSource::DecompressedSource(std::string name, Compression compression,
                                       std::unique_ptr<ByteSource> from, int threads)
    : name_(std::move(name)),
      compression_(compression),
      from_(std::move(from)),
      threads_(std::clamp(threads, 1, kMostThreads)),
      ahead_(threads_ > 1 && has_streams(compression)),
      decoder_(make_decoder(compression, threads_)) {}

int64_t DecompressedSource::consumed() const {
  size_t ahead = raw_.size() + piece_.bytes->size() - taken_;
  for (const Piece& piece : pieces_) ahead += piece.bytes->size();
  return from_->consumed() - static_cast<int64_t>(ahead);
}

size_t DecompressedSource::read(std::span<char> to) {
  while (!to.empty()) {
    if (size_t n = std::min(to.size(), text_.size() - given_); n > 0) {
      std::memcpy(to.data(), text_.data() + given_, n);
      given_ += n;
      return n;
    }
    if (taken_ == piece_.bytes->size() && !next_piece() && !inside_) return 0;
    if (size_t n = decode(to); n > 0) return n;
  }
  return 0;
}

// Of the piece at hand; without bytes what the decoder still holds.
size_t DecompressedSource::decode(std::span<char> to) {
  if (!inside_ && begun_)  // zeros may follow a stream, as of tapes
    while (taken_ < piece_.bytes->size() && (*piece_.bytes)[taken_] == '\0') ++taken_;
  std::span<const char> from = std::span(*piece_.bytes).subspan(taken_);
  if (from.empty() && !inside_) return 0;
  Decoder::Step step = decoder_->decode(from, to);
  taken_ += step.taken;
  check_io(step.error.empty(), name_, " is damaged at about byte ", consumed(), " (",
           name_of(compression_), ": ", step.error, "); fetch or copy it again");
  check_io(step.taken > 0 || step.given > 0 || step.ended, name_, " ends at byte ", consumed(),
           " in the middle of its ", name_of(compression_),
           " data: it is cut off; fetch or copy it again");
  begun_ = true;
  inside_ = !step.ended;
  return step.given;
}

bool DecompressedSource::next_piece() {
  cut_pieces();
  piece_ = {};
  taken_ = 0;
  if (pieces_.empty()) return false;
  piece_ = std::move(pieces_.front());
  pieces_.pop_front();
  cut_pieces();  // before waiting
  if (!piece_.text.valid()) return true;
  std::optional<std::string> text = piece_.text.get();
  if (!text || inside_) return true;  // decoded here, which says what is wrong
  text_ = std::move(*text);
  given_ = 0;
  taken_ = piece_.bytes->size();
  begun_ = true;
  return true;
}

void DecompressedSource::cut_pieces() {
  size_t wanted = ahead_ ? static_cast<size_t>(threads_) + 1 : 1;
  while (pieces_.size() < wanted && (!raw_.empty() || read_more())) {
    size_t end = ahead_ ? piece_end() : raw_.size();
    bool ends_stream = end < raw_.size() || raw_ended_;
    Piece piece{.bytes = std::make_shared<std::string>(raw_, 0, end)};
    raw_.erase(0, end);
    if (ahead_ && at_stream_ && ends_stream)
      piece.text = std::async(std::launch::async, [bytes = piece.bytes, this] {
        return decode_ahead(compression_, *bytes);
      });
    at_stream_ = ends_stream;
    pieces_.push_back(std::move(piece));
  }
}

// Where a stream begins, or all that is there where it begins too far away.
size_t DecompressedSource::piece_end() {
  constexpr size_t kLongestMark = 10;
  for (size_t from = kShortestPiece;;) {
    size_t found = next_stream(compression_, raw_, std::min(from, raw_.size()));
    if (found != std::string::npos) return found;
    from = std::max(from, raw_.size() - std::min(raw_.size(), kLongestMark));
    if (raw_.size() >= kLongestPiece || !read_more()) return raw_.size();
  }
}

bool DecompressedSource::read_more() {
  if (raw_ended_) return false;
  size_t size = raw_.size();
  raw_.resize(size + kReadBytes);
  size_t n = read_fully(*from_, std::span(raw_).subspan(size));
  raw_.resize(size + n);
  raw_ended_ = n < kReadBytes;
  return n > 0;
}

}  // namespace neox
