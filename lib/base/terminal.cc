#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "base/text.h"
#include "base/utf8.h"

namespace neox {
namespace {

// POSIX: the first of these that is set and not empty names the locale of characters.
bool locale_is_utf8(const Variable& variable) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string locale = lower_case(variable(name));
    if (locale.empty()) continue;
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Terminal describe_terminal(bool is_terminal, const Variable& variable) {
  Terminal terminal;
  std::string kind = variable("TERM");
  terminal.live = is_terminal && !kind.empty() && kind != "dumb";
  terminal.colour = terminal.live && variable("NO_COLOR").empty();
  terminal.utf8 = locale_is_utf8(variable);
  int columns = std::atoi(variable("COLUMNS").c_str());
  if (columns >= 20 && columns <= 1000) terminal.columns = columns;
  return terminal;
}

Terminal terminal_of(int fd) {
  Terminal terminal = describe_terminal(::isatty(fd) == 1, [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value ? value : "");
  });
  struct winsize size {};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.columns = size.ws_col;
  return terminal;
}

int display_width(std::string_view utf8) { return static_cast<int>(count_characters(utf8)); }

std::string printable(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    Utf8Sequence next = utf8_sequence(text, 0);
    std::string_view c = text.substr(0, next.valid ? next.bytes : 1);
    bool c1_control = c.size() == 2 && c[0] == '\xC2' && static_cast<unsigned char>(c[1]) < 0xA0;
    bool control = static_cast<unsigned char>(c[0]) < 0x20 || c[0] == 0x7F;
    safe += !next.valid ? "\xEF\xBF\xBD" : control || c1_control ? " " : c;
    text.remove_prefix(c.size());
  }
  return safe;
}

std::string cut_to_width(std::string_view utf8, int columns) {
  size_t end = 0;
  for (int width = 0; end < utf8.size(); ++end) {
    if (!continues_character(utf8[end]) && ++width > columns) break;
  }
  return std::string(utf8.substr(0, end));
}

}  // namespace neox
