#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/error.h"

namespace neox::testing {
namespace {

constexpr int kPipeBytes = 4096;

#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kMillisecondsOfALimit = 4000;  // sanitizers make a program that much slower
#else
constexpr int64_t kMillisecondsOfALimit = 1000;
#endif

int64_t now_milliseconds() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

int memory_file(const std::string& content) {
  int fd = ::memfd_create("child", MFD_CLOEXEC);
  check(
      fd >= 0 && ::write(fd, content.data(), content.size()) >= 0 && ::lseek(fd, 0, SEEK_SET) == 0,
      "a file in memory");
  return fd;
}

std::string content_of(int fd) {
  std::string text;
  char part[4096];
  ::lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = ::read(fd, part, sizeof part)) > 0;) text.append(part, size_t(n));
  return text;
}

int become(const std::vector<std::string>& arguments, const ChildOptions& options) {
  ::setenv("OMP_NUM_THREADS", "1", 1);
  for (const std::string& entry : options.environment) {
    size_t equals = entry.find('=');
    ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  ::_exit(127);
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments, const ChildOptions& options) {
  start([&] { return become(arguments, options); }, options);
}

Child::Child(const std::function<int()>& body, const ChildOptions& options) {
  start(body, options);
}

void Child::start(const std::function<int()>& body, const ChildOptions& options) {
  deadline_ = now_milliseconds() + kMillisecondsOfALimit * options.limit_seconds;
  int pipe[2];
  check(::pipe2(pipe, O_CLOEXEC) == 0, "pipe");
  ::fcntl(pipe[0], F_SETPIPE_SZ, kPipeBytes);
  int in = memory_file(options.input);
  out_ = memory_file("");
  err_ = pipe[0];
  std::fflush(nullptr);
  pid_ = ::fork();
  check(pid_ >= 0, "fork");
  if (pid_ == 0) {
    ::dup2(in, STDIN_FILENO), ::dup2(out_, STDOUT_FILENO), ::dup2(pipe[1], STDERR_FILENO);
    ::close(pipe[0]), ::close(pipe[1]);
    int code = body();
    std::cout.flush();
    ::_exit(code);  // LibTorch takes a tenth of a second to end well
  }
  ::close(pipe[1]), ::close(in);
}

Child::~Child() {
  if (!ended_) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  ::close(err_), ::close(out_);
}

bool Child::read_more() {
  pollfd ready{err_, POLLIN, 0};
  int64_t left = deadline_ - now_milliseconds();
  if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) == 0) {
    ::kill(pid_, SIGKILL);
    fail(Exit::kInternal, "the child did not end in time; it said:\n", text_);
  }
  char part[256];
  ssize_t n = ::read(err_, part, sizeof part);
  if (n > 0) text_.append(part, static_cast<size_t>(n));
  return n > 0;
}

bool Child::wait_for(const std::string& text) {
  while (text_.find(text) == std::string::npos)
    if (!read_more()) return false;
  return true;
}

void Child::signal(int number) { ::kill(pid_, number); }

Ended Child::end() {
  while (read_more()) {}
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ended_ = true;
  return {WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), content_of(out_), text_};
}

}  // namespace neox::testing
