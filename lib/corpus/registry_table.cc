// The registry as a table for people.
#include <algorithm>

#include "base/text.h"
#include "corpus/registry.h"

namespace neox {
namespace {

constexpr size_t kColumns = 6;
constexpr size_t kWidths[kColumns] = {19, 32, 8, 7, 6, 18};  // 100 with two blanks between
using Cells = std::vector<std::string>;

// The lines of a cell, broken at blanks.
std::vector<std::string> wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines = {""};
  for (const std::string& word : split(text, ' ')) {
    bool fits = lines.back().empty() || lines.back().size() + 1 + word.size() <= width;
    if (!fits) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::string row(const Cells& cells) {
  std::vector<std::vector<std::string>> wrapped;
  size_t height = 0;
  for (size_t i = 0; i < kColumns; ++i) {
    wrapped.push_back(wrap(cells[i], kWidths[i]));
    height = std::max(height, wrapped.back().size());
  }
  std::string text;
  for (size_t y = 0; y < height; ++y) {
    std::string line;
    for (size_t i = 0; i < kColumns; ++i) {
      std::string cell = y < wrapped[i].size() ? wrapped[i][y] : "";
      size_t room = kWidths[i] - std::min(kWidths[i], cell.size());
      bool number = i >= 2 && i <= 4;
      line += (number ? std::string(room, ' ') + cell : cell + std::string(room, ' ')) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string number(int64_t value, std::string (*show)(double)) {
  return value < 0 ? "-" : show(static_cast<double>(value));
}

Cells cells_of(const RegistryEntry& entry) {
  std::string name = entry.name + (entry.dead.empty() ? "" : " *");
  if (size_t at = name.find("{language}"); at != std::string::npos)
    name.replace(at, 10, "LANGUAGE");
  return {name,
          entry.description,
          number(entry.download_bytes, human_bytes),
          number(entry.text_bytes, human_bytes),
          number(entry.tokens, human_count),
          entry.licence.empty() ? "not known" : entry.licence};
}

}  // namespace

std::string table(const Registry& registry) {
  std::string text = row({"name", "what it is", "download", "text", "tokens", "licence"});
  bool dead = false;
  for (const RegistryEntry& entry : registry.corpora) {
    text += row(cells_of(entry));
    dead = dead || !entry.dead.empty();
  }
  text += "\n- not known; sizes and tokens are about those that the publishers tell\n";
  if (dead)
    text +=
        "* its addresses have gone; a copy of yours is taken with --local-copy PATH. "
        "See --check NAME\n";
  return text;
}

}  // namespace neox
