#include "base/error.h"
#include "corpus/corpus.h"

namespace neox {
namespace {

namespace po = boost::program_options;

// Options that say something only about a corpus.
constexpr const char* kOnlyWithCorpus[] = {"data-path", "mirror",        "local-copy",
                                           "offline",   "download-only", "force-redownload",
                                           "shards",    "downloads"};

// Those of the files that a corpus has at its addresses.
constexpr const char* kOnlyWithAddresses[] = {"local-copy", "shards"};

}  // namespace

fs::path registry_of(const Program& program) {
  return program.has("corpora") ? fs::path(program.get<std::string>("corpora"))
                                : default_registry();
}

std::string table_of_corpora(const Program& program) {
  return table(read_registry(registry_of(program)));
}

void add_corpus_options(Program& program) {
  auto add = program.options().add_options();
  add("corpus", text("NAME"), "corpus to fetch and prepare; the name alone does it too");
  add("list", "print the corpora and end");
  add("check",
      po::value<std::vector<std::string>>()->multitoken()->zero_tokens()->value_name("[NAME...]"),
      "print which addresses of the corpora answer, and end");
  add("data-path,d", text("DIR"),
      "where corpora and tokenizers lie ($DATA_DIR, or data); also --data-dir");
  add("shards", text("LIST"), "these files of a corpus that has many, such as 0-3,7");
  add("downloads", po::value<int>()->value_name("N"), "files fetched at the same time (4)");
  add("mirror", text("URL"), "fetch from this directory instead");
  add("local-copy", text("PATH"), "take the file from there, or the files of that directory");
  add("download-only", "fetch what is missing, such as on a login node, and end");
  add("offline", "never open a connection");
  add("force-redownload,f", "fetch again what is there");
  add("corpora", text("FILE"), "another table of corpora");
  program.positional("corpus", 1);
}

CorpusOptions read_corpus_options(const Program& program, const std::string& data_dir) {
  for (const char* option : kOnlyWithCorpus)
    check_usage(program.has("corpus") || !program.has(option), "--", option,
                " goes with the name of a corpus, such as neox-prepare-data enwik8");
  CorpusOptions options;
  if (!program.has("corpus")) return options;
  options.name = program.get<std::string>("corpus");
  check_usage(!options.name.empty() && options.name.find('/') == std::string::npos, options.name,
              " is not the name of a corpus; files are given with --input");
  if (program.has("corpora")) options.registry = program.get<std::string>("corpora");
  options.entry = read_registry(registry_of(program)).corpus(options.name);
  check_usage(options.entry.urls.empty() || !program.has("input"), "both a corpus, ", options.name,
              ", and --input are given; leave one out");
  check_usage(!options.entry.urls.empty() || program.has("input"), options.name,
              " has no address; name its files with --input PATH");
  for (const char* option : kOnlyWithAddresses)
    check_usage(!options.entry.urls.empty() || !program.has(option), "--", option,
                ": the files of ", options.name, " are those of --input alone; leave it out");
  auto value = [&](const char* option) { return program.given<std::string>(option).value_or(""); };
  options.data_path =
      program.given<std::string>("data-path").value_or(data_dir.empty() ? "data" : data_dir);
  options.shards = value("shards");
  options.mirror = value("mirror");
  options.local = value("local-copy");
  check_usage(options.mirror.empty() || options.local.empty(),
              "--mirror and --local-copy exclude each other");
  if (auto downloads = program.given<int>("downloads")) {
    check_usage(*downloads >= 1 && *downloads <= 64, "--downloads ", *downloads,
                " is not in 1 .. 64");
    options.download.files_at_once = static_cast<size_t>(*downloads);
  }
  if (program.has("download-only")) options.until = CorpusOptions::Until::kFetched;
  if (program.has("offline")) options.download.network = DownloadOptions::Network::kRefuse;
  if (program.has("force-redownload"))
    options.download.existing = DownloadOptions::Existing::kReplace;
  return options;
}

}  // namespace neox
