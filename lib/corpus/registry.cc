#include "corpus/registry.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/value.h"

namespace neox {
namespace {

constexpr std::string_view kPlaceholder = "{language}";
constexpr size_t kMostFiles = 100'000;

// Without the query, as of Hugging Face's "...?download=true".
std::string last_part(const std::string& url) {
  std::string path = url.substr(0, url.find_first_of("?#"));
  return path.substr(path.rfind('/') + 1);
}

// The keys of an entry. Every one is taken once; what is left over is an error.
class EntryReader {
 public:
  explicit EntryReader(const Value& map) : map_(map) {
    require(map.kind == Value::Kind::kMap, map, "an entry is a map of keys");
  }

  std::string text(const char* key) {
    const Value* value = take(key);
    if (!value) return "";
    require_text(key, *value);
    return value->text;
  }

  int64_t number(const char* key) {
    const Value* value = take(key);
    return value ? number(key, *value) : -1;
  }

  // A list, or one item without brackets.
  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> found;
    for (const Value& item : items(key)) {
      require_text(key, item);
      found.push_back(item.text);
    }
    return found;
  }

  std::vector<int64_t> numbers(const char* key) {
    std::vector<int64_t> found;
    for (const Value& item : items(key)) found.push_back(number(key, item));
    return found;
  }

  void finish() const {
    for (size_t i = 0; i < map_.names.size(); ++i) {
      if (std::find(taken_.begin(), taken_.end(), map_.names[i]) != taken_.end()) continue;
      std::string near = nearest(map_.names[i], taken_);
      require(false, map_.items[i], concat("unknown key ", map_.names[i], did_you_mean(near)));
    }
  }

  void require(bool ok, const Value& value, const std::string& what) const {
    check_usage(ok, value.place.text(), ": ", what);
  }

 private:
  const Value* take(const char* key) {
    taken_.emplace_back(key);
    return map_.find(key);
  }

  std::vector<Value> items(const char* key) {
    const Value* value = take(key);
    if (!value) return {};
    return value->kind == Value::Kind::kList ? value->items : std::vector<Value>{*value};
  }

  void require_text(const char* key, const Value& value) const {
    require(value.kind != Value::Kind::kList && value.kind != Value::Kind::kMap, value,
            concat(key, " must be a text"));
  }

  int64_t number(const char* key, const Value& value) const {
    require(value.integer().value_or(-1) >= 0, value,
            concat(key, " must be a number that is not negative"));
    return *value.integer();
  }

  const Value& map_;
  std::vector<std::string> taken_;
};

// The mistakes that one key alone does not show; "" where there is none.
std::string mistake_of(const RegistryEntry& entry) {
  if (entry.name.empty()) return "an entry needs a name";
  if (entry.name.find('/') != std::string::npos) return entry.name + " must have no slash";
  std::set<std::string> names;
  size_t count = 0;
  for (const std::string& url : entry.urls) {
    if (!url.starts_with("http://") && !url.starts_with("https://"))
      return url + " is no address of http or https";
    size_t files = expand(url).size();
    if (count > 0 && files != count)
      return concat(url, " stands for ", files, " files, and the address before it for ", count);
    count = files;
  }
  for (const RegistryFile& file : files_of(entry)) {
    if (file.name.empty()) return "the first of urls must end in the file's name";
    if (!names.insert(file.name).second) return "two files have the name " + file.name;
  }
  for (auto [key, given] :
       {std::pair("bytes", entry.bytes.size()), {"sha256", entry.sha256.size()}})
    if (given != 0 && given != count)
      return concat(key, " of ", given, " files are given, and there are ", count);
  for (const std::string& sum : entry.sha256)
    if (sum.size() != 64 || sum.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      return "sha256 must have 64 hexadecimal digits, and not be " + sum;
  return "";
}

RegistryEntry read_entry(const Value& value) {
  EntryReader reader(value);
  RegistryEntry entry{.name = reader.text("name"),
                      .description = reader.text("description"),
                      .source = reader.text("source"),
                      .licence = reader.text("licence"),
                      .dead = reader.text("dead"),
                      .urls = reader.texts("urls"),
                      .bytes = reader.numbers("bytes"),
                      .sha256 = reader.texts("sha256"),
                      .download_bytes = reader.number("download_bytes"),
                      .text_bytes = reader.number("text_bytes"),
                      .tokens = reader.number("tokens"),
                      .keys = reader.texts("keys"),
                      .split_on = reader.text("split_on")};
  reader.finish();
  std::string mistake;
  try {
    mistake = mistake_of(entry);
  } catch (const Error& e) { mistake = e.what(); }
  reader.require(mistake.empty(), value, mistake);
  for (std::string& sum : entry.sha256) sum = lower_case(sum);
  for (int64_t bytes : entry.bytes)
    entry.download_bytes = std::max<int64_t>(entry.download_bytes, 0) + bytes;
  return entry;
}

std::vector<RegistryEntry> read_entries(const Value& all, const char* section) {
  std::vector<RegistryEntry> entries;
  const Value* list = all.find(section);
  if (!list) return entries;
  check_usage(list->kind == Value::Kind::kList, list->place.text(), ": ", section,
              " must be a list of entries");
  for (const Value& item : list->items) entries.push_back(read_entry(item));
  return entries;
}

std::string with(std::string text, std::string_view language) {
  for (size_t at; (at = text.find(kPlaceholder)) != std::string::npos;)
    text.replace(at, kPlaceholder.size(), language);
  return text;
}

// Is the name that of the entry for some language, "" included? Which?
std::optional<std::string> language_in(const std::string& name, const RegistryEntry& entry) {
  size_t at = entry.name.find(kPlaceholder);
  if (at == std::string::npos || !name.starts_with(entry.name.substr(0, at))) return {};
  std::string language = name.substr(at);
  bool fits =
      language.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
  return fits ? std::optional(language) : std::nullopt;
}

}  // namespace

std::vector<std::string> expand(const std::string& pattern) {
  size_t open = 0, dots = pattern.find(".."), close = pattern.find('}', dots);
  if (dots != std::string::npos) open = pattern.rfind('{', dots);
  if (dots == std::string::npos || open == std::string::npos || close == std::string::npos)
    return {pattern};
  std::string first = pattern.substr(open + 1, dots - open - 1);
  auto from = number_of<uint64_t>(first),
       to = number_of<uint64_t>(pattern.substr(dots + 2, close - dots - 2));
  check_usage(from && to && *from <= *to && *to - *from < kMostFiles, "the counter in ", pattern,
              " must be two numbers that go up, such as {00..29}");
  std::vector<std::string> expanded;
  for (size_t i = *from; i <= *to; ++i) {
    std::string number = std::to_string(i);
    if (number.size() < first.size()) number.insert(0, first.size() - number.size(), '0');
    expanded.push_back(pattern.substr(0, open) + number + pattern.substr(close + 1));
  }
  return expanded;
}

std::vector<size_t> parse_shards(const std::string& text, size_t count) {
  std::set<size_t> chosen;
  for (size_t i = 0; text.empty() && i < count; ++i) chosen.insert(i);
  if (text.empty()) return {chosen.begin(), chosen.end()};
  for (const std::string& part : split(text, ',')) {
    size_t dash = part.find('-');
    auto from = number_of<uint64_t>(part.substr(0, dash));
    auto to = dash == std::string::npos ? from : number_of<uint64_t>(part.substr(dash + 1));
    check_usage(from && to && *from <= *to && *to < count, "--shards ", text, ": ", part,
                " is not one or a range of the files 0 .. ", count - 1,
                "; give it as 0-3 or 0,5,7-9");
    for (size_t i = *from; i <= *to; ++i) chosen.insert(i);
  }
  return {chosen.begin(), chosen.end()};
}

std::vector<RegistryFile> files_of(const RegistryEntry& entry) {
  std::vector<RegistryFile> files;
  for (const std::string& pattern : entry.urls) {
    std::vector<std::string> urls = expand(pattern);
    files.resize(urls.size());
    for (size_t i = 0; i < urls.size(); ++i) files[i].remote.urls.push_back(urls[i]);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name = last_part(files[i].remote.urls[0]);
    if (i < entry.bytes.size()) files[i].remote.bytes = entry.bytes[i];
    if (i < entry.sha256.size()) files[i].remote.sha256 = entry.sha256[i];
  }
  return files;
}

RegistryEntry Registry::corpus(const std::string& name) const {
  std::vector<std::string> names;
  for (const RegistryEntry& entry : corpora) {
    if (entry.name == name) return entry;
    names.push_back(with(entry.name, "LANGUAGE"));
    auto language = language_in(name, entry);
    if (!language) continue;
    check_usage(!language->empty(), "say which language: ", with(entry.name, "en"), ", ",
                with(entry.name, "de"), " or another one of ", entry.source);
    RegistryEntry found = entry;
    found.name = name;
    std::replace(language->begin(), language->end(), '-', '_');  // be-tarask in names of databases
    found.description = with(found.description, *language);
    for (std::string& url : found.urls) url = with(url, *language);
    return found;
  }
  std::string near = nearest(name, names);
  fail(Exit::kUsage, "there is no corpus ", name, did_you_mean(near, "."),
       " There are: ", join(names, ", "),
       ". Files of your own: --input PATH --output-prefix PREFIX");
}

const RegistryEntry* Registry::tokenizer(const std::string& name) const {
  auto found = std::find_if(tokenizers.begin(), tokenizers.end(),
                            [&](const RegistryEntry& entry) { return entry.name == name; });
  return found == tokenizers.end() ? nullptr : &*found;
}

Registry read_registry(const fs::path& file) {
  Value all = parse_yaml(read_file(file), file.string());
  check_usage(all.kind == Value::Kind::kMap, file.string(), ": no map of corpora and tokenizers");
  for (size_t i = 0; i < all.names.size(); ++i)
    check_usage(all.names[i] == "corpora" || all.names[i] == "tokenizers",
                all.items[i].place.text(), ": unknown key ", all.names[i],
                "; there are corpora and tokenizers");
  Registry registry{.corpora = read_entries(all, "corpora"),
                    .tokenizers = read_entries(all, "tokenizers")};
  std::set<std::string> names;
  for (const RegistryEntry& entry : registry.corpora)
    check_usage(names.insert(entry.name).second, file.string(), " has two corpora ", entry.name);
  for (const RegistryEntry& entry : registry.tokenizers)
    check_usage(files_of(entry).size() == 1, file.string(), ": the tokenizer ", entry.name,
                " needs the urls of one file");
  return registry;
}

fs::path default_registry() {
  fs::path file = installed_config("corpora.yml");
  check_io(fs::exists(file), "the table of corpora ", file.string(),
           " is not there; name it with --corpora FILE");
  return file;
}

}  // namespace neox
