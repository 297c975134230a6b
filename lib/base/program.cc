#include "base/program.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"

namespace neox {

namespace po = boost::program_options;

#ifdef NEOX_FOR_GPUS
static constexpr const char* kDevices = ", for GPUs and CPUs\n";
#else
static constexpr const char* kDevices = ", for CPUs\n";
#endif

Program::Program(ProgramInfo info) : info_(std::move(info)), options_("Options") {}

void Program::positional(const std::string& option, int max) {
  positional_.add(option.c_str(), max);
}

// Asked before Boost reads the next argument: gives a declared option its spelling, and takes what
// is one of the others.
std::vector<po::option> Program::take_other(std::vector<std::string>& arguments) {
  std::string& first = arguments.front();
  if (!first.starts_with("--") || first.size() == 2) return {};
  size_t end = std::min(first.find('='), first.size());
  std::string name = first.substr(2, end - 2), dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  if (all_.find_nothrow(name, false)) return {};
  if (all_.find_nothrow(dashed, false)) {
    first.replace(2, name.size(), dashed);
    return {};
  }
  if (!others_.take) return {};
  std::string value = others_.take(arguments);
  if (!value.empty()) return {po::option(others_.option, {value})};
  unknown_.push_back(arguments.front().substr(0, end));
  do arguments.erase(arguments.begin());
  while (!arguments.empty() && !arguments.front().starts_with("--"));
  return {};
}

// What to say behind the name of one, with a point.
std::string Program::about_unknown(const std::string& option) const {
  std::vector<std::string> names;
  for (const auto& declared : all_.options()) names.push_back("--" + declared->long_name());
  std::string near = nearest(option, names);
  std::string words = did_you_mean(near);
  if (others_.suggest) words = others_.suggest(option, names);
  return words + (words.ends_with('?') ? "" : ".");
}

void Program::fail_unknown(const std::vector<std::string>& options) const {
  if (options.size() == 1)
    fail(Exit::kUsage, "unknown option ", options[0], about_unknown(options[0]), " See ",
         info_.name, " --help.");
  std::string list;
  for (const std::string& option : options) list += concat("\n  ", option, about_unknown(option));
  fail(Exit::kUsage, options.size(), " options are unknown:", list, "\n", others_.advice, "See ",
       info_.name, " --help.");
}

// What stands alone where the program takes no more of it.
static constexpr const char* kSurplus = "argument too many";

void Program::fail_surplus(const po::parsed_options& parsed) const {
  for (const po::option& option : parsed.options)
    check_usage(option.string_key != kSurplus, "'", join(option.value, " "), "' is an ", kSurplus,
                ". Usage: ", info_.name, " ", info_.usage,
                "; a value with blanks needs quotes. See ", info_.name, " --help.");
}

// "" is no path; most often a variable of a shell is not set.
void Program::check_paths(const po::parsed_options& parsed) const {
  for (const po::option& option : parsed.options) {
    if (option.value.empty() || !option.value[0].empty()) continue;
    std::string takes = all_.find(option.string_key, false).format_parameter();
    for (const char* path : {"FILE", "DIR", "PATH", "PREFIX", "SRC"})
      check_usage(takes.find(path) == takes.npos, "the ", path, " of --", option.string_key,
                  " is empty; is it a variable that is not set?");
  }
}

bool Program::parse(const std::vector<std::string>& arguments) {
  if (!options_.options().empty()) all_.add(options_);
  po::options_description common("Other");
  common.add_options()("help,h", "print this text")("version", "print the version");
  all_.add(common);
  po::positional_options_description alone = positional_;
  if (alone.max_total_count() < std::numeric_limits<unsigned>::max()) alone.add(kSurplus, -1);
  try {
    int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::parsed_options parsed =
        po::command_line_parser(arguments)
            .options(all_)
            .positional(alone)
            .style(style)
            .extra_style_parser([&](std::vector<std::string>& a) { return take_other(a); })
            .run();
    if (!unknown_.empty()) fail_unknown(unknown_);
    fail_surplus(parsed);
    po::store(parsed, args_);
    if (has("help")) return std::cout << help(), false;
    if (has("version"))
      return std::cout << info_.name << " (neox.cpp) " << kVersion << kDevices, false;
    check_paths(parsed);
    po::notify(args_);
  } catch (const po::unknown_option& e) {
    fail_unknown({e.get_option_name()});
  } catch (const po::error& e) { fail(Exit::kUsage, e.what(), ". See ", info_.name, " --help."); }
  return true;
}

std::string Program::help() const {
  std::ostringstream out;
  out << "Usage: " << info_.name << " " << info_.usage << "\n\n"
      << info_.summary << "\n\n"
      << trim(info_.description) << "\n"
      << all_;
  if (!info_.examples.empty()) out << "\nExamples:\n" << info_.examples;
  return out.str();
}

void flush_output(std::ostream& out) {
  errno = 0;
  out.flush();
  if (out.good()) return;
  if (errno == 0) static_cast<void>(!::write(STDOUT_FILENO, "\n", 1));  // asks why it failed before
  fail(Exit::kIo, "cannot write to standard output",
       errno == 0 ? "" : ": " + describe_errno(errno));
}

namespace {

constexpr std::string_view kFromNew = "std::bad_alloc";

// Output that a full disk took must not pass as done, nor as a difference found (1).
int end_output(int code) {
  if (code == 0 || code == 1) flush_output(std::cout);
  return code;
}

// What a program can be told to need less memory.
const char* with_less_memory(std::string_view program) {
  if (program == "neox-train")
    return " neox-train --dry-run estimates what a run needs; a smaller "
           "train_micro_batch_size_per_gpu, checkpoint_activations: true and more ranks need less.";
  if (program == "neox-generate" || program == "neox-serve")
    return " A smaller --batch-size needs less.";
  if (program == "neox-prepare-data") return " Fewer --workers need less.";
  return "";
}

// Where memory ran out, LibTorch's list of frames says nothing that helps; of a thread that cannot
// be started the system says that a resource is unavailable.
std::string shown(const std::string& program, const std::exception& e) {
  std::string what = e.what();
  const auto* error = dynamic_cast<const std::system_error*>(&e);
  if (const auto* files = dynamic_cast<const std::filesystem::filesystem_error*>(&e))
    return concat("cannot use ", files->path1().string(), files->path2().empty() ? "" : " and ",
                  files->path2().string(), ": ", describe_errno(files->code().value()));
  if (error && error->code() == std::errc::resource_unavailable_try_again)
    return concat(what,
                  "\nNo more threads can be started. Their number is limited by ulimit -u and ",
                  "by pids.max of the control group.");
  size_t from_new = what.find(kFromNew);
  if (from_new != what.npos) what.replace(from_new, kFromNew.size(), "out of memory");
  size_t frames = std::min(what.find("\nException raised from"), what.find("\nframe #"));
  if (!is_out_of_memory(e) || std::min(frames, from_new) == what.npos) return what;
  return concat(what.substr(0, frames), "\nThere is too little memory.", with_less_memory(program));
}

// The next files that are opened take the numbers of closed streams, and what is written to a
// stream would go into them. What is put there can neither be read nor written, as one expects.
void occupy_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// What CUDA says of a GPU that is broken. The third is cudaErrorContained, in which recent GPUs
// report errors of their hardware; none of our kernels reads a neighbour's memory. The last two are
// what a GPU ends with that has fallen off its bus, or whose driver has given it up.
constexpr const char* kBrokenGpu[] = {"uncorrectable ECC error", "uncorrectable NVLink error",
                                      "peer GPU memory over nvlink or a hardware error",
                                      ": unknown error", "unspecified launch failure"};

}  // namespace

bool is_out_of_memory(const std::exception& e) {
  std::string_view what = e.what();
  return std::ranges::any_of(
      std::array{kFromNew, std::string_view("out of memory"), std::string_view("allocate memory")},
      [&](std::string_view says) { return what.find(says) != what.npos; });
}

Exit exit_of(const std::exception& e) {
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&e)) return Exit::kIo;
  const auto* error = dynamic_cast<const Error*>(&e);
  Exit exit = error ? error->exit() : Exit::kInternal;
  std::string_view text = e.what();
  bool broken = std::ranges::any_of(kBrokenGpu,
                                    [&](const char* says) { return text.find(says) != text.npos; });
  return broken && exit == Exit::kInternal ? Exit::kPeerLost : exit;
}

namespace {

struct Ending {
  std::string program;
  std::function<void(const std::exception&)> last_words;
  std::atomic<bool> without_destructors = false;
};

// There to the last: other libraries' ends come behind main.
Ending& ending() {
  static auto* all = new Ending;
  return *all;
}

int run_body(const std::string& name, const std::function<int()>& body) {
  try {
    return end_output(body());
  } catch (const std::exception& e) {
    std::cerr << name << ": " << shown(name, e) << "\n";
    return static_cast<int>(exit_of(e));
  }
}

[[noreturn]] void end_by(const std::exception& e) {
  write_log((ending().program + ": ").c_str(), shown(ending().program, e));
  std::_Exit(static_cast<int>(exit_of(e)));
}

// As std::terminate() calls it.
[[noreturn]] void end_on_the_spot() {
  static std::atomic<bool> ends = false;
  while (ends.exchange(true)) ::pause();  // another thread ends the program
  try {
    if (std::current_exception()) throw;
  } catch (const std::exception& e) {
    try {
      if (ending().last_words) ending().last_words(e);
    } catch (const std::exception& other) { end_by(other); }
    end_by(e);
  } catch (...) {}
  std::abort();
}

// Of memory that is broken, or that is a file: what the file no longer holds, or the storage no
// longer gives. Calls only what a signal's handler may.
void on_bus_error(int, siginfo_t* info, void*) {
  auto write = [](std::string_view text) {
    (void)!::write(STDERR_FILENO, text.data(), text.size());
  };
  write(ending().program);
  write(": SIGBUS: ");
  if (info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO) {
    utsname node{};
    ::uname(&node);
    write("an uncorrectable error of the memory of ");
    write(node.nodename);
    write("; leave this node out\n");
    ::_exit(static_cast<int>(Exit::kPeerLost));
  }
  write(
      "a file that is read as memory became shorter or cannot be read any more, or /dev/shm is "
      "full. Were data replaced while they were in use? (Write a new file and rename it "
      "instead.)\n");
  ::_exit(static_cast<int>(Exit::kIo));
}

void catch_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

LastWords::LastWords(std::function<void(const std::exception&)> words) {
  ending().last_words = std::move(words);
}
LastWords::~LastWords() { ending().last_words = nullptr; }

void end_without_destructors() { ending().without_destructors = true; }

int run_program(const std::string& name, const std::function<int()>& body) {
  ending().program = name;
  std::set_terminate(end_on_the_spot);
  // A limit on the size of files (ulimit -f) becomes an error of the write, which has a message.
  std::signal(SIGXFSZ, SIG_IGN);
  catch_bus_errors();
  occupy_closed_streams();
  int code = run_body(name, body);
  if (!ending().without_destructors) return code;
  std::cout.flush();
  std::_Exit(code);
}

}  // namespace neox
