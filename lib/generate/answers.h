// Texts that grow side by side and are printed one after the other.
#pragma once
#include <chrono>
#include <ostream>
#include <string>
#include <vector>

#include "generate/generate.h"
#include "generate/session.h"
#include "generate/text_stream.h"

namespace neox {

class Answers {
 public:
  // Throw Error (74) where the output takes no more. Both must outlive the answers.
  Answers(const Tokenizer& tokenizer, TextForm form, std::ostream& out)
      : tokenizer_(tokenizer), form_(form), out_(out) {}

  // The next one; the functions below take its number. shown: what is printed in front of it, where
  // the form is plain; a text behind nothing begins.
  void add(const std::string& prompt, const std::string& shown);
  void start(size_t i);
  void add(size_t i, int32_t token);
  void end(size_t i, TextEnd how);

 private:
  struct Answer {
    TextStream stream;
    std::string prompt, text;  // text: what is not printed yet
    int64_t length = 0;        // tokens
    std::chrono::steady_clock::time_point begun = {};
    bool ended = false;
  };
  std::string json(const Answer& answer, TextEnd how) const;
  void print();

  const Tokenizer& tokenizer_;
  const TextForm form_;
  std::ostream& out_;
  std::vector<Answer> answers_;
  size_t first_ = 0;  // that is not printed whole
};

}  // namespace neox
