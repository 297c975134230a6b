// Bad input ends a program with exit code 64 or 74 and one message that names the thing and the
// cure; checkpoints that were there stay. The messages are printed, for people to read.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cctype>
#include <cerrno>
#include <functional>
#include <iostream>

#include "run_fixture.h"

namespace neox::testing {
namespace {

// A run whose save directory holds a finished run's checkpoints of steps 10 and 20.
class Scene : public Training {
 public:
  Scene() {
    static const Training done;
    static const Ended ended = done.train();
    check(ended.code == 0, ended.err);
    fs::copy(done.save(), save(), fs::copy_options::recursive);
  }
  void forget_checkpoints() const { fs::remove_all(save()); }
  // A dataset of its own, for damage; its prefix.
  std::string data() const {
    forget_checkpoints();
    for (const char* end : {".bin", ".idx"})
      fs::copy(Material::get() / ("text" + std::string(end)), dir() / ("d" + std::string(end)));
    return dir() / "d";
  }
  std::string of_step(int64_t step, const std::string& name) const {
    return step_dir(step) + "/" + name;
  }
};

void cut(const std::string& path, int64_t bytes) {
  fs::resize_file(path, fs::file_size(path) - static_cast<uintmax_t>(bytes));
}

void overwrite(const std::string& path, int64_t at, std::string_view bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at) << bytes;
}

void flip(const std::string& path, int64_t at) {
  std::string content = read_file(path);
  overwrite(path, at, std::string(1, static_cast<char>(~content[static_cast<size_t>(at)])));
}

// A tokenizer with more entries than the model has room for.
std::string larger_tokenizer(const Scene& scene) {
  auto json = nlohmann::ordered_json::parse(read_file(Material::get() / "tokenizer.json"));
  auto& vocab = json["model"]["vocab"];
  for (int i = 0; i < 9; ++i) vocab[concat("more", i)] = vocab.size();
  return scene.dir().put("larger.json", json.dump());
}

struct What {
  Strings settings = {}, more = {}, environment = {};
};

struct Case {
  const char* name;
  int code;
  Strings says;  // among others
  std::function<What(Scene&)> arrange;
};

void PrintTo(const Case& bad, std::ostream* out) { *out << bad.name; }

std::string show(std::string text, const std::string& dir) {
  for (size_t at; (at = text.find(dir)) != text.npos;) text.replace(at, dir.size(), "DIR");
  return text;
}

// The one message of a program: what it said after its name, without log lines.
std::string message_of(const Ended& ended, const std::string& program) {
  std::string all = "\n" + ended.err, begin = "\n" + program + ": ";
  size_t at = all.find(begin);
  EXPECT_NE(at, all.npos) << ended.err;
  EXPECT_EQ(all.find(begin, at + 1), all.npos) << "more than one message: " << ended.err;
  return at == all.npos ? "" : all.substr(at + begin.size());
}

void expect_message(const Case& bad, const Ended& ended, const std::string& program,
                    const std::string& dir) {
  EXPECT_EQ(ended.code, bad.code) << ended.err;
  std::string message = show(message_of(ended, program), dir);
  std::cout << bad.name << " (" << ended.code << "): " << message;
  for (const std::string& part : bad.says)
    EXPECT_NE(message.find(part), message.npos) << "'" << part << "' is not in: " << message;
  EXPECT_LT(message.size(), 900u);
}

class Trained : public ::testing::TestWithParam<Case> {};

TEST_P(Trained, EndsWithAMessage) {
  Scene scene;
  What what = GetParam().arrange(scene);
  auto before = scene.saved();
  Ended ended = scene.train(what.settings, what.more, {.environment = what.environment});
  expect_message(GetParam(), ended, "neox-train", scene.dir().path());
  auto after = scene.saved();
  for (int64_t step : before)
    EXPECT_TRUE(std::ranges::count(after, step) > 0) << "step " << step << " is lost";
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name;
  for (char c : std::string(info.param.name))
    name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

const Case kData[] = {
    {"missing bin",
     74,
     {"DIR/d.bin is missing", "neox-prepare-data"},
     [](Scene& s) {
       std::string d = s.data();
       fs::remove(d + ".bin");
       return What{{"data_path=" + d}};
     }},
    {"missing idx",
     74,
     {"DIR/d.idx is missing", "neox-prepare-data"},
     [](Scene& s) {
       std::string d = s.data();
       fs::remove(d + ".idx");
       return What{{"data_path=" + d}};
     }},
    {"missing dataset",
     74,
     {"no dataset DIR/nothing", "neox-prepare-data makes one"},
     [](Scene& s) { return What{{"data_path=" + (s.dir() / "nothing")}}; }},
    {"prefix with ending",
     74,
     {"DIR/d.bin.bin", "Did you mean DIR/d?"},
     [](Scene& s) { return What{{"data_path=" + s.data() + ".bin"}}; }},
    {"truncated bin",
     74,
     {"DIR/d.bin is truncated", "write the data again"},
     [](Scene& s) {
       std::string d = s.data();
       cut(d + ".bin", 10);
       return What{{"data_path=" + d}};
     }},
    {"truncated idx",
     74,
     {"DIR/d.idx is truncated", "write the data again"},
     [](Scene& s) {
       std::string d = s.data();
       cut(d + ".idx", 10);
       return What{{"data_path=" + d}};
     }},
    {"idx of 20 bytes",
     74,
     {"DIR/d.idx is truncated: 20 bytes"},
     [](Scene& s) {
       std::string d = s.data();
       fs::resize_file(d + ".idx", 20);
       return What{{"data_path=" + d}};
     }},
    {"wrong magic",
     74,
     {"DIR/d.idx", "MMIDIDX"},
     [](Scene& s) {
       std::string d = s.data();
       overwrite(d + ".idx", 0, "GARBAGE");
       return What{{"data_path=" + d}};
     }},
    {"token beyond the vocabulary",
     74,
     {"DIR/d.bin", "32767", "300"},
     [](Scene& s) {
       std::string d = s.data();
       for (int64_t at = 0; at < static_cast<int64_t>(fs::file_size(d + ".bin")); at += 20)
         overwrite(d + ".bin", at, "\xff\x7f");
       return What{{"data_path=" + d}};
     }},
    {"other data than the checkpoint's",
     64,
     {"training data", "DIR/save/global_step20", "data_path, seed, split and seq_length"},
     [](Scene& s) {
       s.dir().put("other", counting({40, 60}));
       return What{{"data_path=" + (s.dir() / "other"), "split=1"}};
     }},
    {"other seed than the checkpoint's",
     64,
     {"training data", "seed"},
     [](Scene&) { return What{{"seed=5"}}; }},
    {"no data", 64, {"no data: give data_path"}, [](Scene&) { return What{{"data_path="}}; }},
    {"missing tokenizer",
     74,
     {"--set: vocab_file names DIR/gone.json, which does not exist"},
     [](Scene& s) { return What{{"vocab_file=" + (s.dir() / "gone.json")}}; }},
    {"broken tokenizer",
     74,
     {"DIR/t.json"},
     [](Scene& s) { return What{{"vocab_file=" + s.dir().put("t.json", "{\"model\": ")}}; }},
    {"larger tokenizer",
     64,
     {"vocab_file", "DIR/larger.json", "309 entries", "room for 300", "DIR/save/global_step20"},
     [](Scene& s) { return What{{"vocab_file=" + larger_tokenizer(s)}}; }},
    {"no vocabulary",
     64,
     {"vocab_file", "padded_vocab_size"},
     [](Scene& s) {
       s.forget_checkpoints();
       return What{{"vocab_file="}};
     }},
};
INSTANTIATE_TEST_SUITE_P(Data, Trained, ::testing::ValuesIn(kData), name_of);

const Case kSave[] = {
    {"save below a file",
     74,
     {"save", "DIR/f/save", "where checkpoints cannot be written"},
     [](Scene& s) {
       s.dir().put("f", "");
       return What{{"save=" + (s.dir() / "f/save"), "load="}};
     }},
    {"save is a file",
     74,
     {"save", "DIR/f is a file"},
     [](Scene& s) {
       std::string f = s.dir().put("f", "");
       return What{{"save=" + f, "load=" + f}};
     }},
    {"save that may not be written",
     74,
     {"where checkpoints cannot be written", "DIR/save", "(EACCES)"},
     [](Scene& s) {
       return What{{}, {}, Training::fault(s.save(), EACCES, "NEOX_FAULT_CALLS=0")};
     }},
    {"read-only file system",
     74,
     {"DIR/save", "(EROFS)", "choose a directory that can be written"},
     [](Scene& s) {
       return What{{}, {}, Training::fault(s.save(), EROFS, "NEOX_FAULT_CALLS=0")};
     }},
    {"full disk",
     74,
     {"DIR/save/global_step30", "(ENOSPC)", "free space there"},
     [](Scene& s) {
       return What{
           {"train_iters=30"}, {}, Training::fault(s.save(), ENOSPC, "NEOX_FAULT_BYTES=300000")};
     }},
    {"used-up quota",
     74,
     {"DIR/save/global_step30", "(EDQUOT)", "your quota there is used up"},
     [](Scene& s) {
       return What{
           {"train_iters=30"}, {}, Training::fault(s.save(), EDQUOT, "NEOX_FAULT_BYTES=300000")};
     }},
    {"full disk of the metrics",
     74,
     {"DIR/log/metrics.jsonl", "(ENOSPC)"},
     [](Scene& s) {
       return What{{"train_iters=30"},
                   {},
                   Training::fault(s.dir() / "log", ENOSPC, "NEOX_FAULT_BYTES=900")};
     }},
    {"save of another run",
     64,
     {"save names DIR/save", "global_step20", "set load: DIR/save"},
     [](Scene&) { return What{{"load="}}; }},
};
INSTANTIATE_TEST_SUITE_P(Save, Trained, ::testing::ValuesIn(kSave), name_of);

const Case kLoad[] = {
    {"load that names nothing",
     64,
     {"load names DIR/nothing", "where there is no checkpoint"},
     [](Scene& s) {
       return What{{"load=" + (s.dir() / "nothing"), "save="}};
     }},
    {"load is a file",
     64,
     {"load names DIR/tiny.yml, which is a file", "global_step"},
     [](Scene& s) {
       return What{{"load=" + (s.dir() / "tiny.yml"), "save="}};
     }},
    {"load of an iteration that is not there",
     74,
     {"iteration 7", "20, 10"},
     [](Scene&) { return What{{"iteration=7"}}; }},
    {"checkpoint of DeepSpeed",
     74,
     {"DeepSpeed", "DIR/ds/global_step5/mp_rank_00_model_states.pt"},
     [](Scene& s) {
       s.dir().put("ds/global_step5/mp_rank_00_model_states.pt", "PK");
       s.dir().put("ds/latest", "global_step5");
       return What{{"load=" + (s.dir() / "ds"), "save="}};
     }},
    {"more layers than the checkpoint",
     64,
     {"DIR/save/global_step20", "2 layers", "3 layers"},
     [](Scene&) { return What{{"num_layers=3"}}; }},
    {"other hidden size than the checkpoint",
     64,
     {"hidden 32", "hidden 64", "directories"},
     [](Scene&) { return What{{"hidden_size=64"}}; }},
    {"flipped byte",
     74,
     {"DIR/save/global_step20/rank_00000.h5 is damaged", "DIR/save/global_step10"},
     [](Scene& s) {
       flip(s.of_step(20, "rank_00000.h5"), 300000);
       return What{{"train_iters=30"}};
     }},
    {"truncated HDF5",
     74,
     {"DIR/save/global_step20/rank_00000.h5 has", "that were saved"},
     [](Scene& s) {
       cut(s.of_step(20, "rank_00000.h5"), 1000);
       return What{{"iteration=20"}};
     }},
    {"damaged index",
     74,
     {"DIR/save/global_step20/index.h5", "global_step10"},
     [](Scene& s) {
       flip(s.of_step(20, "index.h5"), 5000);
       return What{{"iteration=20"}};
     }},
    {"damaged train state",
     74,
     {"DIR/save/global_step20/train_state.json"},
     [](Scene& s) {
       flip(s.of_step(20, "train_state.json"), 50);
       return What{{"iteration=20"}};
     }},
    {"incomplete checkpoint",
     74,
     {"DIR/save/global_step20 is not complete", "global_step10"},
     [](Scene& s) {
       fs::remove(s.of_step(20, "COMPLETE"));
       return What{{"iteration=20"}};
     }},
    {"no complete checkpoint",
     74,
     {"no checkpoint in DIR/save can be used", "remove"},
     [](Scene& s) {
       for (int64_t step : {10, 20}) fs::remove(s.of_step(step, "COMPLETE"));
       return What{};
     }},
    {"missing rank file",
     74,
     {"DIR/save/global_step20/rank_00000.h5"},
     [](Scene& s) {
       fs::remove(s.of_step(20, "rank_00000.h5"));
       return What{{"iteration=20"}};
     }},
};
INSTANTIATE_TEST_SUITE_P(Load, Trained, ::testing::ValuesIn(kLoad), name_of);

// Lines in a second configuration file.
std::function<What(Scene&)> config(const std::string& lines, const Strings& more = {}) {
  return [=](Scene& scene) {
    scene.forget_checkpoints();
    Strings all = {scene.dir().put("b.yml", lines + "\n")};
    all.insert(all.end(), more.begin(), more.end());
    return What{{}, all};
  };
}

std::function<What(Scene&)> arguments(const Strings& more) {
  return [=](Scene&) { return What{{}, more}; };
}

const Case kConfig[] = {
    {"unknown key",
     64,
     {"DIR/b.yml:2", "unknown key 'hiden_dropout'", "hidden_dropout"},
     config("seed: 1234\nhiden_dropout: 0.1")},
    {"wrong type", 64, {"DIR/b.yml:1: seed is \"high\"", "allowed is"}, config("seed: high")},
    {"key given twice",
     64,
     {"DIR/b.yml:2", "'seed' stands here and at line 1", "remove one"},
     config("seed: 1\nseed: 1")},
    {"files that disagree",
     64,
     {"seq_length", "DIR/b.yml:1", "DIR/tiny.yml:4"},
     config("seq_length: 32")},
    {"unsupported",
     64,
     {"DIR/b.yml:1", "stage: 3 is not supported yet", "0, 1 and 2"},
     config("zero_optimization: {stage: 3}")},
    {"batch arithmetic",
     64,
     {"train_batch_size is 5", "DIR/b.yml:1", "is 4", "One of these mends it"},
     config("train_micro_batch_size_per_gpu: 2\ngradient_accumulation_steps: 2")},
    {"layout that does not fit",
     64,
     {"pipe_parallel_size 2", "multiple of 2 ranks", "has 3", "2 or 4"},
     config("pipe_parallel_size: 2", {"--spawn", "3"})},
    {"layout for more ranks",
     64,
     {"needs a multiple of 2 ranks", "start it with --spawn 2"},
     config("pipe_parallel_size: 2")},
    {"heads that tensor parallelism does not divide",
     64,
     {"DIR/b.yml:1", "does not divide"},
     config("model_parallel_size: 3", {"--spawn", "3"})},
    {"not YAML", 64, {"DIR/b.yml:"}, config("seed: [1\nx")},
    {"missing configuration file",
     64,
     {"DIR/none.yml"},
     [](Scene& s) {
       return What{{}, {s.dir() / "none.yml"}};
     }},
    {"unknown option", 64, {"--sett", "did you mean --set?"}, arguments({"--sett", "seed=1"})},
    {"unknown key of --set",
     64,
     {"--set", "train_iter", "train_iters"},
     arguments({"--set", "train_iter=3"})},
    {"no ranks", 64, {"--spawn 0"}, arguments({"--spawn", "0"})},
    {"ranks that are no number", 64, {"--spawn", "two"}, arguments({"--spawn", "two"})},
};
INSTANTIATE_TEST_SUITE_P(Config, Trained, ::testing::ValuesIn(kConfig), name_of);

class Generated : public ::testing::TestWithParam<Case> {};

TEST_P(Generated, EndsWithAMessage) {
  Scene scene;
  Strings all = {program("neox-generate")};
  for (const std::string& argument : GetParam().arrange(scene).more) all.push_back(argument);
  expect_message(GetParam(), Child(all).end(), "neox-generate", scene.dir().path());
}

std::function<What(Scene&)> with_checkpoint(Strings more) {
  return [=](Scene& s) {
    What what{{}, {s.save()}};
    what.more.insert(what.more.end(), more.begin(), more.end());
    return what;
  };
}

const Case kGenerate[] = {
    {"no checkpoint given", 64, {"which checkpoint?"}, arguments({"--prompt", "x"})},
    {"no checkpoint there",
     74,
     {"DIR/nothing", "no checkpoint there"},
     [](Scene& s) {
       return What{{}, {s.dir() / "nothing", "--prompt", "x"}};
     }},
    {"empty prompt", 64, {"the prompt is empty"}, with_checkpoint({"--prompt", ""})},
    {"long prompt",
     64,
     {"prompt has 6", "48 positions", "shorten"},
     with_checkpoint({"--prompt", std::string(60, '7')})},
    {"missing file of prompts", 74, {"no-prompts"}, with_checkpoint({"--file", "/no-prompts"})},
    {"no samples",
     64,
     {"--num-samples 0"},
     with_checkpoint({"--prompt", "x", "--num-samples", "0"})},
    {"negative temperature",
     64,
     {"--temperature -1"},
     with_checkpoint({"--prompt", "x", "--temperature=-1"})},
    {"unknown option of generate",
     64,
     {"--temprature", "--temperature"},
     with_checkpoint({"--temprature", "1"})},
    {"larger tokenizer for generate",
     64,
     {"DIR/larger.json", "309 entries", "300"},
     [](Scene& s) {
       return What{{}, {s.save(), "--prompt", "x", "--vocab-file", larger_tokenizer(s)}};
     }},
    {"moved tokenizer",
     74,
     {"DIR/t.json", "DIR/save/global_step20", "--vocab-file"},
     [](Scene& s) {
       s.forget_checkpoints();
       std::string tokenizer = s.dir() / "t.json";
       fs::copy(Material::get() / "tokenizer.json", tokenizer);
       EXPECT_EQ(s.train({"vocab_file=" + tokenizer}).code, 0);
       fs::remove(tokenizer);
       return What{{}, {s.save(), "--prompt", "x"}};
     }},
    {"damaged checkpoint for generate",
     74,
     {"DIR/save/global_step20/rank_00000.h5 is damaged"},
     [](Scene& s) {
       for (int64_t at = 0; at < 900000; at += 100000)
         flip(s.of_step(20, "rank_00000.h5"), at + 20000);
       return What{{}, {s.save(), "--prompt", "x"}};
     }},
};
INSTANTIATE_TEST_SUITE_P(All, Generated, ::testing::ValuesIn(kGenerate), name_of);

TEST(SmallDisk, KeepsTheCheckpointThatFitted) {
  Training run;
  fs::create_directories(run.save());
  bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                 ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                 ::mount("none", run.save().c_str(), "tmpfs", 0, "size=1500k") == 0;
  if (!mounted) GTEST_SKIP() << "may not mount a tmpfs";
  Ended ended = run.train();
  EXPECT_EQ(ended.code, 74);
  std::string message = message_of(ended, "neox-train");
  std::cout << message;
  EXPECT_NE(message.find("(ENOSPC)"), message.npos) << message;
  EXPECT_EQ(run.saved(), std::vector<int64_t>{10});
  EXPECT_FALSE(run.tensors(10).empty());
  ::umount2(run.save().c_str(), MNT_DETACH);
}

TEST(SaveDirectory, IsTriedBeforeTheFirstStep) {
  Training run;
  Ended ended =
      run.train({}, {}, {.environment = Training::fault(run.save(), EACCES, "NEOX_FAULT_CALLS=1")});
  EXPECT_EQ(ended.code, 74);
  EXPECT_EQ(ended.err.find("step 1/"), ended.err.npos) << ended.err;
}

TEST(DamagedCheckpoints, ThatAreNotNamedArePassedOver) {
  Scene scene;
  cut(scene.of_step(20, "rank_00000.h5"), 1000);
  Ended ended = scene.train();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("it is passed over"), ended.err.npos) << ended.err;
  EXPECT_NE(ended.err.find("resuming from " + scene.step_dir(10)), ended.err.npos) << ended.err;
  EXPECT_EQ(scene.saved(), (std::vector<int64_t>{10, 20}));
}

}  // namespace
}  // namespace neox::testing
