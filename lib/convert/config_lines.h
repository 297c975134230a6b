// A configuration as it is written, group by group.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "config/value.h"

namespace neox {

class ConfigLines {
 public:
  void begin(const char* group) { text_ += concat("\n# ", group, "\n"); }
  void add(const std::string& key, const nlohmann::json& value, const std::string& remark = "",
           const std::string& indent = "") {
    std::string text = value.is_string() ? yaml_text(value.get<std::string>()) : value.dump();
    text_ += concat(indent, key, ":", value.is_object() ? "" : " " + text,
                    remark.empty() ? "" : "  # ", remark, "\n");
    if (!value.is_object()) return;
    for (const auto& [name, item] : value.items()) add(name, item, "", indent + "  ");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace neox
