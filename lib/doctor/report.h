// What neox-doctor found on the ranks of a job, their comparison, and how it is shown.
#pragma once
#include <chrono>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

enum class Verdict { kFine, kNote, kWrong };

struct Finding {
  Verdict verdict = Verdict::kFine;
  std::string check;  // "memlock"
  std::string text;   // what was found, and where it is not fine what to do
};

// More is better. A node is to blame for what it computes; a shared file system is not.
enum class Blame { kNode, kNobody };

struct Rate {
  std::string name, unit;  // "matmul", "TFLOP/s"
  double value = 0;
  Blame blame = Blame::kNode;
};

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct RankReport {
  int rank = 0, local_rank = 0;
  std::string host;
  std::vector<Finding> findings;
  std::map<std::string, std::string> facts;  // to be the same on all nodes: {"driver", "580.95"}
  std::vector<Rate> rates;
  double clock_offset = 0, clock_error = 0;  // seconds, against rank 0
};

// "node1: no driver" of node1 is "no driver". Nodes are named where findings are shown, and only
// those with equal texts are known to hold for all nodes, of which none is excluded then.
std::string without_host(std::string_view text, std::string_view host);

// For Control::gather().
std::string pack(const RankReport& report);
RankReport unpack(const std::string& text);

struct NodeRow {
  std::string host;
  int ranks = 0;
  std::map<std::string, std::string> facts;
  std::vector<Rate> rates;  // the slowest rank's
  double clock_offset = 0;
};

struct Diagnosis {
  std::vector<NodeRow> nodes;  // in the order of their first ranks
  struct Shared {
    Finding finding;
    std::vector<std::string> hosts;
  };
  std::vector<Shared> findings;      // equal ones once
  std::vector<std::string> exclude;  // nodes to do without: slow, unlike the others, or broken
  bool fine() const;
};

// A node is slow whose rate is below this part of the median of the nodes.
inline constexpr double kSlow = 0.8;

Diagnosis diagnose(std::span<const RankReport> reports);

std::string show(const Diagnosis& diagnosis);
std::string show_json(const Diagnosis& diagnosis);

}  // namespace neox
