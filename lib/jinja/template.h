// Templates of chats in Jinja, as transformers' apply_chat_template renders them (Jinja2 with
// trim_blocks and lstrip_blocks, in a sandbox: no template changes a value that it was given).
// Not known: extends, include, import, call, do, and what stands in few templates
// (docs/fine-tuning.md).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "jinja/value.h"

namespace neox::jinja {

struct Scope;

// What a statement leaves of the block it is in: the rest, or of the loop around it nothing.
enum class Flow { kOn, kBreak, kContinue };
using Statement = std::function<Flow(Scope&, GrowingText&)>;

// May be rendered by several threads at once.
class Template {
 public:
  // name: a file, for messages. Throws Error (64) with the line.
  Template(std::string source, std::string name);
  // The values are seen by name. Throws Error (74) with the line, or with what the template says
  // (raise_exception).
  std::string render(const Map& values) const;
  const std::string& source() const { return source_; }

 private:
  std::string source_, name_;
  std::vector<Statement> body_;
};

}  // namespace neox::jinja
