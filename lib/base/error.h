// Errors as exceptions that know the exit code of the program. Libraries throw; main() prints and
// returns the code.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace neox {

// Exit codes of every program (docs/exit-codes.md). 2, 3, 134, 137, 139 and 143 are left to others.
enum class Exit {
  kDone = 0,
  kDiffers = 1,     // of comparing alone, as diff and cmp have it
  kUsage = 64,      // command line or configuration
  kInternal = 70,   // a bug, or an error of a library
  kIo = 74,         // input or output, and damaged files
  kRequeue = 75,    // saved, and asks to be started again
  kPeerLost = 76,   // another rank is gone, or what this node has lost: its GPU, memory, storage
  kNotFinite = 78,  // the loss is not finite
};

class Error : public std::runtime_error {
 public:
  Error(Exit exit, const std::string& message) : std::runtime_error(message), exit_(exit) {}
  Exit exit() const { return exit_; }

 private:
  Exit exit_;
};

// A file that is or may be there, but that the system does not give: what it holds is not known.
class Unreadable : public Error {
 public:
  // error: the system's errno.
  Unreadable(int error, const std::string& message, Exit exit = Exit::kIo)
      : Error(exit, message), error_(error) {}
  int error() const { return error_; }
  // Whether nodes get it that have lost the storage: EIO, ESHUTDOWN, ENOTCONN, ESTALE.
  bool lost_storage() const;

 private:
  int error_;
};
// Throws for a file of which the system gave such an errno: Unreadable, or an Error of exit code 74
// where it says that there is no such file.
[[noreturn]] void fail_to_read(int error, const std::string& message);

// concat("tp=", 3) is "tp=3".
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// fail(Exit::kIo, path, ": ", reason) throws.
template <class... Parts>
[[noreturn]] void fail(Exit exit, const Parts&... parts) {
  throw Error(exit, concat(parts...));
}

// check(n > 0, "n is ", n, ", not positive") throws Error unless the condition holds.
template <class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) fail(Exit::kInternal, parts...);
}

// The same for what the user asked for: command line, configuration, environment.
template <class... Parts>
void check_usage(bool ok, const Parts&... parts) {
  if (!ok) fail(Exit::kUsage, parts...);
}

// The same for files: missing, damaged, not writable.
template <class... Parts>
void check_io(bool ok, const Parts&... parts) {
  if (!ok) fail(Exit::kIo, parts...);
}

// "No space left on device" and the like, with what to do where that is known (ENOSPC, EDQUOT,
// EROFS, EACCES ...).
std::string describe_errno(int error);

}  // namespace neox
