// Lines for people on stderr, each with a time, and with the rank where it is not 0. A thread that
// stands for a rank says so once with set_log_rank(). Thread-safe: a line is never torn. Under the
// lines there may be one live line, which is rewritten in place (base/progress.h).
#pragma once
#include <string>

#include "base/error.h"

namespace neox {

// This thread, and its lines, belong to that rank of a world of that size.
void set_log_rank(int rank, int world);

void write_log(const char* level, const std::string& text);

// Shows this line under all log lines of the process, in place of the one before; "" removes it.
// Only for a terminal that can rewrite a line, and not wider than it.
void set_live_line(const std::string& line);

// On every rank.
template <class... Parts>
void log_info(const Parts&... parts) {
  write_log("", concat(parts...));
}

// Says what is wrong and what to do; the program goes on.
template <class... Parts>
void log_warning(const Parts&... parts) {
  write_log("warning: ", concat(parts...));
}

}  // namespace neox
