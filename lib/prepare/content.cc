#include "prepare/content.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"
#include "prepare/decoder.h"

namespace neox {
namespace {

using namespace std::string_view_literals;

struct Refused {
  std::string_view magic;
  const char* name;
  const char* cure;
};
constexpr Refused kRefused[] = {
    {"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x"},
    {"Rar!\x1a\x07", "a RAR archive", "unrar x"},
    {"LZIP\x01", "compressed with lzip", "lzip -dk"},
    {"\x1f\x9d", "compressed with compress", "uncompress -k"},
    {"\x02\x21\x4c\x18", "compressed in lz4's old format", "lz4 -dk"},
    {"\xff\xfe", "text in UTF-16", "iconv -f UTF-16 -t UTF-8 -o NEW"},
    {"\xfe\xff", "text in UTF-16", "iconv -f UTF-16 -t UTF-8 -o NEW"},
};

// The latter of encrypted ones. A text may begin with these letters.
bool is_parquet(std::string_view head) {
  return (head.starts_with("PAR1") || head.starts_with("PARE")) && is_binary(head);
}

// Of its formats for files and for streams.
bool is_arrow(std::string_view head) {
  return head.starts_with("ARROW1\0\0"sv) || head.starts_with("\xff\xff\xff\xff"sv);
}

std::string ending_of(const std::string& path) { return fs::path(path).extension().string(); }

bool one_of(const std::string& ending, std::initializer_list<const char*> endings) {
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

bool is_named_json(const std::string& path) {
  return one_of(ending_of(path), {".jsonl", ".ndjson", ".json"});
}

bool is_named_text(const std::string& path) {
  return one_of(ending_of(path), {".txt", ".text", ".md"});
}

// Of Wikimedia's parts "x.xml-p1p41242" too. enwik8 and enwik9, cut from a dump, are taken as they
// stand, which is what they are for.
bool is_wiki(const std::string& path, std::string_view head) {
  std::string_view name = path;
  name.remove_prefix(name.rfind('/') + 1);
  bool cut = name.starts_with("enwik") && name.size() > 5 && std::isdigit(name[5]);
  if (size_t end = head.find("?>"); head.starts_with("<?xml") && end != head.npos)
    head = trim(head.substr(end + 2));
  return !cut && head.starts_with("<mediawiki");
}

}  // namespace

InputFile::Packing packing_of(const std::string& path, std::string_view head) {
  using Packing = InputFile::Packing;
  for (const Refused& refused : kRefused)
    check_io(!head.starts_with(refused.magic), path, " is ", refused.name,
             ", which is not read here; convert it first: ", refused.cure, " ", path);
  if (is_parquet(head) || is_arrow(head)) return Packing::kColumnar;
  std::string ending = ending_of(path);
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) return Packing::kZip;
  constexpr size_t kMagicAt = 257;
  bool tar = head.size() > kMagicAt && head.substr(kMagicAt).starts_with("ustar");
  if (tar || (ending == ".tar" && !head.empty())) return Packing::kTar;
  if (compression_of(head)) return Packing::kCompressed;
  check_io(!compression_named(ending) && !one_of(ending, {".zip", ".tar", ".parquet", ".arrow"}),
           path, " is called ", ending, ", and ", head.empty() ? "is empty" : "has no such content",
           "; fetch or copy it again");
  return Packing::kNone;
}

InputFile::Format format_of(const std::string& path, std::string_view head, Separated separated) {
  bool json = is_named_json(path);
  if ((separated == Separated::kYes && !json) || is_named_text(path))
    return InputFile::Format::kText;
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  if (!json && is_wiki(path, trim(head))) return InputFile::Format::kWiki;
  char first = trim(head).empty() ? ' ' : trim(head).front();
  if (json && first == '[') return InputFile::Format::kJsonArray;
  return json || first == '{' ? InputFile::Format::kJsonLines : InputFile::Format::kText;
}

bool is_binary(std::string_view head) { return head.find('\0') != std::string_view::npos; }

bool is_left_out(const std::string& path, std::string_view head) {
  return is_binary(head) && !is_named_json(path);
}

void check_is_text(const std::string& path, std::string_view head) {
  check_io(!is_binary(head) || !is_named_text(path), path, " is called ", ending_of(path),
           ", and has bytes of value 0, which no text has: it is damaged, or something else; mend "
           "or remove it");
}

std::string decompressed_name(const std::string& path) {
  std::string ending = ending_of(path);
  if (!compression_named(ending)) return path;
  return path.substr(0, path.size() - ending.size()) + (ending.starts_with(".t") ? ".tar" : "");
}

}  // namespace neox
