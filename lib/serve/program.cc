#include "serve/program.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <csignal>
#include <iterator>
#include <string_view>

#include "base/log.h"
#include "base/signals.h"
#include "generate/conversation.h"
#include "generate/load.h"
#include "launch/cpu.h"
#include "model/device.h"
#include "serve/service.h"

namespace neox {
namespace {

std::atomic<Service*> g_service = nullptr;  // a signal handler can reach nothing else

// The first one lets texts that have begun end, which may take minutes; the second, whichever it
// is, ends the program.
void on_signal(int number) {
  if (Service* service = g_service) service->stop();
  default_stop_signals();
  constexpr std::string_view kAnswer =
      "\nneox-serve: ends when the texts that have begun are done; a second signal ends it at "
      "once\n";
  std::string_view answer = kAnswer.substr(number == SIGINT ? 0 : 1);  // behind the terminal's ^C
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, answer.data(), answer.size());
}

// Of NEOX_SERVE_KEY. The blanks around a header's value are not part of it, and it has no control
// characters: requests could not bring such a key.
std::string key_of_requests() {
  Environment env = environment();
  std::string key = variable(env, "NEOX_SERVE_KEY");
  check_usage(!key.empty() || !env.contains("NEOX_SERVE_KEY"),
              "NEOX_SERVE_KEY is empty; is it a variable that is not set? Without a key: unset it");
  check_usage(std::ranges::none_of(key, [](char c) { return c != '\t' && std::iscntrl(c & 0xFF); }),
              "NEOX_SERVE_KEY has a control character, such as the end of a line, which no request "
              "can bring: set it without");
  check_usage(!key.ends_with(' ') && !key.ends_with('\t'),
              "NEOX_SERVE_KEY ends with a blank, which no request can bring: set it without");
  return key;
}

void say_where(const std::string& url, const ServedModel& model, const ServiceOptions& options) {
  log_info("Serving ", model.name, " on ", url, ", up to ", options.batch_size, " texts at once",
           options.key.empty() ? "" : ", for those who have the key",
           "; SIGTERM or Ctrl-C ends it. Try:\n  curl ", url,
           "/v1/completions -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 50}'",
           options.key.empty() ? "" : " -H \"Authorization: Bearer $NEOX_SERVE_KEY\"");
}

}  // namespace

ServeOptions serve_options(const Program& program) {
  ServeOptions o{.checkpoint = checkpoint_option(program, "neox-serve"),
                 .overrides = override_options(program)};
  o.chat_template = program.given<std::string>("chat-template").value_or("");
  o.listen = program.get<std::string>("listen");
  o.batch_size = program.get<int64_t>("batch-size");
  check_usage(o.batch_size > 0, "--batch-size ", o.batch_size, ": must be at least 1");
  return o;
}

void serve(const ServeOptions& options) {
  ServiceOptions service_options;
  service_options.key = key_of_requests();
  at::set_num_threads(cpu_share(environment(), cpu_counts(), {}).threads);
  LoadedModel loaded(options.checkpoint, options.overrides, pick_device(environment()));
  ServedModel served{loaded.tokenizer(), loaded.model().config(), options.checkpoint.string()};
  service_options.http.listen = options.listen;
  service_options.batch_size = options.batch_size;
  service_options.ends = loaded.ends();
  if (!options.chat_template.empty()) {
    served.chat = chat_template_for(options.chat_template, loaded.config().tokenizer.vocab_file,
                                    served.tokenizer);
    std::ranges::copy(ends_of_replies(*served.chat, served.tokenizer),
                      std::back_inserter(service_options.ends));
  }
  Service service(loaded.model(), served, service_options);
  g_service = &service;
  on_stop_signals(on_signal);
  say_where(service.url(), served, service_options);
  service.run();
  g_service = nullptr;
  log_info("Stopped");
}

}  // namespace neox
