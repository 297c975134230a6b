#include "tokenizer/byte_tokens.h"

#include <charconv>

namespace neox {
namespace {

bool in_capitals(std::string_view token) {
  return std::ranges::none_of(token, [](char c) { return 'a' <= c && c <= 'f'; });
}

}  // namespace

int byte_of_token(std::string_view token) {
  unsigned byte = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const char* end = token.data() + 5;
  auto [at, error] = std::from_chars(token.data() + 3, end, byte, 16);
  return error == std::errc() && at == end ? static_cast<int>(byte) : -1;
}

ByteTokens::ByteTokens(const std::vector<std::string>& tokens) {
  ids_.fill(-1);
  for (size_t id = 0; id < tokens.size(); ++id)
    if (int byte = byte_of_token(tokens[id]); byte >= 0 && in_capitals(tokens[id]))
      ids_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
}

}  // namespace neox
