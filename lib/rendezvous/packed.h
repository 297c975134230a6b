// Several texts as one, since a store's value is one: the length of each (8 bytes), then its bytes.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

std::string pack(std::span<const std::string> texts);

// Throws where `packed` is not what pack() makes.
std::vector<std::string> unpack(std::string_view packed);

}  // namespace neox
