// The language of the tests of bad input: a scene that is broken, a program that is run in it, and
// what its one message must say. The messages are printed, for people to read.
#pragma once
#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <iostream>

#include "run_fixture.h"

namespace neox::testing {

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

inline void cut(const std::string& path, int64_t bytes) {
  fs::resize_file(path, fs::file_size(path) - static_cast<uintmax_t>(bytes));
}

inline void overwrite(const std::string& path, int64_t at, std::string_view bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at) << bytes;
}

inline void flip(const std::string& path, int64_t at) {
  std::string content = read_file(path);
  overwrite(path, at, std::string(1, static_cast<char>(~content[static_cast<size_t>(at)])));
}

// A tokenizer with more entries than the model has room for.
inline std::string larger_tokenizer(const Scene& scene) {
  auto json = nlohmann::ordered_json::parse(read_file(Material::get() / "tokenizer.json"));
  auto& vocab = json["model"]["vocab"];
  for (int i = 0; i < 9; ++i) vocab[concat("more", i)] = vocab.size();
  return scene.dir().put("larger.json", json.dump());
}

// The same without <|endoftext|>.
inline std::string tokenizer_without_end(const Scene& scene) {
  std::string json = read_file(Material::get() / "tokenizer.json");
  for (size_t at; (at = json.find("<|endoftext|>")) != json.npos;)
    json.replace(at, 13, "<|start|>");
  return scene.dir().put("endless.json", json);
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

inline void PrintTo(const Case& bad, std::ostream* out) { *out << bad.name; }

inline std::string show(std::string text, const std::string& dir) {
  for (size_t at; (at = text.find(dir)) != text.npos;) text.replace(at, dir.size(), "DIR");
  return text;
}

// The one message of a program: what it said after its name, without log lines.
inline std::string message_of(const Ended& ended, const std::string& program) {
  std::string all = "\n" + ended.err, begin = "\n" + program + ": ";
  size_t at = all.find(begin);
  EXPECT_NE(at, all.npos) << ended.err;
  EXPECT_EQ(all.find(begin, at + 1), all.npos) << "more than one message: " << ended.err;
  return at == all.npos ? "" : all.substr(at + begin.size());
}

inline void expect_message(const Case& bad, const Ended& ended, const std::string& program,
                           const std::string& dir) {
  EXPECT_EQ(ended.code, bad.code) << ended.err;
  std::string message = show(message_of(ended, program), dir);
  std::cout << bad.name << " (" << ended.code << "): " << message;
  for (const std::string& part : bad.says)
    EXPECT_NE(message.find(part), message.npos) << "'" << part << "' is not in: " << message;
  EXPECT_LT(message.size(), 900u);
}

// neox-train ends with the message, and the checkpoints that were there stay.
inline void expect_refused(const Case& bad) {
  Scene scene;
  What what = bad.arrange(scene);
  auto before = scene.saved();
  Ended ended = scene.train(what.settings, what.more, {.environment = what.environment});
  expect_message(bad, ended, "neox-train", scene.dir().path());
  auto after = scene.saved();
  for (int64_t step : before)
    EXPECT_TRUE(std::ranges::count(after, step) > 0) << "step " << step << " is lost";
}

inline std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name;
  for (char c : std::string(info.param.name))
    name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

inline std::function<What(Scene&)> arguments(const Strings& more) {
  return [=](Scene&) { return What{{}, more}; };
}

}  // namespace neox::testing
