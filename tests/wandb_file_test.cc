// Files for `wandb sync`; tests/oracle/wandb.py gives them to wandb itself.
#include "metrics/wandb_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>

#include "base/text.h"
#include "metrics/metrics.h"
#include "metrics/wire.h"

namespace neox {
namespace {

// Made by tests/oracle/wandb.py golden.
TEST(WandbLog, RecordsAreCutAtTheEndsOfBlocks) {
  EXPECT_EQ(hexadecimal(wandb_log_record(7, "abc")), "a9209d53030001616263");
  EXPECT_EQ(hexadecimal(wandb_log_record(32768 - 10, "abcdefg")),
            "478f284103000261626398008b2904000464656667");
  EXPECT_EQ(hexadecimal(wandb_log_record(2 * 32768 - 7, "abc")),
            "a18e0c3c0000029bd04364030004616263");
  EXPECT_EQ(hexadecimal(wandb_log_record(32768 - 6, "abc")), "000000000000a9209d53030001616263");
}

// Of a message, by number; numbers as text.
using Fields = std::multimap<int, std::string>;

Fields fields_of(std::string_view message) {
  Fields fields;
  wire::Field field;
  for (wire::Reader reader(message); reader.next(field);)
    fields.emplace(field.number, field.type == wire::Type::kBytes ? std::string(field.bytes)
                                                                  : std::to_string(field.bits));
  return fields;
}

std::vector<Fields> records_of(const std::string& bytes) {
  std::vector<Fields> records;
  std::string record;
  for (size_t at = 7; at + 7 <= bytes.size();) {
    if (size_t left = 32768 - at % 32768; left < 7) {
      at += left;
      continue;
    }
    size_t length = wire::little_endian(std::string_view(bytes).substr(at + 4, 2));
    record += bytes.substr(at + 7, length);
    if (bytes[at + 6] == 1 || bytes[at + 6] == 4)
      records.push_back(fields_of(std::exchange(record, "")));
    at += 7 + length;
  }
  return records;
}

// key -> JSON, of a message whose field `number` holds items.
std::map<std::string, std::string> items_of(const std::string& message, int number = 1) {
  std::map<std::string, std::string> items;
  Fields fields = fields_of(message);
  for (auto [at, end] = fields.equal_range(number); at != end; ++at) {
    Fields item = fields_of(at->second);
    std::string key;
    for (auto [part, last] = item.equal_range(item.contains(1) ? 1 : 2); part != last; ++part)
      key += (key.empty() ? "" : ".") + part->second;
    items[key] = item.find(16)->second;
  }
  return items;
}

class WandbFile : public testing::Test {
 protected:
  WandbFile() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() /
           (std::string("neox-wandb-") + test->name() + "-" + std::to_string(::getpid()));
    fs::remove_all(dir_);
  }
  ~WandbFile() override { fs::remove_all(dir_); }

  static std::vector<Fields> records(const fs::path& path) {
    std::string bytes = read_file(path);
    EXPECT_EQ(hexadecimal(bytes.substr(0, 7)), "3a572642e1be00");
    std::vector<Fields> records = records_of(bytes);
    for (size_t i = 0; i < records.size(); ++i)
      EXPECT_EQ(records[i].find(1)->second, std::to_string(i + 1));
    return records;
  }
  // Of all records that have the field.
  static std::vector<std::string> all(const std::vector<Fields>& records, int field) {
    std::vector<std::string> found;
    for (const Fields& record : records)
      if (auto at = record.find(field); at != record.end()) found.push_back(at->second);
    return found;
  }

  fs::path dir_;
};

constexpr int kHistory = 2, kSummary = 3, kRun = 17, kExit = 18;

TEST_F(WandbFile, ARowHoldsAllThatAStepHas) {
  fs::path path;
  {
    WandbFileWriter writer(dir_, {.project = "neox"}, WandbFileWriter::Begin::kAnew, 99);
    path = writer.path();
    writer.write(1, 100, {{"loss", 2.5}});
    writer.write(1, 101, {{"test", NAN}});
    writer.write(2, 102, {{"loss", -INFINITY}});
    writer.finish();
  }
  auto found = records(path);
  auto rows = all(found, kHistory);
  ASSERT_EQ(rows.size(), 2u);
  auto first = items_of(rows[0]), second = items_of(rows[1]);
  EXPECT_EQ(first["loss"], "2.5");
  EXPECT_EQ(first["test"], "NaN");
  EXPECT_EQ(first["_step"], "1");
  EXPECT_EQ(first["_timestamp"], "100.0");
  EXPECT_EQ(second["loss"], "-Infinity");
  EXPECT_EQ(fields_of(fields_of(rows[1]).find(2)->second).find(1)->second, "2");
  auto summary = items_of(all(found, kSummary).at(0));
  EXPECT_EQ(summary["loss"], "-Infinity");
  EXPECT_EQ(summary["test"], "NaN");
  EXPECT_EQ(summary["_step"], "2");
  EXPECT_EQ(fields_of(all(found, kExit).at(0)).find(1)->second, "0");
}

TEST_F(WandbFile, TheRunSaysWhatItIs) {
  WandbRun run{.project = "p", .entity = "team", .group = "g", .name = "first", .host = "node1"};
  std::string large = '"' + std::string(100000, 'x') + '"';
  run.config = {{"hidden_size", "512"}, {"optimizer.params.lr", "0.0006"}, {"large", large}};
  WandbFileWriter writer(dir_, run, WandbFileWriter::Begin::kAnew, 99);
  Fields fields = fields_of(all(records(writer.path()), kRun).at(0));
  const std::map<int, std::string> texts = {
      {2, "team"}, {3, "p"}, {6, "g"}, {8, "first"}, {13, "node1"}};
  for (auto [field, text] : texts) EXPECT_EQ(fields.find(field)->second, text);
  EXPECT_FALSE(fields.contains(24));
  auto config = items_of(fields.find(4)->second);
  EXPECT_EQ(config["hidden_size"], "512");
  EXPECT_EQ(config["optimizer.params.lr"], "0.0006");
  EXPECT_EQ(config["large"], large);
  EXPECT_EQ(writer.path().filename(), "run-" + fields.find(1)->second + ".wandb");
}

TEST_F(WandbFile, StartsThatGoOnHaveOneIdAndOthersTheirOwn) {
  using Begin = WandbFileWriter::Begin;
  std::set<fs::path> files, patterns;
  for (Begin begin : {Begin::kGoesOn, Begin::kGoesOn, Begin::kGoesOn}) {  // the first finds none
    WandbFileWriter writer(dir_, {}, begin, 99);
    bool resumes = fields_of(all(records(writer.path()), kRun).at(0)).contains(24);
    EXPECT_EQ(resumes, !files.empty());
    files.insert(writer.path()), patterns.insert(writer.pattern());
  }
  EXPECT_EQ(files.size(), 3u);
  EXPECT_EQ(patterns.size(), 1u);
  patterns.insert(WandbFileWriter(dir_, {}, Begin::kAnew, 99).pattern());
  EXPECT_EQ(patterns.size(), 2u);
}

TEST_F(WandbFile, WithoutAnEndTheRunHasFailed) {
  fs::path path = [&] {
    WandbFileWriter writer(dir_, {}, WandbFileWriter::Begin::kAnew, 99);
    writer.write(1, 100, {{"loss", 2.5}});
    return writer.path();
  }();
  EXPECT_EQ(all(records(path), kHistory).size(), 1u);
  EXPECT_EQ(fields_of(all(records(path), kExit).at(0)).find(1)->second, "1");
}

// Two starts of a run, for tests/oracle/wandb.py.
TEST(WandbOracle, WritesARunForOthers) {
  const char* dir = std::getenv("NEOX_WRITE_RUN");
  if (!dir) GTEST_SKIP() << "NEOX_WRITE_RUN names no directory";
  WandbRun run{.project = "p", .entity = "team", .group = "g", .name = "first", .host = "node1"};
  run.config = {{"optimizer.params.lr", "0.0006"}, {"text", '"' + std::string(70000, 'x') + '"'}};
  for (int64_t first : {0, 61}) {
    Metrics metrics({.dir = dir, .wandb = run, .first_step = first});
    for (int64_t step = std::max<int64_t>(first, 1); step <= (first == 0 ? 60 : 2000); ++step) {
      metrics.write(step, {{"train/lm_loss", step == 13 ? NAN : 1 / static_cast<double>(step)}});
      if (step % 20 == 0) metrics.write(step, {{"validation/lm_loss", 2.5}});
    }
    metrics.finish();
  }
}

}  // namespace
}  // namespace neox
