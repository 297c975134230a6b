// A Jinja template in tokens, with the white space around its tags taken out as transformers asks
// Jinja to (trim_blocks, lstrip_blocks).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace neox::jinja {

struct Token {
  enum class Kind {
    kText,      // outside of tags
    kPrint,     // {{
    kPrintEnd,  // }}
    kBlock,     // {%
    kBlockEnd,  // %}
    kName,
    kString,  // without quotes and escapes
    kInteger,
    kFloat,
    kSign,  // an operator or a bracket
    kEnd    // of the template
  } kind = Kind::kEnd;
  std::string text = {};
  int line = 1;
};

// The last is kEnd. Throws Failure with the line.
std::vector<Token> tokens_of(std::string source);

}  // namespace neox::jinja
