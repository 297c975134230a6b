// Data, tokenizers, save and load directories that cannot be used: neox-train ends with exit code
// 64 or 74 and one message that names the thing and the cure; checkpoints that were there stay.
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>

#include "bad_input.h"

namespace neox::testing {
namespace {

class BadFiles : public ::testing::TestWithParam<Case> {};

TEST_P(BadFiles, EndsWithAMessage) { expect_refused(GetParam()); }

// A run that was done goes on, with the schedule of the longer one.
const Strings kLonger = {"train_iters=30", "override_lr_scheduler=true"};

const Case kData[] = {
    {"no answer about the data",
     74,
     {"cannot look at ", "File name too long"},
     [](Scene&) { return What{{"data_path=/" + std::string(300, 'x')}}; }},
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
     {"--set: data_path: no dataset DIR/nothing", "neox-prepare-data makes one"},
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
     {"training data", "DIR/save/global_step20", "data_order, seed, split, seq_length"},
     [](Scene& s) {
       s.dir().put("other", counting({40, 60}));
       return What{{"data_path=" + (s.dir() / "other"), "split=1"}};
     }},
    {"other seed than the checkpoint's",
     64,
     {"training data", "seed", "Changed since then: ", "(before: 1234)"},
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
INSTANTIATE_TEST_SUITE_P(Data, BadFiles, ::testing::ValuesIn(kData), name_of);

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
    {"log_dir is a file",
     74,
     {"log_dir: ", "DIR/f: a file is in the way there"},
     [](Scene& s) { return What{{"log_dir=" + s.dir().put("f", "")}}; }},
    {"save that may not be written",
     74,
     {"where checkpoints cannot be written", "DIR/save", "(EACCES): check its permissions"},
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
       return What{kLonger, {}, Training::fault(s.save(), ENOSPC, "NEOX_FAULT_BYTES=300000")};
     }},
    {"used-up quota",
     74,
     {"DIR/save/global_step30", "(EDQUOT)", "your quota there is used up"},
     [](Scene& s) {
       return What{kLonger, {}, Training::fault(s.save(), EDQUOT, "NEOX_FAULT_BYTES=300000")};
     }},
    {"full disk of the metrics",
     74,
     {"DIR/log/metrics.jsonl", "(ENOSPC)"},
     [](Scene& s) {
       return What{kLonger, {}, Training::fault(s.dir() / "log", ENOSPC, "NEOX_FAULT_BYTES=900")};
     }},
    {"save of another run",
     64,
     {"save names DIR/save", "global_step20", "set load: DIR/save"},
     [](Scene&) { return What{{"load="}}; }},
};
INSTANTIATE_TEST_SUITE_P(Save, BadFiles, ::testing::ValuesIn(kSave), name_of);

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
       return What{kLonger};
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
     {"no checkpoint in DIR/save can be used", "put a whole copy there"},
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
INSTANTIATE_TEST_SUITE_P(Load, BadFiles, ::testing::ValuesIn(kLoad), name_of);

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

TEST(WorkingDirectory, IsSaidToBeGone) {
  Directory dir;
  std::string gone = dir / "gone";
  fs::create_directory(gone);
  Child child({"/bin/sh", "-c",
               concat("cd ", gone, " && rmdir ", gone, " && exec ", program("neox-train"),
                      " --dry-run ", NEOX_SOURCE_DIR, "/configs/pythia/14M.yml")});
  Ended ended = child.end();
  EXPECT_EQ(ended.code, 74) << ended.err;
  EXPECT_TRUE(has(ended.err, "the working directory is not there any more")) << ended.err;
}

// As the OpenMP runtime itself tells; what the user says holds.
TEST(OpenMp, ThreadsSoonSleep) {
  auto told = [](std::vector<std::string> environment) {
    environment.push_back("OMP_DISPLAY_ENV=verbose");
    Child child({program("neox-train"), "--dry-run", NEOX_SOURCE_DIR "/configs/pythia/14M.yml"},
                {.environment = environment});
    return child.end().err;
  };
  EXPECT_TRUE(has(told({}), "GOMP_SPINCOUNT = '3000'"));
  EXPECT_TRUE(has(told({"GOMP_SPINCOUNT=7"}), "GOMP_SPINCOUNT = '7'"));
  EXPECT_TRUE(has(told({"OMP_WAIT_POLICY=passive"}), "GOMP_SPINCOUNT = '0'"));
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
