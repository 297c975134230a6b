// The fields of a config.json of transformers, each of which must be asked for or be known to say
// nothing of the model.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

namespace neox {

// Each function takes a field out and throws (74) where it has another type; null is as if absent.
class HfFields {
 public:
  HfFields(nlohmann::json fields, const std::string& where);
  std::optional<double> maybe_number(const char* name);
  bool flag(const char* name, bool fallback);
  std::string text(const char* name, const std::string& fallback);
  bool has(const char* name) const { return fields_.contains(name); }  // null too
  nlohmann::json take(const char* name);  // of any type; null where there is none
  // Another name of a field. Throws where both are given and differ.
  void rename(const char* alias, const char* name);
  // Throws naming a field that is left and that may change what the model computes. silent: fields
  // of this architecture that do not.
  void finish(std::span<const char* const> silent = {}) const;
  const std::string& where() const { return where_; }

 private:
  nlohmann::json fields_;
  std::string where_;
};

}  // namespace neox
