#include "tokenizer/normalizer.h"

namespace neox {
namespace {

std::string_view replace(const Normalizer& step, std::string_view text, std::string& storage) {
  size_t copied = 0;
  bool changed = false;
  step.pattern.find(text, [&](size_t begin, size_t end) {
    if (!changed) storage.clear();
    changed = true;
    storage.append(text, copied, begin - copied).append(step.content);
    copied = end;
  });
  return changed ? storage.append(text, copied) : text;
}

std::string_view apply(const Normalizer& step, std::string_view text, bool begins,
                       std::string& storage) {
  switch (step.kind) {
    case Normalizer::Kind::kForm:
      return unicode::in_form(text, step.form, storage);
    case Normalizer::Kind::kReplace:
      return replace(step, text, storage);
    case Normalizer::Kind::kPrepend:
      return begins && !text.empty() ? storage.assign(step.content).append(text) : text;
  }
  return text;
}

}  // namespace

std::string_view normalize(std::span<const Normalizer> steps, std::string_view text, bool begins,
                           std::string& storage) {
  std::string made;
  for (const Normalizer& step : steps) {
    std::string_view next = apply(step, text, begins, made);
    if (next.data() != made.data()) continue;
    storage.swap(made);
    text = storage;
  }
  return text;
}

}  // namespace neox
