// The tags of HTML and of MediaWiki's extensions in wikitext: which are dropped with what they
// enclose, which alone, which part words or paragraphs, which have a placeholder; as in
// wikiextractor. Linear in the text but for tags that never close, of which kMaxTag bytes are
// looked at. Pure functions.
#pragma once
#include <string>

namespace neox::wiki {

// Quotes in tags may hold ">"; a tag that has none within so many bytes is none.
inline constexpr size_t kMaxTag = 8192;

// <br> and <hr> become a space, headings and paragraphs a line end, where none stands beside them.
void replace_break_tags(std::string& text);

// Comments, and the tags alone of <b>, <span>, <ref name="x" /> and so on.
void drop_tags(std::string& text);

// <ref>, <table>, <gallery> and so on with what they enclose.
void drop_elements(std::string& text);

// {| tables |}
void drop_tables(std::string& text);

// <math> and <code> elements become formula_1, codice_1 ...; equal ones the same.
void replace_placeholders(std::string& text);

}  // namespace neox::wiki
