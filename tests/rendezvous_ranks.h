// Processes of a job that meet, for the tests of meeting.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "child.h"
#include "rendezvous_rank.h"

namespace neox::testing {

// Ports of this process's own; each test takes the next eight.
inline int next_ports() {
  static int next = 10000 + ::getpid() % 80 * 256;  // below those that connections are given
  return next += 8;
}

// The ranks of a job; options for all of them, and for single ones.
class Ranks {
 public:
  explicit Ranks(int size, std::vector<std::string> options = {})
      : size_(size), options_(std::move(options)) {
    options_.insert(options_.begin(), "size=" + std::to_string(size));
  }
  Ranks& at(int port) { return options_.push_back("port=" + std::to_string(port)), *this; }
  Child& start(int rank, std::vector<std::string> more = {}) {
    std::map<std::string, std::string> options{{"rank", std::to_string(rank)}};
    for (const auto& list : {options_, more})
      for (const std::string& entry : list)
        options[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    return children_.emplace_back([options] { return be_rank(options); });
  }
  Ranks& start_all() {
    for (int rank = 0; rank < size_; ++rank) start(rank);
    return *this;
  }
  Ranks& wait_joined() {
    for (Child& child : children_) EXPECT_TRUE(child.wait_for("joined")) << child.end().err;
    return *this;
  }
  Child& operator[](size_t i) { return children_[i]; }
  // Of all but one, in the order of their start.
  std::vector<Ended> end(int but = -1) {
    std::vector<Ended> ended;
    for (int i = 0; i < static_cast<int>(children_.size()); ++i)
      if (i != but) ended.push_back(children_[static_cast<size_t>(i)].end());
    return ended;
  }

 private:
  int size_;
  std::vector<std::string> options_;
  std::deque<Child> children_;
};

inline void expect_all(const std::vector<Ended>& ended, int code, const std::string& text = "") {
  for (const Ended& end : ended) {
    EXPECT_EQ(end.code, code) << end.err;
    EXPECT_NE(end.err.find(text), std::string::npos) << "'" << text << "' is not in\n" << end.err;
    EXPECT_EQ(end.err.find("[W"), std::string::npos) << end.err;  // a log line of c10d's
  }
}

}  // namespace neox::testing
