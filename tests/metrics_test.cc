#include "metrics/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/text.h"
#include "metrics/crc32c.h"
#include "metrics/run.h"

namespace neox {
namespace {

// A directory of its own for each test.
class MetricsTest : public testing::Test {
 protected:
  MetricsTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() / concat("neox-", test->name(), "-", ::getpid());
    fs::remove_all(dir_);
    make_directories(dir_);
  }
  ~MetricsTest() override { fs::remove_all(dir_); }

  // Values of a tag as "step:value step:value".
  static std::string shown(const RunLog& run, const std::string& tag) {
    std::ostringstream text;
    auto found = run.series.find(tag);
    if (found == run.series.end()) return "absent";
    for (const Point& p : found->second)
      text << (text.tellp() ? " " : "") << p.step << ":" << p.value;
    return text.str();
  }
  std::string loss_of(const fs::path& path) {
    return shown(load_runs({path.string()}).at(0), "train/lm_loss");
  }
  static Exit exit_of(const std::function<void()>& body, std::string* message = nullptr) {
    try {
      body();
    } catch (const Error& e) {
      if (message) *message = e.what();
      return e.exit();
    }
    return Exit::kDone;
  }

  fs::path dir_;
};

TEST(Crc32c, HasTheValuesOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, MaskIsThatOfTensorFlow) {
  EXPECT_EQ(masked_crc32c(""), 0xA282EAD8u);
  EXPECT_EQ(masked_crc32c("123456789"), 0xC78AB0E5u);
}

// Made by tests/oracle/tensorboard.py golden.
TEST(EventFile, BytesOfARecordAreThoseOfTensorBoard) {
  Event event{.time = 1.5, .step = 7, .scalars = {{"a/b", 2.5}}};
  EXPECT_EQ(hexadecimal(encode_record(encode_event(event))),
            "19000000000000008bf1082809000000000000f83f10072a0c0a0a0a03612f6215000020409abc1bac");
}

TEST(EventFile, ReaderReturnsWhatWasWritten) {
  Event event{.time = 12.25, .step = -3, .scalars = {{"x", 0.5}, {"y", -1e30f}}};
  event.texts = {{"t", std::string("a\0b", 3)}};
  EventFile file = read_event_file(encode_record(encode_event(event)));
  EXPECT_EQ(file.damage, "");
  ASSERT_EQ(file.events.size(), 1u);
  EXPECT_EQ(file.events[0].time, 12.25);
  EXPECT_EQ(file.events[0].step, -3);
  EXPECT_EQ(file.events[0].scalars, event.scalars);
  EXPECT_EQ(file.events[0].texts, event.texts);
}

// Three records: a version, a scalar, scalar and text.
std::string small_event_file() {
  std::string bytes = encode_record(encode_event({.time = 1, .file_version = "brain.Event:2"}));
  bytes += encode_record(encode_event({.time = 2, .step = 1, .scalars = {{"loss", 3}}}));
  return bytes +
         encode_record(encode_event({.step = 2, .scalars = {{"a", 1}}, .texts = {{"t", "x"}}}));
}

TEST(EventFile, ReaderStopsCleanlyAtEveryTruncation) {
  std::string bytes = small_event_file();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EventFile file = read_event_file(std::string_view(bytes).substr(0, size));
    EXPECT_EQ(file.damage, "") << size;
    EXPECT_LT(file.events.size(), 3u);
  }
}

TEST(EventFile, ReaderNoticesEveryFlippedBit) {
  const std::string bytes = small_event_file();
  for (size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_NE(read_event_file(damaged).damage, "") << at << " " << bit;
    }
}

TEST(EventFile, ReaderStepsOverADamagedRecord) {
  std::string bytes = small_event_file();
  bytes[12 + 3] ^= 1;  // in the payload of the first record
  EventFile file = read_event_file(bytes);
  EXPECT_EQ(file.damage, "a damaged record at byte 12");
  EXPECT_EQ(file.events.size(), 2u);
}

// Mutated messages in records with valid checksums: what only the parser can catch.
TEST(EventFile, DecoderSurvivesRandomMessages) {
  std::mt19937 random(7);
  Event event{.time = 2, .step = 9, .scalars = {{"loss", 3}}, .texts = {{"text", "some"}}};
  const std::string good = encode_event(event);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (unsigned n = random() % 4; n-- > 0;)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (random() % 4 == 0)
      bytes.insert(random() % (bytes.size() + 1), 1, static_cast<char>(random()));
    std::optional<Event> decoded = decode_event(bytes);
    EXPECT_LE(decoded ? decoded->scalars.size() + decoded->texts.size() : 0, bytes.size());
    read_event_file(encode_record(bytes));
    read_event_file(bytes);
  }
}

TEST_F(MetricsTest, JsonLinesAndEventFileSayTheSame) {
  Metrics metrics({.dir = dir_ / "run", .tensorboard_dir = dir_ / "tb"});
  metrics.write(1, {{"train/lm_loss", 10.5}, {"train/learning_rate", 0.25}});
  metrics.write(2, {{"train/lm_loss", 9.5}});
  metrics.write(2, {{"validation/lm_loss", 9.75}});
  for (const char* part : {"run", "tb"}) {
    RunLog run = load_runs({(dir_ / part).string()}).at(0);
    EXPECT_EQ(shown(run, "train/lm_loss"), "1:10.5 2:9.5");
    EXPECT_EQ(shown(run, "train/learning_rate"), "1:0.25");
    EXPECT_EQ(shown(run, "validation/lm_loss"), "2:9.75");
    EXPECT_EQ(run.name, part);
  }
}

TEST_F(MetricsTest, ResumedRunVoidsWhatItRepeats) {
  for (int64_t first : {1, 3}) {
    Metrics metrics({.dir = dir_ / "run", .tensorboard_dir = dir_ / "tb", .first_step = first});
    int64_t last = first == 1 ? 5 : 4;
    for (int64_t step = first; step <= last; ++step)
      metrics.write(step, {{"train/lm_loss", static_cast<double>(10 * first + step)}});
  }
  EXPECT_EQ(loss_of(dir_ / "run"), "1:11 2:12 3:33 4:34");
  EXPECT_EQ(loss_of(dir_ / "tb"), "1:11 2:12 3:33 4:34");
}

TEST_F(MetricsTest, FreshStartKeepsAnEarlierRunUnderAnotherName) {
  for (double loss : {5, 4, 3}) {
    testing::internal::CaptureStderr();
    Metrics({.dir = dir_}).write(7, {{"train/lm_loss", loss}});
    EXPECT_EQ(testing::internal::GetCapturedStderr().find("had steps of an earlier run, up to "
                                                          "step 7; this run starts afresh") !=
                  std::string::npos,
              loss < 5);
  }
  EXPECT_EQ(loss_of(dir_), "7:3");
  EXPECT_EQ(loss_of(dir_ / "metrics-1.jsonl"), "7:5");
  EXPECT_EQ(loss_of(dir_ / "metrics-2.jsonl"), "7:4");
  Metrics({.dir = dir_, .first_step = 8}).write(8, {{"train/lm_loss", 2}});
  EXPECT_EQ(loss_of(dir_), "7:3 8:2");
}

// Of which no memory could hold all: the front is a hole.
TEST_F(MetricsTest, AFileOfAnySizeIsSetAsideByItsEnd) {
  fs::path path = dir_ / kMetricsFile;
  std::ofstream(path).flush();
  fs::resize_file(path, uintmax_t{256} << 30);
  std::ofstream(path, std::ios::app) << "\n{\"step\":9,\"x\":1}\n{\"step\":9,\"text\":{}}\n";
  testing::internal::CaptureStderr();
  Metrics({.dir = dir_}).write(1, {{"x", 2}});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("up to step 9;"), std::string::npos);
  EXPECT_EQ(fs::file_size(dir_ / "metrics-1.jsonl") >> 38, 1u);
}

TEST_F(MetricsTest, TheLastStepIsOneThatNoLaterLifeMadeVoid) {
  const std::string first = "{\"step\":1,\"x\":1}\n{\"step\":2,\"x\":null}\n{\"step\":3,\"x\":1}\n";
  auto start = [](int64_t step) { return concat("{\"step\":", step, ",\"event\":\"start\"}\n"); };
  EXPECT_EQ(last_step(first + "{\"step\":4,\"x\":5"), 3);
  EXPECT_EQ(last_step(first + start(3)), 2);
  EXPECT_EQ(last_step(first + start(2) + start(3)), 1);
  EXPECT_EQ(last_step(first + start(1)), std::nullopt);
  EXPECT_EQ(last_step(first + start(1) + "\n{\"step\":1,\"x\":1}"), 1);
  EXPECT_EQ(last_step(start(0) + "{\"step\":0,\"text\":{\"config\":\"\"}}\n"), std::nullopt);
  EXPECT_EQ(last_step(""), std::nullopt);
}

TEST_F(MetricsTest, ARunDoesNotGoOnInTheFileOfAnother) {
  for (const char* name : {"a", "b"}) fs::create_directories(dir_ / name);
  auto life = [&](const char* run, int64_t first, double loss) {
    Metrics({.dir = dir_, .run = dir_ / run, .first_step = first})
        .write(first, {{"train/lm_loss", loss}});
  };
  life("a", 0, 5), life("a", 2, 4);
  EXPECT_EQ(loss_of(dir_), "0:5 2:4");
  life("b", 7, 3);
  EXPECT_EQ(loss_of(dir_), "7:3");
  EXPECT_EQ(loss_of(dir_ / "metrics-1.jsonl"), "0:5 2:4");
  fs::rename(dir_ / "b", dir_ / "moved");
  life("moved", 8, 2);
  EXPECT_EQ(loss_of(dir_), "7:3 8:2");
}

TEST_F(MetricsTest, LastLineForAStepCounts) {
  RunLog run =
      read_metrics("{\"step\":1,\"x\":1,\"y\":5}\n{\"step\":2,\"x\":2}\n{\"step\":1,\"x\":3}\n");
  EXPECT_EQ(shown(run, "x"), "1:3 2:2");
  EXPECT_EQ(shown(run, "y"), "1:5");
}

// A run that is requeued again and again; each life goes back one step.
TEST_F(MetricsTest, ARunMayHaveManyLives) {
  constexpr int64_t kLives = 20'000;
  std::string text;
  for (int64_t life = 0; life < kLives; ++life) {
    text += concat("{\"step\":", life, ",\"event\":\"start\"}\n");
    for (int64_t step : {life, life + 1})
      text += concat("{\"step\":", step, ",\"x\":", life, "}\n");
  }
  std::vector<Point> points = read_metrics(text).series["x"];
  ASSERT_EQ(std::ssize(points), kLives + 1);
  for (int64_t step = 0; step <= kLives; ++step)
    EXPECT_EQ(points[size_t(step)].value, double(std::min(step, kLives - 1)));
}

TEST_F(MetricsTest, AStartVoidsPointsThatDoNotStandInTheOrderOfTheirSteps) {
  RunLog run = read_metrics(
      "{\"step\":5,\"x\":1}\n{\"step\":2,\"x\":2}\n{\"step\":4,\"x\":3}\n{\"step\":2,\"x\":4}\n"
      "{\"step\":4,\"event\":\"start\"}\n{\"step\":3,\"x\":5}\n{\"step\":1,\"x\":6}\n");
  EXPECT_EQ(shown(run, "x"), "1:6 2:4 3:5");
}

TEST_F(MetricsTest, ValuesThatAreNotFiniteSurvive) {
  Metrics metrics({.dir = dir_});
  metrics.write(4, {{"a", NAN}, {"b", INFINITY}, {"c", -INFINITY}, {"d", 1e308}});
  std::string text = read_file(dir_ / kMetricsFile);
  EXPECT_NE(
      text.find(
          R"("a":null,"b":null,"c":null,"d":1e+308,"not_finite":{"a":"nan","b":"inf","c":"-inf"}})"),
      std::string::npos);
  RunLog run = read_metrics(text);
  EXPECT_TRUE(std::isnan(run.series["a"].at(0).value));
  EXPECT_EQ(run.series["b"].at(0).value, INFINITY);
  EXPECT_EQ(run.series["c"].at(0).value, -INFINITY);
  EXPECT_EQ(run.series["d"].at(0).value, 1e308);
}

// Copies of values within each other are made one in the other.
TEST_F(MetricsTest, ALineMayBeNestedToAnyDepth) {
  std::string deep = std::string(200000, '[') + std::string(200000, ']');
  RunLog run = read_metrics(R"({"step":1,"a":null,"not_finite":{"a":)" + deep + "}}\n");
  EXPECT_TRUE(std::isnan(run.series["a"].at(0).value));
}

TEST_F(MetricsTest, AStartMayNameItsRunInAnyWay) {
  write_file_atomically(dir_ / kMetricsFile, "{\"step\":0,\"event\":\"start\",\"run\":5}\n");
  Metrics({.dir = dir_, .run = dir_ / "a", .first_step = 1}).write(1, {{"train/lm_loss", 5}});
  EXPECT_EQ(loss_of(dir_), "1:5");
}

TEST_F(MetricsTest, TornLineIsLeftOutAndNamed) {
  const std::string torn =
      "{\"step\":1,\"train/lm_loss\":5}\n{\"step\":2,\"train/lm_loss\":9}\n{\"step\":3,\"tra";
  write_file_atomically(dir_ / kMetricsFile, torn);
  EXPECT_EQ(read_metrics(torn).warnings.size(), 0u);
  Metrics({.dir = dir_, .first_step = 2}).write(3, {{"train/lm_loss", 4}});
  RunLog run = load_runs({dir_.string()}).at(0);
  EXPECT_EQ(shown(run, "train/lm_loss"), "1:5 3:4");
  EXPECT_EQ(run.warnings, std::vector<std::string>{"line 3 is not readable and is left out"});
}

TEST_F(MetricsTest, TextIsIndentedForTensorBoardAndAsItIsInJson) {
  Metrics({.dir = dir_, .tensorboard_dir = dir_}).text(3, "samples", "one\ntwo \xFF");
  EXPECT_NE(read_file(dir_ / kMetricsFile).find(R"("text":{"samples":"one\ntwo �"}})"),
            std::string::npos);
  for (const auto& entry : fs::directory_iterator(dir_)) {
    if (entry.path().filename() == kMetricsFile) continue;
    EventFile file = read_event_file(read_file(entry.path()));
    ASSERT_EQ(file.events.size(), 3u);  // version, start, text
    EXPECT_EQ(file.events[2].texts.at(0).second, "    one\n    two \xFF");
  }
}

TEST_F(MetricsTest, EventFilesOfOneSecondSortInTheOrderOfTheirMaking) {
  fs::path first = EventFileWriter(dir_).path(), second = EventFileWriter(dir_).path();
  EXPECT_LT(first.filename().string(), second.filename().string());
}

TEST_F(MetricsTest, FullDiskIsAnInputOutputError) {
  std::string message;
  fs::create_symlink("/dev/full", dir_ / kMetricsFile);
  EXPECT_EQ(exit_of([&] { Metrics metrics({.dir = dir_}); }, &message), Exit::kIo);
  EXPECT_NE(message.find("metrics.jsonl: No space left on device (ENOSPC)"), std::string::npos);
}

TEST_F(MetricsTest, APipeIsRefusedWithoutWaitingForAReader) {
  fs::path path = dir_ / kMetricsFile;
  ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
  auto refused = [&] {
    std::string message;
    EXPECT_EQ(exit_of([&] { Metrics metrics({.dir = dir_}); }, &message), Exit::kIo);
    EXPECT_EQ(message.find(path.string() + " is a pipe"), 0u) << message;
  };
  refused();
  Descriptor reader(path, O_RDONLY | O_NONBLOCK, "open");
  refused();
}

TEST_F(MetricsTest, WithoutADirectoryNothingIsWritten) {
  Metrics metrics({});
  metrics.write(1, {{"x", 1}});
  metrics.text(1, "x", "y");
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(MetricsTest, RunsAreFoundBelowADirectoryAndToldApart) {
  for (const char* name : {"a/seed1", "b/seed1", "b/deep/er"})
    Metrics({.dir = dir_ / name}).write(1, {{"x", 1}});
  std::vector<RunLog> runs = load_runs({dir_.string()});
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].name, "a/seed1");
  EXPECT_EQ(runs[1].name, "deep/er");
  EXPECT_EQ(runs[2].name, "b/seed1");
}

TEST_F(MetricsTest, ARunThatALinkLeadsToAgainIsOne) {
  Metrics({.dir = dir_ / "b"}).write(1, {{"x", 1}});
  fs::create_directory_symlink("b", dir_ / "a");
  std::vector<RunLog> runs = load_runs({dir_.string(), (dir_ / "a").string()});
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].name, "b");
}

// A run that saves renames directories while others look.
TEST_F(MetricsTest, DirectoriesThatCannotBeReadHideNoRun) {
  Metrics({.dir = dir_ / "b"}).write(1, {{"x", 1}});
  fs::create_directories(dir_ / "a/deep");
  fs::create_symlink("loop", dir_ / "loop");
  fs::permissions(dir_ / "a", fs::perms::none);
  std::vector<RunLog> runs = load_runs({dir_.string()});
  fs::permissions(dir_ / "a", fs::perms::owner_all);
  EXPECT_EQ(runs.size(), 1u);
}

TEST_F(MetricsTest, OfManyUnreadableLinesFiveAreNamed) {
  auto warnings = [](int lines) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += "bad\n";
    return read_metrics(text + "{}").warnings;
  };
  EXPECT_EQ(warnings(5).size(), 5u);
  EXPECT_EQ(warnings(5).back(), "line 5 is not readable and is left out");
  EXPECT_EQ(warnings(7).size(), 6u);
  EXPECT_EQ(warnings(7).back(), "more of the same is not shown");
}

TEST_F(MetricsTest, MissingRunIsAnInputOutputErrorThatSaysWhatARunIs) {
  std::string message;
  EXPECT_EQ(exit_of([&] { load_runs({(dir_ / "none").string()}); }, &message), Exit::kIo);
  EXPECT_NE(message.find("a run is a metrics.jsonl"), std::string::npos);
  EXPECT_EQ(exit_of([&] { load_runs({dir_.string()}); }, &message), Exit::kIo);
  EXPECT_NE(message.find("neither a metrics.jsonl nor"), std::string::npos);
}

TEST_F(MetricsTest, ReaderOfLinesSurvivesRandomBytes) {
  std::mt19937 random(3);
  const std::string good =
      "{\"step\":1,\"time\":2.5,\"x\":null,\"not_finite\":{\"x\":\"inf\"}}\n{\"step\":2,\"event\":"
      "\"start\"}\n";
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (unsigned n = random() % 6; n-- > 0;)
      text[random() % text.size()] = static_cast<char>(random());
    EXPECT_LE(read_metrics(text).series.size(), text.size());
  }
}

}  // namespace
}  // namespace neox
