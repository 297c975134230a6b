// What remains to be done once calls, links and tags are gone: quotes, switches, punctuation, and
// the choice of lines. Linear in the text; pure functions.
#pragma once
#include <string>
#include <string_view>

namespace neox::wiki {

// __NOTOC__ and its like go.
std::string without_switches(std::string_view text);

// '''bold''' loses its quotes, ''italic'' has double quotes instead.
void replace_quotes(std::string& text);

// White space and punctuation; lines that hold nothing else go.
void tidy_punctuation(std::string& text);

// The lines that are prose, joined: without lists, empty sections and remains of tables. A title
// "== Name ==" becomes "Name." in front of its section's first line.
std::string prose_lines(std::string_view text);

}  // namespace neox::wiki
