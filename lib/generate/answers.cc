#include "generate/answers.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/program.h"

namespace neox {

void Answers::add(const std::string& prompt, const std::string& shown) {
  auto begin = shown.empty() ? TextStream::Begin::kText : TextStream::Begin::kBehindPrompt;
  answers_.push_back(
      {TextStream(tokenizer_, begin), prompt, form_ == TextForm::kPlain ? shown : ""});
}

void Answers::start(size_t i) { answers_[i].begun = std::chrono::steady_clock::now(); }

void Answers::add(size_t i, int32_t token) {
  answers_[i].text += answers_[i].stream.add(token);
  ++answers_[i].length;
  print();
}

void Answers::end(size_t i, TextEnd how) {
  Answer& answer = answers_[i];
  answer.text += answer.stream.rest();
  if (form_ == TextForm::kJson) answer.text = json(answer, how);
  answer.text += "\n";
  answer.ended = true;
  print();
}

// Bytes of the prompt that are not UTF-8 become U+FFFD.
std::string Answers::json(const Answer& answer, TextEnd how) const {
  using Json = nlohmann::ordered_json;
  std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - answer.begun;
  Json line = {{"context", answer.prompt}, {"text", answer.text},
               {"length", answer.length},  {"finished", how == TextEnd::kToken},
               {"message", nullptr},       {"duration_seconds", std::round(taken.count()) / 1000}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Answers::print() {
  for (; first_ < answers_.size(); ++first_) {
    Answer& answer = answers_[first_];
    if (form_ == TextForm::kJson && !answer.ended) return;
    out_ << answer.text;
    flush_output(out_);
    answer.text.clear();
    if (!answer.ended) return;
  }
}

}  // namespace neox
