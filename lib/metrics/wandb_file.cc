#include "metrics/wandb_file.h"

#include <algorithm>
#include <boost/crc.hpp>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/text.h"
#include "base/version.h"
#include "metrics/wire.h"

namespace neox {
namespace {

// Field numbers of wandb_internal.proto.
namespace record_field {
constexpr int kNumber = 1, kHistory = 2, kSummary = 3, kRun = 17, kExit = 18, kHeader = 21;
}
namespace run_field {
constexpr int kId = 1, kEntity = 2, kProject = 3, kConfig = 4, kGroup = 6, kName = 8, kHost = 13,
              kStartTime = 17, kResume = 24;
}
namespace item_field {  // of config, history and summary alike
constexpr int kKey = 1, kNestedKey = 2, kValueJson = 16;
}
constexpr int kConfigUpdate = 1, kSummaryUpdate = 1, kHistoryItem = 1, kHistoryStep = 2,
              kStepNumber = 1, kExitCode = 1, kVersionInfo = 1, kProducer = 1, kSeconds = 1,
              kNanos = 2;

// The log (leveldb/doc/log_format.md), with wandb's own head and CRC-32 instead of CRC-32C.
constexpr std::string_view kHead{":W&B\xe1\xbe\0", 7};
constexpr uint64_t kBlock = 32768, kFragmentHead = 7;
enum Fragment : uint8_t { kWhole = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

constexpr const char* kFolder = "wandb";
constexpr std::string_view kPrefix = "offline-run-", kFilePrefix = "run-";

std::string fragment(Fragment type, std::string_view data) {
  boost::crc_32_type crc;
  crc.process_byte(type);
  crc.process_bytes(data.data(), data.size());
  std::string text;
  wire::append_little_endian(text, crc.checksum(), 4);
  wire::append_little_endian(text, data.size(), 2);
  text += static_cast<char>(type);
  return text += data;
}

std::string item(const std::string& key, const std::string& json) {
  return wire::Message().bytes(item_field::kKey, key).bytes(item_field::kValueJson, json).text();
}

// "optimizer.params.lr" is a value in a dictionary in a dictionary.
std::string nested_item(const std::string& key, const std::string& json) {
  wire::Message message;
  for (const std::string& part : split(key, '.')) message.bytes(item_field::kNestedKey, part);
  return message.bytes(item_field::kValueJson, json).text();
}

// As wandb writes numbers that JSON does not have.
std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return nlohmann::json(value).dump();
}

std::string new_id() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::uniform_int_distribution<size_t> any(0, kLetters.size() - 1);
  std::string id;
  for (int i = 0; i < 8; ++i) id += kLetters[any(random)];
  return id;
}

// The id of the newest run in the directory: names begin with the time of their start.
std::string newest_id(const fs::path& dir) {
  std::string newest;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (std::string name = it->path().filename(); name.starts_with(kPrefix))
      newest = std::max(newest, name);
  return newest.empty() ? "" : newest.substr(newest.rfind('-') + 1);
}

std::string start_text(std::time_t time) {
  std::tm local{};
  ::localtime_r(&time, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d_%H%M%S", &local)};
}

fs::path new_path(const fs::path& dir, const std::string& id, double start) {
  auto time = static_cast<std::time_t>(start);
  fs::path path;
  do path = dir / concat(kPrefix, start_text(time++), '-', id) / concat(kFilePrefix, id, ".wandb");
  while (fs::exists(path));
  make_directories(path.parent_path());
  return path;
}

std::string run_message(const WandbRun& run, const std::string& id, double start, bool goes_on) {
  using wire::Message;
  Message config, message;
  for (const auto& [key, json] : run.config) config.bytes(kConfigUpdate, nested_item(key, json));
  auto seconds = static_cast<int64_t>(start);
  Message time;
  time.varint(kSeconds, seconds)
      .varint(kNanos, std::llround((start - static_cast<double>(seconds)) * 1e9));
  message.bytes(run_field::kId, id);
  for (const auto& [field, text] : {std::pair(run_field::kEntity, run.entity),
                                    {run_field::kProject, run.project},
                                    {run_field::kGroup, run.group},
                                    {run_field::kName, run.name},
                                    {run_field::kHost, run.host}})
    if (!text.empty()) message.bytes(field, text);
  message.bytes(run_field::kConfig, config.text()).bytes(run_field::kStartTime, time.text());
  if (goes_on) message.varint(run_field::kResume, 1);
  return message.text();
}

}  // namespace

std::string wandb_log_record(uint64_t size, std::string_view data) {
  std::string text;
  for (bool first = true;; first = false) {
    uint64_t left = kBlock - (size + text.size()) % kBlock;
    if (left < kFragmentHead) {
      text.append(left, '\0');
      left = kBlock;
    }
    size_t n = std::min<uint64_t>(data.size(), left - kFragmentHead);
    bool last = n == data.size();
    Fragment type = last ? (first ? kWhole : kLast) : (first ? kFirst : kMiddle);
    text += fragment(type, data.substr(0, n));
    data.remove_prefix(n);
    if (last) return text;
  }
}

WandbFileWriter::WandbFileWriter(const fs::path& dir, const WandbRun& run, Begin begin, double now)
    : WandbFileWriter(dir / kFolder, run, begin == Begin::kGoesOn ? newest_id(dir / kFolder) : "",
                      now) {}

WandbFileWriter::WandbFileWriter(const fs::path& dir, const WandbRun& run,
                                 const std::string& known_id, double now)
    : file_(new_path(dir, known_id.empty() ? new_id() : known_id, now), AppendFile::Open::kNew),
      start_(now) {
  file_.append(kHead);
  size_ = kHead.size();
  std::string producer = wire::Message().bytes(kProducer, concat("neox.cpp ", kVersion)).text();
  append(record_field::kHeader, wire::Message().bytes(kVersionInfo, producer).text());
  append(record_field::kRun, run_message(run, id(), start_, !known_id.empty()));
}

WandbFileWriter::~WandbFileWriter() {
  try {
    if (!ended_) end(1);
  } catch (const std::exception&) {}  // what could not be written was said before
}

std::string WandbFileWriter::id() const {
  return path().stem().string().substr(kFilePrefix.size());
}

fs::path WandbFileWriter::pattern() const {
  return path().parent_path().parent_path() / concat(kPrefix, "*-", id());
}

void WandbFileWriter::write(int64_t step, double time, const Scalars& scalars) {
  if (step != step_) end_row();
  step_ = step;
  for (const auto& [name, value] : scalars) row_[name] = number_text(value);
  row_.try_emplace("_step", concat(step));
  row_.try_emplace("_timestamp", number_text(time));
  row_.try_emplace("_runtime", number_text(std::max(0.0, time - start_)));
}

void WandbFileWriter::end_row() {
  if (row_.empty()) return;
  wire::Message message;
  for (const auto& [name, json] : row_) {
    message.bytes(kHistoryItem, item(name, json));
    last_[name] = json;
  }
  message.bytes(kHistoryStep, wire::Message().varint(kStepNumber, step_).text());
  row_.clear();
  append(record_field::kHistory, message.text());
}

void WandbFileWriter::finish() { end(0); }

void WandbFileWriter::end(int exit_code) {
  ended_ = true;
  end_row();
  wire::Message summary;
  for (const auto& [name, json] : last_) summary.bytes(kSummaryUpdate, item(name, json));
  append(record_field::kSummary, summary.text());
  append(record_field::kExit, wire::Message().varint(kExitCode, exit_code).text());
}

void WandbFileWriter::append(int field, const std::string& message) {
  std::string record =
      wire::Message().varint(record_field::kNumber, records_ + 1).bytes(field, message).text();
  std::string bytes = wandb_log_record(size_, record);
  file_.append(bytes);
  size_ += bytes.size();
  ++records_;
}

}  // namespace neox
