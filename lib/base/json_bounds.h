// Bounds on the JSON of others, which are looked at before it is parsed: what prints or converts a
// value calls itself for each level, and an object in the order of its keys is searched for each
// new one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace neox {

struct JsonBounds {
  size_t levels = 500;
  size_t keys = SIZE_MAX;      // of an object
  size_t all_keys = SIZE_MAX;  // of all objects together
};

// Which of them a text is beyond, "is nested in more than 500 levels", "has an object of more than
// 1000 keys" or "has more than 50000 keys", or "". Where it is no JSON, what stands before the
// first mistake counts at least.
std::string beyond(const JsonBounds& most, std::string_view json);

}  // namespace neox
