// What is damaged, cut off, lost or foreign is named; nothing of it crashes or goes unseen.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <thread>

#include "base/error.h"
#include "checkpoint/layout.h"
#include "checkpoint_support.h"

namespace neox {
namespace {

// Changes a file and puts it back.
class Damage {
 public:
  explicit Damage(fs::path path) : path_(std::move(path)), before_(read_file(path_)) {}
  ~Damage() { put(before_); }
  void flip(int64_t at, int bit) {
    std::string text = before_;
    text[static_cast<size_t>(at)] = static_cast<char>(text[static_cast<size_t>(at)] ^ (1 << bit));
    put(text);
  }
  void cut(int64_t size) { put(before_.substr(0, static_cast<size_t>(size))); }
  void append(const std::string& more) { put(before_ + more); }
  void put(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  int64_t size() const { return static_cast<int64_t>(before_.size()); }

 private:
  fs::path path_;
  std::string before_;
};

void append_to(const fs::path& file, const std::string& more) {
  std::ofstream(file, std::ios::binary | std::ios::app) << more;
}

void flip_last_byte(const fs::path& file) {
  std::string text = read_file(file);
  text.back() = static_cast<char>(text.back() ^ 1);
  std::ofstream(file, std::ios::binary) << text;
}

class DamageTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    save_all({.dir = dir_}, filled(2, 1), 1);
    save_all({.dir = dir_}, filled(3, 2), 2);
    ASSERT_EQ(read_back(dir2(), 2), "");
  }
  bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  fs::path dir2() { return dir_ / "global_step2"; }
  struct Place {
    std::string file;
    int64_t byte;
    std::string tensor;
  };
  // A random byte of a random box.
  Place payload_byte() {
    Catalog c = open_complete(dir2()).catalog;
    const StoredBox& box = c.boxes[size_t(cutter_.below(int64_t(c.boxes.size())))];
    ByteRange range = c.range(box);
    return {c.files[size_t(c.file_of(box))].name,
            range.begin + cutter_.below(range.end - range.begin), c.label(box.tensor)};
  }
  std::string read_damaged() { return read_back(dir2(), 2); }
  // Saves step 3 on three ranks, one of whose files is harmed before it is read; what each threw.
  std::vector<std::string> save_harmed(int writer,
                                       const std::function<void(const fs::path&)>& harm) {
    Layout layout = filled(3, 3);
    return run_ranks(3, [&](Control& control) {
      int rank = control.rank();
      HarmedControl harmed(control, [&] {
        if (rank == writer) harm(dir_ / temporary_name(3, "0") / rank_file_name(rank));
      });
      save_checkpoint({.dir = dir_}, layout[size_t(rank)], state_of(3), harmed);
    });
  }
};

TEST_F(DamageTest, AFlippedByteOfPayloadIsNamedWithFileAndTensor) {
  for (int i = 0; i < 100; ++i) {
    Place place = payload_byte();
    Damage damage(dir2() / place.file);
    damage.flip(place.byte, int(cutter_.below(8)));
    std::string error = read_damaged();
    ASSERT_TRUE(has(error, place.file + " is damaged: " + place.tensor + " ")) << error;
    ASSERT_TRUE(has(
        error, "the newest other complete checkpoint there is " + (dir_ / "global_step1").string()))
        << error;
  }
}

TEST_F(DamageTest, EveryByteOfEveryFileIsGuarded) {
  for (const auto& entry : fs::directory_iterator(dir2())) {
    Damage damage(entry.path());
    int64_t tries = std::min<int64_t>(damage.size(), 300);
    for (int64_t i = 0; i < tries; ++i) {
      int64_t at = tries == damage.size() ? i : cutter_.below(damage.size());
      damage.flip(at, int(cutter_.below(8)));
      ASSERT_TRUE(has(read_damaged(), dir2().string())) << entry.path() << " byte " << at;
    }
  }
}

TEST_F(DamageTest, FilesCutOffOrGrownOrEmptyAreNamed) {
  for (const auto& entry : fs::directory_iterator(dir2())) {
    Damage damage(entry.path());
    for (int64_t size : {int64_t{0}, int64_t{1}, damage.size() / 2, damage.size() - 1}) {
      damage.cut(size);
      ASSERT_TRUE(has(read_damaged(), entry.path().filename().string())) << entry.path() << size;
    }
    damage.append("x");
    ASSERT_TRUE(has(read_damaged(), entry.path().filename().string())) << entry.path();
  }
}

// By another rank than its writer, which no rank is for all; all say the same.
TEST_F(DamageTest, AFileThatIsNotWhatItsRankWroteIsNotPublished) {
  std::function<void(const fs::path&)> harms[] = {
      [](const fs::path& file) { append_to(file, "x"); },
      [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 1); },
      [](const fs::path& file) { flip_last_byte(file); },
      [](const fs::path& file) { fs::remove(file); }};
  for (int writer : {0, 1, 2})
    for (const auto& harm : harms) {
      auto errors = save_harmed(writer, harm);
      std::string reader = concat("global_step3: rank ", (writer + 2) % 3, " on ");
      EXPECT_TRUE(has(errors[0], reader) && has(errors[0], rank_file_name(writer))) << errors[0];
      EXPECT_EQ(errors, std::vector<std::string>(3, errors[0]));
      EXPECT_EQ(find_checkpoint(dir_), dir2());
    }
}

// It would be newer than those that are saved behind it, and each start would go on from it.
TEST_F(DamageTest, ACheckpointUnderTheNameOfAnotherStepIsPassedOver) {
  fs::rename(dir2(), dir_ / "global_step7");
  EXPECT_TRUE(has(error_of([&] { Checkpoint checkpoint(dir_ / "global_step7"); }),
                  "holds the checkpoint of iteration 2: give it the name global_step2"));
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step1");
}

TEST_F(DamageTest, OneThatItsRunRemovesWhileItIsReadIsNotCalledDamaged) {
  Checkpoint checkpoint(dir2());
  fs::remove_all(dir2());
  EXPECT_TRUE(has(error_of([&] {
                    for (auto& rank : cutter_.layout(model_, 1)) checkpoint.read(rank);
                  }),
                  "it was removed meanwhile; the newest other complete checkpoint there is " +
                      (dir_ / "global_step1").string() + ": start again"));
}

// Who relies on another rank's look meets the file itself when it reads.
TEST_F(DamageTest, AFileThatAnotherRankLookedAtIsNamedWhenItIsRead) {
  std::string name = open_complete(dir2()).catalog.files.at(0).name;
  Damage damage(dir2() / name);
  damage.cut(damage.size() - 1);
  EXPECT_TRUE(has(error_of([&] { Checkpoint checkpoint(dir2()); }), name));
  EXPECT_EQ(error_of([&] { Checkpoint checkpoint(dir2(), RankFiles::kLookedAt); }), "");
  EXPECT_TRUE(has(error_of([&] {
                    Checkpoint checkpoint(dir2(), RankFiles::kLookedAt);
                    for (auto& rank : cutter_.layout(model_, 1)) checkpoint.read(rank);
                  }),
                  name));
}

// What ranks that hold copies of one state read, by the first file that is cut off.
TEST_F(DamageTest, EachReaderBeginsWithAnotherFile) {
  Checkpoint checkpoint(dir2());
  std::vector<StoredFile> files = open_complete(dir2()).catalog.files;
  std::list<Damage> damages;
  for (const StoredFile& file : files) damages.emplace_back(dir2() / file.name).cut(1);
  Layout layout = cutter_.layout(model_, 1);
  for (size_t rank = 0; rank < 7; ++rank) {
    std::string error = error_of([&] { checkpoint.read(layout[0], int(rank)); });
    EXPECT_TRUE(has(error, files[rank % files.size()].name + " has 1 bytes")) << rank << error;
  }
}

TEST_F(DamageTest, AMissingFileIsNamed) {
  for (const char* name : {"rank_00001.h5", "index.h5", "train_state.json", "COMPLETE"}) {
    fs::rename(dir2() / name, dir_ / "aside");
    std::string error = read_damaged();
    EXPECT_TRUE(has(error, name)) << error;
    EXPECT_TRUE(has(error, "checkpoint there is " + (dir_ / "global_step1").string())) << error;
    EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step1");
    EXPECT_THROW(find_checkpoint(dir_, 2), Error);
    fs::rename(dir_ / "aside", dir2() / name);
  }
}

TEST_F(DamageTest, AFileOfAnotherCheckpointIsNoticed) {
  fs::path one = dir_ / "global_step1/rank_00000.h5", two = dir2() / "rank_00000.h5";
  Damage damage(two);
  damage.put(read_file(one));
  EXPECT_TRUE(has(read_damaged(), two.string()));
}

TEST_F(DamageTest, AFileThatGoesAfterOpeningIsNamed) {
  Checkpoint checkpoint(dir2());
  fs::remove(dir2() / "rank_00001.h5");
  Layout layout = cutter_.layout(model_, 1);
  EXPECT_TRUE(has(error_of([&] { checkpoint.read(layout[0]); }), "rank_00001.h5"));
}

TEST_F(DamageTest, WhatLiesOutsideOfTensorsIsCheckedOnce) {
  Checkpoint checkpoint(dir2());
  for (auto& rank : cutter_.layout(model_, 1)) checkpoint.read(rank);
  std::ofstream(dir2() / "rank_00000.h5", std::ios::in | std::ios::out) << 'x';
  for (auto& rank : cutter_.layout(model_, 1)) checkpoint.read(rank);
}

TEST_F(DamageTest, AnIndexWithAHoleNeverFillsIn) {
  Catalog catalog = open_complete(dir2()).catalog;
  StoredBox lost = catalog.boxes.back();
  catalog.boxes.pop_back();
  std::string index;
  {
    Hdf5File file = Hdf5File::in_memory("index");
    put_catalog(file, catalog);
    index = file.image();
  }
  write_file_atomically(dir2() / kIndexFile, index);
  write_file_atomically(dir2() / kCompleteFile,
                        complete_text(index, read_file(dir2() / kStateFile)));
  std::string error = read_damaged();
  EXPECT_TRUE(has(error, catalog.label(lost.tensor)) && has(error, "lie in none of its files"))
      << error;
}

TEST_F(DamageTest, AnotherFormatVersionIsNamed) {
  std::string lines = "neox.cpp checkpoint 2\nsomething else\n";
  write_file_atomically(dir2() / kCompleteFile,
                        lines + "check " + to_string(checksum(lines)) + "\n");
  EXPECT_TRUE(has(read_damaged(), "has version 2 of the format, this program reads version 1"));
}

class FindTest : public CheckpointTest {
 protected:
  void save(int64_t step) { ASSERT_EQ(save_all({.dir = dir_}, filled(1, step), step)[0], ""); }
  void put(const fs::path& path, const std::string& text = "x") {
    fs::create_directories((dir_ / path).parent_path());
    write_file_atomically(dir_ / path, text);
  }
  std::string error(std::optional<int64_t> iteration = {}) {
    return error_of([&] { find_checkpoint(dir_, iteration); });
  }
  bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

TEST_F(FindTest, NothingWhereThereIsNothing) {
  EXPECT_EQ(find_checkpoint(dir_ / "absent"), std::nullopt);
  EXPECT_EQ(find_checkpoint(dir_), std::nullopt);
  put("logs/x");
  put("global_step7.tmp-5.0/rank_00000.h5");  // a first save that was cut off
  EXPECT_EQ(find_checkpoint(dir_), std::nullopt);
}

TEST_F(FindTest, TheNewestCompleteOneWhateverLatestSays) {
  for (int64_t step : {9, 100, 20}) save(step);
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step100");
  fs::remove(dir_ / "global_step100/COMPLETE");
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step20");
  EXPECT_EQ(find_checkpoint(dir_, 9), dir_ / "global_step9");
}

TEST_F(FindTest, SaysThatLatestIsNotGoneBy) {
  for (int64_t step : {9, 20}) save(step);
  put("latest", "global_step9");
  fs::last_write_time(dir_ / "latest", fs::file_time_type::clock::now() + std::chrono::seconds(1));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step20");
  EXPECT_TRUE(
      has(::testing::internal::GetCapturedStderr(), "names global_step9, but global_step20"));
}

TEST_F(FindTest, IsNotMisledByARunThatGoesOn) {
  ::testing::internal::CaptureStderr();
  save(1);
  std::atomic<bool> ended = false;
  std::thread run([&] {
    for (int64_t step = 2; step < 60; ++step)
      save_alone({.dir = dir_, .keep_last = 1}, filled(1, step), step);
    ended = true;
  });
  std::set<std::string> errors;
  while (!ended) errors.insert(error());
  run.join();
  EXPECT_EQ(errors, std::set<std::string>{""});
  std::string said = ::testing::internal::GetCapturedStderr();
  size_t warned = said.find("warning");
  EXPECT_EQ(warned, said.npos) << said.substr(std::min(warned, said.size()), 300);
}

TEST_F(FindTest, OneThatWasPutAsideForNothing) {
  save(9), save(20);
  fs::rename(dir_ / "global_step20", dir_ / "global_step20.deleting-5.0");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step20.deleting-5.0");
  EXPECT_TRUE(has(::testing::internal::GetCapturedStderr(), "was put aside"));
  save(30);  // which removes it
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step30");
  EXPECT_FALSE(fs::exists(dir_ / "global_step20.deleting-5.0"));
  fs::rename(dir_ / "global_step9", dir_ / "global_step9.deleting-5.0");
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step30");
  fs::remove_all(dir_ / "global_step30");
  fs::remove(dir_ / "global_step9.deleting-5.0/index.h5");  // it was being removed
  fs::remove(dir_ / "latest");
  EXPECT_EQ(find_checkpoint(dir_), std::nullopt);
}

TEST_F(FindTest, ASaveDoesNotReplaceTheCheckpointOfAnotherProgram) {
  save(9);
  put("global_step20/mp_rank_00_model_states.pt", "precious");
  for (const std::string& said : save_all({.dir = dir_}, filled(2, 20), 20))
    EXPECT_TRUE(has(said, "it would replace a GPT-NeoX (DeepSpeed) checkpoint (")) << said;
  EXPECT_EQ(read_file(dir_ / "global_step20/mp_rank_00_model_states.pt"), "precious");
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step9");
}

TEST_F(FindTest, AnIterationThatIsNotThereIsToldWhichAre) {
  save(9), save(20);
  EXPECT_TRUE(has(error(10), "no checkpoint of iteration 10; it holds those of iterations 20, 9"));
  EXPECT_TRUE(has(error_of([&] { find_checkpoint(dir_ / "absent", 3); }), "does not exist"));
}

TEST_F(FindTest, OnlyDamagedOnesAreAnErrorThatNamesThem) {
  save(9), save(20);
  fs::remove(dir_ / "global_step20/COMPLETE");
  put("global_step9/train_state.json", "{}");
  EXPECT_TRUE(has(error(), "global_step20 is not complete: it has no COMPLETE"));
  EXPECT_TRUE(has(error(), "global_step9/train_state.json is damaged"));
}

TEST_F(FindTest, LatestWithoutItsCheckpointIsAnError) {
  put("latest", "global_step1000");
  EXPECT_TRUE(has(error(), "latest names global_step1000, which is not there"));
}

TEST_F(FindTest, CheckpointsOfOthersAreNamed) {
  struct Case {
    const char *file, *program;
  };
  for (const Case& c :
       {Case{"global_step5/mp_rank_00_model_states.pt", "DeepSpeed"},
        Case{"global_step5/layer_00-model_00-model_states.pt", "DeepSpeed"},
        Case{"global_step5/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "DeepSpeed"},
        Case{"latest_checkpointed_iteration.txt", "Megatron"},
        Case{"model-00001-of-00002.safetensors", "Hugging Face"},
        Case{"pytorch_model.bin", "Hugging Face"}}) {
    put(c.file);
    EXPECT_TRUE(has(error(), c.program) && has(error(), c.file)) << error();
    EXPECT_TRUE(has(error(), "neox-convert --to neox.cpp")) << error();
    if (std::string(c.file).starts_with("global")) { EXPECT_TRUE(has(error(5), "DeepSpeed")); }
    fs::remove_all(dir_ / *fs::path(c.file).begin());
  }
}

TEST_F(FindTest, ACheckpointIsNoRunDirectory) {
  save(9);
  EXPECT_TRUE(has(error_of([&] { find_checkpoint(dir_ / "global_step9"); }), "is itself a check"));
  EXPECT_TRUE(has(error_of([&] { find_checkpoint(dir_ / "latest"); }), "is not a directory"));
}

TEST_F(CheckpointTest, SaysHowLongItsSaveTookAndOfHowManyFilesItIs) {
  save_all({.dir = dir_}, filled(3, 1), 1);
  Checkpoint checkpoint(dir_ / "global_step1");
  EXPECT_GT(checkpoint.state().save_seconds, 0);
  EXPECT_LT(checkpoint.state().save_seconds, 600);
  EXPECT_EQ(checkpoint.num_files(), 3);
}

TEST(TrainStateTest, WhatFilesOfBeforeLackIsNotKnown) {
  TrainState state = state_of(3), none = state;
  state.micro_batch = state.reference_step = 2;
  state.tokenizer_hash = state.reference_hash = "0";
  state.save_seconds = 2.5;
  none.evaluated = 3;
  std::string text = to_json(state);
  for (const char* key : {"micro_batch", "evaluated", "save_seconds", "reference_step",
                          "reference_hash", "tokenizer_hash"}) {
    size_t line = text.find(concat("\n  \"", key, "\": "));
    ASSERT_NE(line, text.npos) << key;
    text.erase(line, text.find('\n', line + 1) - line);
  }
  EXPECT_EQ(train_state_from_json(text, "x"), none);
}

}  // namespace
}  // namespace neox
