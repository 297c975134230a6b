#include "corpus/corpus.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/tasks.h"
#include "base/text.h"
#include "prepare/together.h"

namespace neox {
namespace {

constexpr const char* kTokenizer = "20B_tokenizer.json";
constexpr const char* kGpt2Vocab = "gpt2-vocab.json";
constexpr const char* kGpt2Merges = "gpt2-merges.txt";

// A copy that the user has of a file; "" where none is named.
fs::path local_copy(const CorpusOptions& corpus, const std::string& name) {
  if (corpus.local.empty()) return {};
  fs::path local = corpus.local;
  check_io(is_found(local), "--local-copy ", local.string(),
           ": there is no such file or directory");
  if (!fs::is_directory(local)) return local;
  for (const fs::path& place : {local / name, local / corpus.name / name})
    if (fs::exists(place)) return place;
  return {};
}

// The files asked for, and where they are or will be.
std::vector<DownloadFile> files_of(const CorpusOptions& corpus) {
  std::vector<RegistryFile> all = files_of(corpus.entry);
  std::vector<DownloadFile> files;
  if (all.empty()) return files;
  for (size_t i : parse_shards(corpus.shards, all.size())) {
    fs::path copy = local_copy(corpus, all[i].name);
    check_io(corpus.local.empty() || !copy.empty(), "--local-copy ", corpus.local, " has no file ",
             all[i].name);
    files.push_back(
        {all[i].remote, copy.empty() ? corpus.data_path / corpus.name / all[i].name : copy});
    if (!corpus.mirror.empty())
      files.back().remote.urls = {corpus.mirror + (corpus.mirror.ends_with('/') ? "" : "/") +
                                  all[i].name};
  }
  check_usage(corpus.local.empty() || files.size() == 1 || fs::is_directory(corpus.local),
              "--local-copy ", corpus.local, " is one file, and ", corpus.name, " has ",
              files.size(), "; name the directory that has them");
  return files;
}

std::string full_path(const fs::path& path) {
  return fs::absolute(path).lexically_normal().string();
}

class Fetching {
 public:
  Fetching(const CorpusOptions& corpus, const PrepareOptions& options,
           const std::atomic<bool>& stop)
      : corpus_(corpus),
        options_(options),
        registry_(read_registry(corpus.registry.empty() ? default_registry() : corpus.registry)),
        download_(corpus.download) {
    download_.stop = &stop;
    download_.advice = advice("--local-copy PATH");
  }

  void run() {
    fetch_tokenizer();
    std::vector<DownloadFile> files = files_of(corpus_);
    if (!corpus_.local.empty()) return check_copies(files);
    check_space(files);
    DownloadOptions options = download_;
    if (!corpus_.entry.dead.empty() && corpus_.mirror.empty()) {
      // They may have come back; nobody waits for that.
      options.retries = 0;
      options.connect_seconds = std::min(options.connect_seconds, 5.0);
      options.stall_seconds = std::min(options.stall_seconds, 10.0);
      options.advice = advice_for_dead(files);
    }
    download(files, files.size() == 1 ? files[0].to.filename().string() : corpus_.name, options);
  }

 private:
  // The command for a node that has a network. copy: the option for what the user has.
  std::string advice(const std::string& copy) const {
    std::string command =
        "neox-prepare-data " + corpus_.name + " --data-path " + full_path(corpus_.data_path);
    if (corpus_.entry.urls.empty()) command += " --input " + full_path(options_.inputs.at(0));
    if (!corpus_.registry.empty()) command += " --corpora " + full_path(corpus_.registry);
    if (!corpus_.shards.empty()) command += " --shards " + corpus_.shards;
    const TokenizerFile& tokenizer = options_.tokenizer;
    if (!corpus_.mirror.empty()) command += " --mirror " + corpus_.mirror;
    if (!options_.train_vocab) {
      command += tokenizer.type == "HFTokenizer" ? "" : " --tokenizer-type " + tokenizer.type;
      if (!tokenizer.vocab.empty()) command += " --vocab-file " + full_path(tokenizer.vocab);
      if (tokenizer.gpt2()) command += " --merge-file " + full_path(tokenizer.merges);
    }
    return "On a node with a network, such as the login node, run\n  " + command +
           " --download-only\nand then this again. A copy that you have: " + copy + ".";
  }

  std::string advice_for_dead(const std::vector<DownloadFile>& files) const {
    return concat(corpus_.name, ": ", corpus_.entry.dead, "\nA copy that you have: --local-copy ",
                  files.size() == 1 ? "FILE" : "DIRECTORY", ", or put it at ",
                  full_path(files[0].to), files.size() == 1 ? "" : " and so on",
                  ". Another address that has it: --mirror URL.");
  }

  void fetch_tokenizer() {
    if (options_.train_vocab) return;
    for (const std::string& path : {options_.tokenizer.vocab, options_.tokenizer.merges}) {
      if (path.empty() || fs::exists(path)) continue;
      std::string name = fs::path(path).filename().string();
      // A table of one's own need not repeat the tokenizers.
      Registry ours = registry_.tokenizer(name) ? registry_ : read_registry(default_registry());
      const RegistryEntry* entry = ours.tokenizer(name);
      check_io(entry != nullptr, "there is no tokenizer ", path, "; only ", kTokenizer, ", ",
               kGpt2Vocab, " and ", kGpt2Merges, " are fetched");
      bring_tokenizer(*entry, path);
    }
  }

  void bring_tokenizer(const RegistryEntry& entry, const fs::path& to) {
    DownloadFile file{files_of(entry)[0].remote, to};
    fs::path copy = fs::is_directory(corpus_.local) ? local_copy(corpus_, entry.name) : fs::path();
    if (!copy.empty()) {
      check_content(file.remote, copy);
      make_directories(directory_of(to));
      return write_file_atomically(to, read_file(copy));
    }
    if (!corpus_.mirror.empty())
      file.remote.urls.insert(
          file.remote.urls.begin(),
          corpus_.mirror + (corpus_.mirror.ends_with('/') ? "" : "/") + entry.name);
    DownloadOptions options = download_;
    options.advice =
        advice(to == options_.tokenizer.merges ? "--merge-file FILE" : "--vocab-file FILE");
    download({&file, 1}, to.filename().string(), options);
  }

  void check_copies(const std::vector<DownloadFile>& files) const {
    log_info("taking ", files[0].to.string(),
             files.size() > 1 ? concat(" and ", files.size() - 1, " more") : "");
    run_tasks(files.size(), download_.files_at_once,
              [&](size_t i) { check_content(files[i].remote, files[i].to); });
  }

  // Of files whose sizes are not known, what all of the corpus is told to take.
  int64_t wanted_bytes(const std::vector<DownloadFile>& files) const {
    int64_t wanted = 0, there = 0;
    for (const DownloadFile& file : files) {
      if (is_downloaded(file.remote, file.to))
        there += static_cast<int64_t>(fs::file_size(file.to));
      else
        wanted += std::max<int64_t>(file.remote.bytes - size_of_part(file.to), 0);
    }
    bool estimate = corpus_.entry.bytes.empty() && corpus_.shards.empty();
    return estimate ? std::max<int64_t>(corpus_.entry.download_bytes - there, 0) : wanted;
  }

  void check_space(const std::vector<DownloadFile>& files) const {
    int64_t wanted = wanted_bytes(files), free = free_bytes(corpus_.data_path);
    check_io(free >= wanted, "--data-path ", corpus_.data_path.string(), " has ",
             human_bytes(static_cast<double>(free)), " free, and ", corpus_.name, " takes ",
             human_bytes(static_cast<double>(wanted)), "; choose another place",
             files.size() > 1 ? ", or a part of it with --shards" : "");
  }

  const CorpusOptions& corpus_;
  const PrepareOptions& options_;
  Registry registry_;
  DownloadOptions download_;
};

}  // namespace

PrepareDefaults corpus_defaults(const CorpusOptions& corpus) {
  std::vector<std::string> inputs;
  for (const DownloadFile& file : files_of(corpus)) inputs.push_back(file.to.string());
  std::string prefix = (corpus.data_path / corpus.name / corpus.name).string();
  if (!corpus.shards.empty()) {
    std::string shards = corpus.shards;
    std::replace(shards.begin(), shards.end(), ',', '+');
    prefix += "-shards-" + shards;
  }
  return {.inputs = inputs,
          .output_prefix = prefix,
          .vocab = (corpus.data_path / kTokenizer).string(),
          .gpt2_vocab = (corpus.data_path / kGpt2Vocab).string(),
          .gpt2_merges = (corpus.data_path / kGpt2Merges).string(),
          .separator = corpus.entry.split_on,
          .keys = corpus.entry.keys,
          .end_of_document = PrepareOptions::EndOfDocument::kAppend};
}

void fetch_corpus(const CorpusOptions& corpus, const PrepareOptions& options, Control& control) {
  work_together(control, {.work = [&](const std::atomic<bool>& stop) {
                  if (control.rank() == 0) Fetching(corpus, options, stop).run();
                  return std::string();
                }});
}

}  // namespace neox
