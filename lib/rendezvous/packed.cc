#include "rendezvous/packed.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace neox {

std::string pack(std::span<const std::string> texts) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += sizeof(uint64_t) + text.size();
  std::string packed;
  packed.reserve(bytes);
  for (const std::string& text : texts) {
    uint64_t length = text.size();
    packed.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
  }
  return packed;
}

std::vector<std::string> unpack(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    uint64_t length = 0;
    check(packed.size() >= sizeof length, "a packed value of the rendezvous store is cut off");
    std::memcpy(&length, packed.data(), sizeof length);
    packed.remove_prefix(sizeof length);
    check(packed.size() >= length, "a packed value of the rendezvous store lacks ",
          length - packed.size(), " bytes");
    texts.emplace_back(packed.substr(0, length));
    packed.remove_prefix(length);
  }
  return texts;
}

}  // namespace neox
