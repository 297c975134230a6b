// A program as a child process: started with arguments, environment and standard input, watched
// through its standard error, ended within a time limit.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace neox::testing {

struct ChildOptions {
  std::vector<std::string> environment = {};  // "NAME=value", on top of the own
  std::string input = {};                     // standard input
  int limit_seconds = 60;
};

struct Ended {
  int code = 0;  // exit code, or minus the signal that ended it
  std::string out, err;
};

class Child {
 public:
  // arguments[0] is the program.
  explicit Child(const std::vector<std::string>& arguments, const ChildOptions& options = {});
  // A copy of this process that runs body, which returns the exit code: it starts at once, where a
  // program that links LibTorch loads for a quarter of a second.
  explicit Child(const std::function<int()>& body, const ChildOptions& options = {});
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();  // kills it where it still runs

  // Reads standard error up to `text`; false where it ends without. The pipe holds 4 KB, so the
  // child can be at most so many bytes of messages further.
  bool wait_for(const std::string& text);
  const std::string& said() const { return text_; }  // read so far
  void signal(int number);
  // Reads what is left and waits. Throws where the limit is passed, with what it said until then.
  Ended end();

 private:
  void start(const std::function<int()>& body, const ChildOptions& options);
  bool read_more();  // false at the end

  int pid_ = -1, err_ = -1, out_ = -1;
  int64_t deadline_ = 0;  // milliseconds of the steady clock
  std::string text_;
  bool ended_ = false;
};

}  // namespace neox::testing
