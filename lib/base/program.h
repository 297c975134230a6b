// What every program shares: --help with examples, --version, errors that end with the right exit
// code.
#pragma once
#include <boost/program_options.hpp>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace neox {

struct ProgramInfo {
  std::string name;         // "neox-train"
  std::string summary;      // one line
  std::string usage;        // "CONFIG... [options]"
  std::string description;  // a paragraph or two
  std::string examples;     // command lines with a comment each
};

// Options that are not declared one by one, such as the keys of a configuration.
struct OtherOptions {
  std::string option;  // the declared one that takes their values
  // Removes one from the front of the arguments, and what belongs to it, and returns its value;
  // "" where the first argument is none of them.
  std::function<std::string(std::vector<std::string>&)> take;
  // What to say of one that is unknown, given the declared ones: "; did you mean --num-layers?"
  std::function<std::string(const std::string&, std::vector<std::string>)> suggest;
  std::string advice = {};  // where several are unknown
};

// The value of an option, by its name in --help.
inline auto text(const char* name) {
  return boost::program_options::value<std::string>()->value_name(name);
}
inline auto number(const char* name) {
  return boost::program_options::value<int64_t>()->value_name(name);
}
inline auto texts(const char* name) {
  return boost::program_options::value<std::vector<std::string>>()->composing()->value_name(name);
}

class Program {
 public:
  explicit Program(ProgramInfo info);

  // The program's own options; add to them before parse().
  boost::program_options::options_description& options() { return options_; }
  // Names the option that takes what stands alone on the command line; max -1: any number.
  void positional(const std::string& option, int max);
  void others(OtherOptions others) { others_ = std::move(others); }

  // In the names of options - and _ are the same.
  // Prints help or version and returns false where they were asked for. Throws Error (64) for what
  // it cannot read, naming the nearest valid option, and for a path that is empty.
  bool parse(int argc, char** argv) { return parse({argv + 1, argv + argc}); }
  bool parse(const std::vector<std::string>& arguments);  // without the program's name
  const boost::program_options::variables_map& args() const { return args_; }
  bool has(const std::string& option) const { return args_.count(option) > 0; }
  template <class T>
  T get(const std::string& option) const {
    return args_[option].as<T>();
  }
  template <class T>
  std::optional<T> given(const std::string& option) const {
    return has(option) ? std::optional(get<T>(option)) : std::nullopt;
  }
  // The values of an option of many; none where it is not given.
  std::vector<std::string> list(const std::string& option) const {
    return given<std::vector<std::string>>(option).value_or(std::vector<std::string>());
  }
  std::string help() const;

 private:
  std::vector<boost::program_options::option> take_other(std::vector<std::string>& arguments);
  std::string about_unknown(const std::string& option) const;
  [[noreturn]] void fail_unknown(const std::vector<std::string>& options) const;
  void fail_surplus(const boost::program_options::parsed_options& parsed) const;
  void check_paths(const boost::program_options::parsed_options& parsed) const;

  ProgramInfo info_;
  OtherOptions others_;
  boost::program_options::options_description options_, all_;
  boost::program_options::positional_options_description positional_;
  boost::program_options::variables_map args_;
  std::vector<std::string> unknown_;  // where others are taken
};

// Throws Error (74) with the reason where what was written to the standard output is lost.
void flush_output(std::ostream& out);

// The code of a program that ends by this: an Error's own; kPeerLost where CUDA says that memory or
// link of the GPU are broken (cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable,
// cudaErrorContained), which the same program survives on another GPU; else kInternal.
Exit exit_of(const std::exception& e);

// Whether it says that there was too little memory.
bool is_out_of_memory(const std::exception& e);

// Runs the body and turns what it throws into "<name>: <message>" on stderr and an exit code. An
// exception that leaves a destructor ends the program with both on the spot: where a GPU fails,
// LibTorch throws again as it takes back memory that the GPU was to copy from or to.
int run_program(const std::string& name, const std::function<int()>& body);

// Any thread. From now on run_program() does not return but ends the process, without the
// destructors of static objects: a thread that was left behind in a library may still need them.
void end_without_destructors();

// While one lives, it is called with such an exception first. What it throws is told instead.
class LastWords {
 public:
  explicit LastWords(std::function<void(const std::exception&)> words);
  ~LastWords();
  LastWords(const LastWords&) = delete;
};

}  // namespace neox
