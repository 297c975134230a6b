#include "prepare/decoder.h"

#include <bzlib.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <climits>

#include "base/error.h"

namespace neox {
namespace {

// A stream of zlib or bzip2 counts in unsigned int.
template <class Size>
Size clipped(size_t size) {
  return static_cast<Size>(std::min<size_t>(size, INT_MAX));
}

class Gzip : public Decoder {
 public:
  Gzip() { check(inflateInit2(&stream_, kGzipOnly) == Z_OK, "zlib gives no decoder"); }
  ~Gzip() override { inflateEnd(&stream_); }

  Step decode(std::span<const char> from, std::span<char> to) override {
    auto in = clipped<uInt>(from.size()), out = clipped<uInt>(to.size());
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_in = in;
    stream_.avail_out = out;
    int code = inflate(&stream_, Z_NO_FLUSH);
    Step step{.taken = in - stream_.avail_in, .given = out - stream_.avail_out};
    step.ended = code == Z_STREAM_END;
    if (step.ended) inflateReset(&stream_);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      step.error = stream_.msg ? stream_.msg : zError(code);
    return step;
  }

 private:
  static constexpr int kGzipOnly = 15 + 16;
  z_stream stream_ = {};
};

class Bzip2 : public Decoder {
 public:
  Bzip2() { begin(); }
  ~Bzip2() override { BZ2_bzDecompressEnd(&stream_); }

  Step decode(std::span<const char> from, std::span<char> to) override {
    auto in = clipped<unsigned>(from.size()), out = clipped<unsigned>(to.size());
    stream_.next_in = const_cast<char*>(from.data());
    stream_.next_out = to.data();
    stream_.avail_in = in;
    stream_.avail_out = out;
    int code = BZ2_bzDecompress(&stream_);
    Step step{.taken = in - stream_.avail_in, .given = out - stream_.avail_out};
    step.ended = code == BZ_STREAM_END;
    if (step.ended) {
      BZ2_bzDecompressEnd(&stream_);
      begin();
    }
    if (code == BZ_DATA_ERROR)
      step.error = "wrong data or checksum";
    else if (code == BZ_DATA_ERROR_MAGIC)
      step.error = "no beginning of a stream";
    else if (code != BZ_OK && code != BZ_STREAM_END)
      step.error = concat("libbz2 error ", code);
    return step;
  }

 private:
  void begin() {
    stream_ = {};
    check(BZ2_bzDecompressInit(&stream_, 0, 0) == BZ_OK, "libbz2 gives no decoder");
  }
  bz_stream stream_ = {};
};

class Xz : public Decoder {
 public:
  explicit Xz(int threads) : threads_(threads) { begin(); }
  ~Xz() override { lzma_end(&stream_); }

  Step decode(std::span<const char> from, std::span<char> to) override {
    stream_.next_in = reinterpret_cast<const uint8_t*>(from.data());
    stream_.next_out = reinterpret_cast<uint8_t*>(to.data());
    stream_.avail_in = from.size();
    stream_.avail_out = to.size();
    lzma_ret code;  // threads may need a second call until it is known that nothing comes
    do code = lzma_code(&stream_, LZMA_RUN);
    while (code == LZMA_OK && stream_.avail_in == from.size() && stream_.avail_out == to.size());
    Step step{.taken = from.size() - stream_.avail_in, .given = to.size() - stream_.avail_out};
    step.ended = code == LZMA_STREAM_END;
    if (step.ended) begin();
    if (code == LZMA_DATA_ERROR)
      step.error = "wrong data or checksum";
    else if (code == LZMA_FORMAT_ERROR)
      step.error = "no beginning of a stream";
    else if (code == LZMA_OPTIONS_ERROR)
      step.error = "options that this liblzma does not know";
    else if (code != LZMA_OK && code != LZMA_STREAM_END && code != LZMA_BUF_ERROR)
      step.error = concat("liblzma error ", static_cast<int>(code));
    return step;
  }

 private:
  // Several threads only within this much memory.
  static constexpr uint64_t kThreadingBytes = 128 << 20;

  void begin() {
    lzma_mt options{};
    options.threads = static_cast<uint32_t>(threads_);
    options.memlimit_threading = kThreadingBytes;
    options.memlimit_stop = UINT64_MAX;
    check(lzma_stream_decoder_mt(&stream_, &options) == LZMA_OK, "liblzma gives no decoder");
  }
  int threads_;
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

class Zstd : public Decoder {
 public:
  Zstd() : context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
    constexpr int kLargestWindow = 31;  // of zstd --long=31
    check(context_ && !ZSTD_isError(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax,
                                                           kLargestWindow)),
          "libzstd gives no decoder");
  }

  Step decode(std::span<const char> from, std::span<char> to) override {
    ZSTD_inBuffer in{from.data(), from.size(), 0};
    ZSTD_outBuffer out{to.data(), to.size(), 0};
    size_t code = ZSTD_decompressStream(context_.get(), &out, &in);
    Step step{.taken = in.pos, .given = out.pos, .ended = code == 0};
    if (ZSTD_isError(code)) step.error = ZSTD_getErrorName(code);
    return step;
  }

 private:
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context_;
};

class Lz4 : public Decoder {
 public:
  Lz4() : context_(nullptr, LZ4F_freeDecompressionContext) {
    LZ4F_dctx* made = nullptr;
    check(!LZ4F_isError(LZ4F_createDecompressionContext(&made, LZ4F_VERSION)),
          "liblz4 gives no decoder");
    context_.reset(made);
  }

  Step decode(std::span<const char> from, std::span<char> to) override {
    Step step{.taken = from.size(), .given = to.size()};
    size_t code =
        LZ4F_decompress(context_.get(), to.data(), &step.given, from.data(), &step.taken, nullptr);
    step.ended = code == 0;
    if (LZ4F_isError(code)) step = {.error = LZ4F_getErrorName(code)};
    return step;
  }

 private:
  std::unique_ptr<LZ4F_dctx, decltype(&LZ4F_freeDecompressionContext)> context_;
};

struct Known {
  Compression compression;
  const char* name;
  std::string_view magic;
  std::string_view endings;  // each with a space behind it
};
constexpr Known kKnown[] = {
    {Compression::kGzip, "gzip", "\x1f\x8b", ".gz .tgz .gzip "},
    {Compression::kZstd, "zstd", "\x28\xb5\x2f\xfd", ".zst .zstd .tzst "},
    {Compression::kXz, "xz",
     std::string_view("\xfd"
                      "7zXZ\0",
                      6),
     ".xz .txz "},
    {Compression::kBzip2, "bzip2", "BZh", ".bz2 .tbz2 .tbz "},
    {Compression::kLz4, "lz4", "\x04\x22\x4d\x18", ".lz4 "},
};

// A frame that zstd and lz4 skip: 50 2a 4d 18 to 5f 2a 4d 18. pzstd begins its files with one.
bool is_skippable(std::string_view head) {
  return head.size() >= 4 && (head[0] & 0xF0) == 0x50 && head.substr(1, 3) == "\x2a\x4d\x18";
}

}  // namespace

const char* name_of(Compression compression) {
  return std::find_if(std::begin(kKnown), std::end(kKnown),
                      [&](const Known& known) { return known.compression == compression; })
      ->name;
}

std::optional<Compression> compression_of(std::string_view head) {
  for (const Known& known : kKnown)
    if (head.starts_with(known.magic)) return known.compression;
  if (is_skippable(head)) return Compression::kZstd;
  return std::nullopt;
}

std::optional<Compression> compression_named(std::string_view ending) {
  if (ending.empty()) return std::nullopt;
  for (const Known& known : kKnown)
    if (known.endings.find(concat(ending, " ")) != std::string_view::npos) return known.compression;
  return std::nullopt;
}

size_t next_stream(Compression compression, std::string_view bytes, size_t from) {
  if (compression == Compression::kZstd) return bytes.find("\x28\xb5\x2f\xfd", from);
  if (compression != Compression::kBzip2) return std::string_view::npos;
  // A header and the mark of its first block, or of the end of an empty stream.
  for (size_t at = bytes.find("BZh", from); at != std::string_view::npos;
       at = bytes.find("BZh", at + 1)) {
    std::string_view mark = bytes.substr(std::min(at + 4, bytes.size()), 6);
    if (mark == "\x31\x41\x59\x26\x53\x59" || mark == "\x17\x72\x45\x38\x50\x90") return at;
  }
  return std::string_view::npos;
}

std::unique_ptr<Decoder> make_decoder(Compression compression, int threads) {
  switch (compression) {
    case Compression::kGzip:
      return std::make_unique<Gzip>();
    case Compression::kZstd:
      return std::make_unique<Zstd>();
    case Compression::kXz:
      return std::make_unique<Xz>(threads);
    case Compression::kBzip2:
      return std::make_unique<Bzip2>();
    case Compression::kLz4:
      return std::make_unique<Lz4>();
  }
  fail(Exit::kInternal, "no such compression");
}

}  // namespace neox
