#include "checkpoint/checksum.h"

#include <charconv>
#include <cinttypes>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/checksum_xxh.h"

namespace neox {
namespace {

Checksum from_xxh(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

}  // namespace

Checksum checksum(std::span<const std::byte> bytes) {
  return from_xxh(xxh3(bytes.data(), bytes.size()));
}

Checksum checksum(std::string_view text) {
  return checksum(std::as_bytes(std::span(text.data(), text.size())));
}

std::string to_string(const Checksum& sum) {
  return printed("%016" PRIx64 "%016" PRIx64, sum.high, sum.low);
}

std::optional<Checksum> parse_checksum(std::string_view text) {
  Checksum sum;
  auto half = [&](size_t from, uint64_t& value) {
    const char* end = text.data() + from + 16;
    auto [stop, error] = std::from_chars(text.data() + from, end, value, 16);
    return error == std::errc() && stop == end;
  };
  if (text.size() != 32 || !half(0, sum.high) || !half(16, sum.low)) return std::nullopt;
  return to_string(sum) == text ? std::optional(sum) : std::nullopt;
}

struct Checksummer::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Checksummer::Checksummer() : state_(std::make_unique<State>()) {
  check(state_->xxh && XXH3_128bits_reset(state_->xxh) == XXH_OK, "out of memory for a checksum");
}

Checksummer::Checksummer(Checksummer&&) noexcept = default;
Checksummer& Checksummer::operator=(Checksummer&&) noexcept = default;
Checksummer::~Checksummer() = default;

void Checksummer::add(std::span<const std::byte> bytes) {
  check(xxh3_add(state_->xxh, bytes.data(), bytes.size()), "cannot add to a checksum");
}

Checksum Checksummer::sum() const { return from_xxh(XXH3_128bits_digest(state_->xxh)); }

}  // namespace neox
