// Which addresses of the corpora answer.
#include <algorithm>

#include "base/error.h"
#include "base/tasks.h"
#include "base/text.h"
#include "corpus/corpus.h"
#include "corpus/request.h"

namespace neox {
namespace {

constexpr int kAtOnce = 16;

struct Answer {
  std::string corpus, address;  // as the table has it, with its counter
  std::string url;              // that is asked
  bool good = false;
  std::string said = {};  // "206, 36.4 MB", "HTTP status 404", "Could not resolve host"
};

// The first byte is asked for, since some servers answer HEAD otherwise than GET.
void ask(Answer& answer, double seconds) {
  Request request(answer.url, seconds / 2);
  request.set(CURLOPT_RANGE, "0-0");
  request.set(CURLOPT_TIMEOUT_MS, static_cast<long>(1000 * seconds));
  using Body = size_t (*)(char*, size_t, size_t, void*);
  Body end = [](char*, size_t, size_t, void*) { return size_t{CURL_WRITEFUNC_ERROR}; };
  request.set(CURLOPT_WRITEFUNCTION, end);
  CURLcode code = request.perform();
  long status = request.status();
  // A body that is not read ends the request as an error.
  answer.good = (status == 200 || status == 206) && (code == CURLE_OK || code == CURLE_WRITE_ERROR);
  answer.said = answer.good ? concat("HTTP status ", status) : request.describe(code);
  if (answer.good && request.whole_bytes() > 0)
    answer.said += ", " + human_bytes(static_cast<double>(request.whole_bytes()));
}

// Of many files the first and the last stand for the others.
std::vector<Answer> questions(const RegistryEntry& entry) {
  std::vector<Answer> answers;
  for (const std::string& address : entry.urls) {
    std::vector<std::string> urls = expand(address);
    answers.push_back({entry.name, address, urls.front()});
    if (urls.size() > 1) answers.push_back({entry.name, address, urls.back()});
  }
  return answers;
}

std::vector<RegistryEntry> asked(const Program& program, const Registry& registry) {
  std::vector<std::string> names;
  if (program.has("corpus")) names.push_back(program.get<std::string>("corpus"));
  for (const std::string& name : program.get<std::vector<std::string>>("check"))
    names.push_back(name);
  std::vector<RegistryEntry> entries;
  for (const std::string& name : names) entries.push_back(registry.corpus(name));
  if (!names.empty()) return entries;
  for (const RegistryEntry& entry : registry.corpora) {
    size_t at = entry.name.find("{language}");
    entries.push_back(at == std::string::npos ? entry
                                              : registry.corpus(entry.name.substr(0, at) + "en"));
  }
  return entries;
}

}  // namespace

CorpusCheck check_corpora(const Program& program, double seconds) {
  std::vector<RegistryEntry> entries = asked(program, read_registry(registry_of(program)));
  std::vector<Answer> answers;
  for (const RegistryEntry& entry : entries)
    for (Answer& answer : questions(entry)) answers.push_back(std::move(answer));
  run_tasks(answers.size(), kAtOnce, [&](size_t i) { ask(answers[i], seconds); });
  CorpusCheck check;
  for (const RegistryEntry& entry : entries) {
    if (entry.urls.empty()) continue;
    bool good = std::any_of(entry.urls.begin(), entry.urls.end(), [&](const std::string& address) {
      return std::all_of(answers.begin(), answers.end(), [&](const Answer& answer) {
        return answer.corpus != entry.name || answer.address != address || answer.good;
      });
    });
    check.text += concat(entry.name, good ? ": answers" : ": NO ANSWER", "\n");
    for (const Answer& answer : answers)
      if (answer.corpus == entry.name)
        check.text +=
            concat("  ", answer.good ? "yes  " : "no   ", answer.url, ": ", answer.said, "\n");
    if (!good && !entry.dead.empty()) check.text += "  " + entry.dead + "\n";
    if (!good) check.exit = Exit::kIo;
  }
  return check;
}

}  // namespace neox
