// The tokens that stand for bytes, "<0x0A>", by which models write what they have no token for.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

// The byte that "<0x0A>" stands for, or -1.
int byte_of_token(std::string_view token);

class ByteTokens {
 public:
  // Those with capital digits.
  explicit ByteTokens(const std::vector<std::string>& tokens);
  // Of a byte, or -1.
  int32_t id(char byte) const { return ids_[static_cast<uint8_t>(byte)]; }
  // Whether each byte of a text has one; of any text.
  bool spell(std::string_view text) const {
    return std::ranges::all_of(text, [this](char byte) { return id(byte) >= 0; });
  }
  bool spell_all() const { return std::ranges::find(ids_, -1) == ids_.end(); }

 private:
  std::array<int32_t, 256> ids_;
};

}  // namespace neox
