// Renders templates of Jinja: for each line {"template": ..., "values": {...}} of the standard input a
// line {"text": ...} or {"error": ...}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "jinja/template.h"

int main() {
  using Json = nlohmann::ordered_json;
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    Json given = Json::parse(line), answer;
    try {
      neox::jinja::Template style(given["template"].get<std::string>(), "template");
      answer["text"] = style.render(*neox::jinja::value_of(given["values"]).map());
    } catch (const neox::Error& e) { answer["error"] = e.what(); }
    std::cout << answer.dump() << "\n";
  }
  return 0;
}
