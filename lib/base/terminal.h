// What the terminal behind a file descriptor can show. Reads TERM, NO_COLOR, COLUMNS and the locale
// variables, and asks the kernel for the size.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace neox {

struct Terminal {
  bool live = false;    // a line can be rewritten in place: a terminal, and not a "dumb" one
  bool colour = false;  // live, and NO_COLOR is not set
  bool utf8 = false;    // the locale's character set; also where the output is a file
  int columns = 80;
};

// The value of an environment variable, "" where it is not set.
using Variable = std::function<std::string(const std::string& name)>;

Terminal terminal_of(int fd);

// The same without the kernel: what the variables say about a terminal or about a file.
Terminal describe_terminal(bool is_terminal, const Variable& variable);

// Characters, each taken to be one column wide.
int display_width(std::string_view utf8);

// The text cut to at most that many columns, between characters.
std::string cut_to_width(std::string_view utf8, int columns);

// The text made safe to show: control characters become spaces, bytes that are not UTF-8 U+FFFD.
std::string printable(std::string_view text);

}  // namespace neox
