#include "corpus/registry.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/value.h"

namespace neox {
namespace {

std::string last_part(const std::string& url) { return url.substr(url.rfind('/') + 1); }

// The keys of an entry. Every one is taken once; what is left over is an error.
class EntryReader {
 public:
  explicit EntryReader(const Value& map) : map_(map) {
    require(map.kind == Value::Kind::kMap, map, "an entry is a map of keys");
  }

  std::string text(const char* key) {
    const Value* value = take(key);
    if (!value) return "";
    require(value->kind != Value::Kind::kList && value->kind != Value::Kind::kMap, *value,
            concat(key, " must be a text"));
    return value->text;
  }

  int64_t bytes(const char* key) {
    const Value* value = take(key);
    if (!value) return -1;
    require(value->integer().value_or(-1) >= 0, *value, concat(key, " must be a number of bytes"));
    return *value->integer();
  }

  std::vector<std::string> texts(const char* key) {
    const Value* value = take(key);
    std::vector<std::string> found;
    if (!value) return found;
    require(value->kind == Value::Kind::kList, *value, concat(key, " must be a list"));
    for (const Value& item : value->items) found.push_back(item.text);
    return found;
  }

  bool has(const char* key) const { return map_.find(key) != nullptr; }

  void finish() const {
    for (size_t i = 0; i < map_.names.size(); ++i) {
      if (std::find(taken_.begin(), taken_.end(), map_.names[i]) != taken_.end()) continue;
      std::string near = nearest(map_.names[i], taken_);
      require(false, map_.items[i],
              concat("unknown key ", map_.names[i],
                     near.empty() ? "" : concat("; did you mean ", near, "?")));
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

  const Value& map_;
  std::vector<std::string> taken_;
};

enum class Names { kOfUrl, kOfEntry };

RegistryEntry read_entry(const Value& value, Names names) {
  EntryReader reader(value);
  RegistryEntry entry{.name = reader.text("name"),
                      .description = reader.text("description"),
                      .source = reader.text("source"),
                      .licence = reader.text("licence"),
                      .file = {.urls = reader.texts("urls"),
                               .bytes = reader.bytes("bytes"),
                               .sha256 = reader.text("sha256")},
                      .archive = reader.has("unpack"),
                      .members = reader.texts("unpack"),
                      .text_bytes = reader.bytes("text_bytes"),
                      .split_on = reader.text("split_on")};
  reader.finish();
  reader.require(!entry.name.empty(), value, "an entry needs a name");
  reader.require(!entry.file.urls.empty(), value, entry.name + " needs urls");
  size_t digits = entry.file.sha256.size();
  reader.require(digits == 0 || digits == 64, value, "sha256 must have 64 hexadecimal digits");
  entry.file_name = names == Names::kOfEntry ? entry.name : last_part(entry.file.urls[0]);
  reader.require(!entry.file_name.empty(), value, "the first of urls must end in the file's name");
  return entry;
}

std::vector<RegistryEntry> read_entries(const Value& all, const char* section, Names names) {
  std::vector<RegistryEntry> entries;
  const Value* list = all.find(section);
  if (!list) return entries;
  check_usage(list->kind == Value::Kind::kList, list->place.text(), ": ", section,
              " must be a list of entries");
  for (const Value& item : list->items) entries.push_back(read_entry(item, names));
  return entries;
}

const RegistryEntry& find(const std::vector<RegistryEntry>& entries, const std::string& name,
                          const char* what) {
  std::vector<std::string> names;
  for (const RegistryEntry& entry : entries) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  std::string near = nearest(name, names);
  fail(Exit::kUsage, "there is no ", what, " ", name,
       near.empty() ? "" : concat("; did you mean ", near, "?"), " There are: ", join(names, ", "),
       ". Files of your own: --input PATH --output-prefix PREFIX");
}

}  // namespace

const RegistryEntry& Registry::corpus(const std::string& name) const {
  return find(corpora, name, "corpus");
}

const RegistryEntry& Registry::tokenizer(const std::string& name) const {
  return find(tokenizers, name, "tokenizer");
}

Registry read_registry(const fs::path& file) {
  Value all = parse_yaml(read_file(file), file.string());
  check_usage(all.kind == Value::Kind::kMap, file.string(), ": no map of corpora and tokenizers");
  for (size_t i = 0; i < all.names.size(); ++i)
    check_usage(all.names[i] == "corpora" || all.names[i] == "tokenizers",
                all.items[i].place.text(), ": unknown key ", all.names[i],
                "; there are corpora and tokenizers");
  return {.corpora = read_entries(all, "corpora", Names::kOfUrl),
          .tokenizers = read_entries(all, "tokenizers", Names::kOfEntry)};
}

fs::path default_registry() {
  std::error_code error;
  fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  fs::path first;
  for (const char* place : {"../share/neox/configs", "../../../configs"}) {
    fs::path file = (bin / place / "corpora.yml").lexically_normal();
    if (fs::exists(file)) return file;
    if (first.empty()) first = file;
  }
  fail(Exit::kIo, "the table of corpora ", first.string(),
       " is not there; name it with --corpora FILE");
}

std::string table(const Registry& registry) {
  size_t name = 4, licence = 7;
  for (const RegistryEntry& entry : registry.corpora) {
    name = std::max(name, entry.name.size());
    licence = std::max(licence, entry.licence.size());
  }
  auto line = [&](std::string a, std::string b, std::string c, const std::string& d) {
    a.resize(name + 2, ' ');
    b.resize(10, ' ');
    c.resize(licence + 2, ' ');
    return a + b + c + d + "\n";
  };
  std::string text = line("name", "download", "licence", "what it is");
  for (const RegistryEntry& entry : registry.corpora)
    text +=
        line(entry.name,
             entry.file.bytes < 0 ? "unknown" : human_bytes(static_cast<double>(entry.file.bytes)),
             entry.licence, entry.description + " (" + entry.source + ")");
  return text;
}

}  // namespace neox
