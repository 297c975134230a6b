#include "corpus/corpus.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "corpus/unpack.h"
#include "prepare/together.h"

namespace neox {
namespace {

constexpr const char* kTokenizer = "20B_tokenizer.json";
constexpr const char* kGpt2Vocab = "gpt2-vocab.json";
constexpr const char* kGpt2Merges = "gpt2-merges.txt";

// Where the parts of a corpus lie.
struct Places {
  fs::path file, text;
  Places(const CorpusOptions& corpus, const RegistryEntry& entry)
      : file(corpus.data_path / entry.name / entry.file_name),
        text(entry.archive ? corpus.data_path / entry.name / "text" : file) {}
};

int64_t bytes_of(const fs::path& directory) {
  int64_t bytes = 0;
  for (const auto& found : fs::recursive_directory_iterator(directory))
    if (found.is_regular_file()) bytes += static_cast<int64_t>(found.file_size());
  return bytes;
}

bool is_unpacked(const RegistryEntry& entry, const fs::path& text) {
  return fs::is_directory(text) && (entry.text_bytes < 0 || bytes_of(text) == entry.text_bytes);
}

class Fetching {
 public:
  Fetching(const CorpusOptions& corpus, const PrepareOptions& options,
           const std::atomic<bool>& stop)
      : corpus_(corpus),
        options_(options),
        registry_(read_registry(corpus.registry)),
        download_(corpus.download) {
    download_.stop = &stop;
    download_.advice = advice();
  }

  void run() {
    const RegistryEntry& entry = registry_.corpus(corpus_.name);
    fetch_tokenizer();
    Places places(corpus_, entry);
    bool again = download_.existing == DownloadOptions::Existing::kReplace;
    if (entry.archive && !again && is_unpacked(entry, places.text)) return;
    check_space(entry);
    fs::path file = bring(entry, places.file);
    if (!entry.archive && file != places.file) copy(file, places.file);  // that is the text
    if (corpus_.until == CorpusOptions::Until::kFetched || !entry.archive) return;
    unpack(file, entry.members, places.text, options_.life, download_.stop);
    check_io(is_unpacked(entry, places.text), places.text.string(), " has ",
             with_commas(bytes_of(places.text)), " bytes of text after unpacking, and should have ",
             with_commas(entry.text_bytes), "; see text_bytes in ", corpus_.registry.string());
  }

 private:
  // The command for a node that has a network.
  std::string advice() const {
    std::string command = "neox-prepare-data " + corpus_.name + " --data-path " +
                          fs::absolute(corpus_.data_path).lexically_normal().string();
    const TokenizerFile& tokenizer = options_.tokenizer;
    if (!options_.train_vocab) {
      bool gpt2 = tokenizer.type == TokenizerFile::Type::kGpt2;
      command += gpt2 ? " --tokenizer-type GPT2BPETokenizer" : "";
      command += " --vocab-file " + fs::absolute(tokenizer.vocab).lexically_normal().string();
      if (gpt2)
        command += " --merge-file " + fs::absolute(tokenizer.merges).lexically_normal().string();
    }
    return "On a node with a network, such as the login node, run\n  " + command +
           " --download-only\nand then this again. A copy that you have: --local-copy PATH.";
  }

  void fetch_tokenizer() {
    if (options_.train_vocab) return;
    for (const std::string& path : {options_.tokenizer.vocab, options_.tokenizer.merges}) {
      if (path.empty() || fs::exists(path)) continue;
      std::string name = fs::path(path).filename().string();
      bool known = std::any_of(registry_.tokenizers.begin(), registry_.tokenizers.end(),
                               [&](const RegistryEntry& entry) { return entry.name == name; });
      check_io(known, "there is no tokenizer ", path, "; only ", kTokenizer, ", ", kGpt2Vocab,
               " and ", kGpt2Merges, " are fetched");
      fs::path found = bring(registry_.tokenizer(name), path);
      if (found != fs::path(path)) copy(found, path);
    }
  }

  // Where the file is, whole: under its place, or the copy that the user has.
  fs::path bring(const RegistryEntry& entry, const fs::path& place) {
    RemoteFile file = entry.file;
    if (fs::path copy = local_copy(entry); !copy.empty()) {
      check_content(file, copy);
      log_info("taking ", copy.string());
      return copy;
    }
    if (!corpus_.mirror.empty())
      file.urls = {corpus_.mirror + (corpus_.mirror.ends_with('/') ? "" : "/") + entry.file_name};
    download(file, place, download_);
    return place;
  }

  fs::path local_copy(const RegistryEntry& entry) const {
    if (corpus_.local.empty()) return {};
    fs::path local = corpus_.local;
    check_io(fs::exists(local), "--local-copy ", local.string(),
             ": there is no such file or directory");
    if (!fs::is_directory(local)) return entry.name == corpus_.name ? local : fs::path();
    for (const fs::path& place : {local / entry.file_name, local / entry.name / entry.file_name})
      if (fs::exists(place)) return place;
    check_io(entry.name != corpus_.name, "--local-copy ", local.string(), " has no file ",
             entry.file_name);
    return {};
  }

  static void copy(const fs::path& from, const fs::path& to) {
    if (!to.parent_path().empty()) make_directories(to.parent_path());
    write_file_atomically(to, read_file(from));
  }

  void check_space(const RegistryEntry& entry) const {
    int64_t wanted =
        std::max<int64_t>(entry.file.bytes, 0) + std::max<int64_t>(entry.text_bytes, 0);
    int64_t free = free_bytes(corpus_.data_path);
    check_io(free >= wanted, "--data-path ", corpus_.data_path.string(), " has ",
             human_bytes(static_cast<double>(free)), " free, and ", entry.name, " takes ",
             human_bytes(static_cast<double>(wanted)), "; choose another place");
  }

  const CorpusOptions& corpus_;
  const PrepareOptions& options_;
  Registry registry_;
  DownloadOptions download_;
};

}  // namespace

PrepareDefaults corpus_defaults(const CorpusOptions& corpus) {
  Registry registry = read_registry(corpus.registry);
  const RegistryEntry& entry = registry.corpus(corpus.name);
  return {.inputs = {Places(corpus, entry).text.string()},
          .output_prefix = (corpus.data_path / entry.name / entry.name).string(),
          .vocab = (corpus.data_path / kTokenizer).string(),
          .gpt2_vocab = (corpus.data_path / kGpt2Vocab).string(),
          .gpt2_merges = (corpus.data_path / kGpt2Merges).string(),
          .separator = entry.split_on,
          .end_of_document = PrepareOptions::EndOfDocument::kAppend};
}

void fetch_corpus(const CorpusOptions& corpus, const PrepareOptions& options, Control& control) {
  work_together(control, {.work = [&](const std::atomic<bool>& stop) {
                  if (control.rank() == 0) Fetching(corpus, options, stop).run();
                  return std::string();
                }});
}

}  // namespace neox
