// [http://... external] and [[internal|links]], replaced by their labels as wikiextractor does.
// Linear in the text; pure functions.
#pragma once
#include <string>
#include <string_view>

namespace neox::wiki {

// [address label] becomes the label; a label that is the address of an image goes.
std::string replace_external_links(std::string_view text);

// [[page|label]]s becomes "labels"; links with a prefix, such as [[File:...]], [[Category:...]] and
// interwiki links, go, but for those of w, wiktionary and wikt.
std::string replace_internal_links(std::string_view text);

}  // namespace neox::wiki
