#include "base/program.h"

#include <iostream>

#include "base/error.h"
#include "base/text.h"
#include "base/version.h"

namespace neox {

namespace po = boost::program_options;

Program::Program(ProgramInfo info) : info_(std::move(info)), options_("Options") {}

void Program::positional(const std::string& option, int max) {
  positional_.add(option.c_str(), max);
}

bool Program::parse(const std::vector<std::string>& arguments) {
  all_.add(options_);
  po::options_description common("Other");
  common.add_options()("help,h", "print this text")("version", "print the version");
  all_.add(common);
  try {
    int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(
        po::command_line_parser(arguments).options(all_).positional(positional_).style(style).run(),
        args_);
    if (has("help")) return std::cout << help(), false;
    if (has("version")) return std::cout << info_.name << " (neox.cpp) " << kVersion << "\n", false;
    po::notify(args_);
  } catch (const po::unknown_option& e) {
    std::vector<std::string> names;
    for (const auto& option : all_.options()) names.push_back("--" + option->long_name());
    std::string near = nearest(e.get_option_name(), names);
    fail(Exit::kUsage, "unknown option ", e.get_option_name(),
         near.empty() ? "" : "; did you mean " + near + "?", " See ", info_.name, " --help.");
  } catch (const po::error& e) { fail(Exit::kUsage, e.what(), ". See ", info_.name, " --help."); }
  return true;
}

std::string Program::help() const {
  std::ostringstream out;
  out << "Usage: " << info_.name << " " << info_.usage << "\n\n"
      << info_.summary << "\n\n"
      << info_.description << "\n"
      << all_;
  if (!info_.examples.empty()) out << "\nExamples:\n" << info_.examples;
  return out.str();
}

int run_program(const std::string& name, const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& e) {
    std::cerr << name << ": " << e.what() << "\n";
    return static_cast<int>(e.exit());
  } catch (const std::bad_alloc&) {
    std::cerr << name << ": out of memory\n";
    return static_cast<int>(Exit::kInternal);
  } catch (const std::exception& e) {
    std::cerr << name << ": " << e.what() << "\n";
    return static_cast<int>(Exit::kInternal);
  }
}

}  // namespace neox
