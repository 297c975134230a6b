#include "prepare/journal.h"

#include <nlohmann/json.hpp>

#include "base/build_id.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "data/fingerprint.h"
#include "jinja/template.h"
#include "tokenizer/special_tokens.h"

namespace neox {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReadPosition, slice, offset, line)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DatasetPart, lead, documents, tokens)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DatasetState, part, last)

namespace {

using Json = nlohmann::json;

constexpr const char* kUnfinished = "new";

std::string digest(std::string_view text) {
  Fingerprint hash;
  hash.add(text);
  return hash.hex();
}

std::string describe_files(const InputFiles& input) {
  std::string text;
  for (const InputFile& file : input.files)
    text += concat(file.path, '\0', file.bytes, ' ', file.modified, '\n');
  return digest(text);
}

fs::path journal_path(const PrepareOptions& options, int rank) {
  return options.output_prefix + kJournal + std::to_string(rank);
}

Json to_json(const SharePoint& point) {
  Json json{{"input_bytes", point.input_bytes},
            {"tally", point.tally},
            {"states", point.states},
            {"finished", point.finished}};
  if (point.place) json["place"] = *point.place;
  return json;
}

SharePoint to_point(const Json& json) {
  SharePoint point{.input_bytes = json.at("input_bytes"),
                   .tally = json.at("tally"),
                   .states = json.at("states"),
                   .finished = json.at("finished")};
  if (json.contains("place")) point.place = json.at("place").get<ReadPosition>();
  return point;
}

// The names of what differs.
std::string differences(const RunIdentity& a, const RunIdentity& b) {
  std::vector<std::string> names;
  for (const auto& [name, value] : a)
    if (auto other = b.find(name); other == b.end() || other->second != value)
      names.push_back(name);
  return join(names, ", ");
}

std::string json_text(const std::vector<std::string>& list) {
  return Json(list).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// What conversations are written by, which may stand in files.
std::string describe(const std::optional<ChatOptions>& chat) {
  if (!chat) return "";
  const ChatTemplate& style = chat->style;
  std::vector<std::string> parts = {style.begin,
                                    style.default_system,
                                    style.generation_prompt,
                                    std::to_string(static_cast<int>(style.space)),
                                    std::to_string(static_cast<int>(style.order)),
                                    chat->role,
                                    chat->eos,
                                    style.jinja ? style.jinja->source() : ""};
  for (const auto& [name, token] : style.tokens) parts.push_back(name + " " + token);
  for (const ChatTemplate::Role& role : style.roles)
    for (const std::string& part : {role.name, role.before, role.after, role.within})
      parts.push_back(part);
  return digest(json_text(parts));
}

// Which token is appended to documents, as far as the tokenizer itself does not say it: files
// beside it may name one.
std::string describe_end(const PrepareOptions& options) {
  if (options.end_of_document == PrepareOptions::EndOfDocument::kNone) return "none";
  if (options.tokenizer.vocab.empty()) return "";
  try {
    return named_tokens_in(fs::path(options.tokenizer.vocab).parent_path())["eos_token"];
  } catch (const Error&) { return ""; }  // the tokenizer takes that for no name, too
}

}  // namespace

RunIdentity identity_of(const PrepareOptions& options, const InputFiles& input, int ranks) {
  std::string tokenizer;
  if (!options.tokenizer.vocab.empty()) tokenizer += read_file(options.tokenizer.vocab);
  if (!options.tokenizer.merges.empty()) tokenizer += read_file(options.tokenizer.merges);
  // Keys and separator need not be options: a table of corpora has some, too.
  return {{"the options", digest(options.identity)},
          {"the tokenizer", digest(tokenizer)},
          {"the token that ends documents", digest(describe_end(options))},
          {"the keys", digest(json_text(options.rules.keys))},
          {"the line that parts documents", digest(options.rules.separator)},
          {"the input", describe_files(input)},
          {"the chat template", describe(options.chat)},
          {"the number of tasks", std::to_string(ranks)},
          {"the program", concat(kVersion, " ", build_id())}};
}

Journal::Journal(const PrepareOptions& options, int rank, RunIdentity identity)
    : path_(journal_path(options, rank)), identity_(std::move(identity)) {}

std::optional<SharePoint> Journal::find() const {
  if (!fs::exists(path_)) return std::nullopt;
  try {
    Json json = Json::parse(read_file(path_));
    std::string other = differences(identity_, json.at("identity").get<RunIdentity>());
    if (other.empty()) return to_point(json.at("point"));
    log_info(path_.string(), " is of a run that differs in: ", other, "; this one begins afresh");
  } catch (const Json::exception& e) {
    log_warning(path_.string(), " cannot be read (", e.what(), "); this run begins afresh");
  }
  return std::nullopt;
}

void Journal::save(const SharePoint& point) const {
  Json json{{"identity", identity_}, {"point", to_json(point)}};
  std::string text = json.dump(1, ' ', true, Json::error_handler_t::replace);
  OutputFile file(path_, kUnfinished);
  file.write(std::as_bytes(std::span(text)));
  file.flush_to_disk();
  file.publish();
  sync_directory(directory_of(path_));
}

std::vector<fs::path> Journal::files(const PrepareOptions& options, int rank) {
  fs::path path = journal_path(options, rank);
  return {path, OutputFile::part_of(path, kUnfinished)};
}

void Journal::remove() const {
  std::error_code ignored;
  fs::remove(path_, ignored);
  fs::remove(OutputFile::part_of(path_, kUnfinished), ignored);
}

void remove_journals(const PrepareOptions& options, int first) {
  remove_numbered(options.output_prefix + kJournal, first);
}

}  // namespace neox
