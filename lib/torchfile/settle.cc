#include <algorithm>
#include <unordered_map>
#include <variant>

#include "base/error.h"
#include "torchfile/document.h"

namespace neox::torchfile {
namespace {

constexpr int64_t kMaxDepth = 500, kMaxValues = 20'000'000;

// Walks the graph without calling itself, which a deep one would not survive.
class Settler {
 public:
  Settler(Document& document, const std::string& file) : document_(document), file_(file) {}

  void settle(Node* root) {
    enter(root);
    while (!path_.empty()) {
      Frame& frame = path_.back();
      if (frame.next == frame.children.size()) {
        leave();
        continue;
      }
      const Node** child = frame.children[frame.next++];
      if (!*child) continue;
      auto seen = seen_.find(*child);
      if (seen == seen_.end())
        enter(*child);
      else if (seen->second.open)
        *child = cycle();
      else
        add(frame, seen->second);
    }
  }

 private:
  struct Seen {
    bool open = true;  // on the path
    int64_t depth = 1, values = 1;
  };
  struct Frame {
    const Node* node;
    std::vector<const Node**> children;
    size_t next = 0;
    Seen sum;
  };

  void enter(const Node* node) {
    check_depth(static_cast<int64_t>(path_.size()) + 1);
    seen_[node] = {};
    check_keys(*node);
    path_.push_back({node, children_of(const_cast<Node&>(*node))});
  }

  void leave() {
    Frame frame = std::move(path_.back());
    path_.pop_back();
    frame.sum.open = false;
    check_depth(frame.sum.depth);
    check_io(frame.sum.values <= kMaxValues, file_, ": its values unfold to more than ",
             kMaxValues);
    seen_[frame.node] = frame.sum;
    if (!path_.empty()) add(path_.back(), frame.sum);
  }

  void check_depth(int64_t depth) const {
    check_io(depth <= kMaxDepth, file_, ": values are nested deeper than ", kMaxDepth);
  }

  static void add(Frame& frame, const Seen& child) {
    frame.sum.depth = std::max(frame.sum.depth, child.depth + 1);
    frame.sum.values = std::min(kMaxValues + 1, frame.sum.values + child.values);
  }

  static std::vector<const Node**> children_of(Node& node) {
    std::vector<const Node**> children;
    auto add = [&](Value& value) { children.push_back(&Handle::of(value)); };
    auto add_entries = [&](std::vector<Entry>& entries) {
      for (Entry& entry : entries) add(entry.key), add(entry.value);
    };
    if (auto* items = std::get_if<std::vector<Value>>(&node.data))
      std::for_each(items->begin(), items->end(), add);
    if (auto* entries = std::get_if<std::vector<Entry>>(&node.data)) add_entries(*entries);
    if (!node.parts) return children;
    add(node.parts->arguments), add(node.parts->keywords), add(node.parts->state);
    std::for_each(node.parts->items.begin(), node.parts->items.end(), add);
    add_entries(node.parts->entries);
    return children;
  }

  const Node* cycle() {
    if (!cycle_) cycle_ = &document_.nodes.emplace_back(Node{Kind::kCycle});
    return cycle_;
  }

  void check_keys(const Node& node) const {
    Value value(&node);
    std::vector<std::string_view> texts;
    std::vector<int64_t> numbers;
    for (const Entry& entry : value.entries()) {
      if (entry.key.is(Kind::kString)) texts.push_back(entry.key.text());
      if (entry.key.is(Kind::kInt)) numbers.push_back(entry.key.as_int());
    }
    auto check_once = [&](auto& keys) {
      std::sort(keys.begin(), keys.end());
      auto twice = std::adjacent_find(keys.begin(), keys.end());
      if (twice != keys.end()) fail(Exit::kIo, file_, ": a dict has the key ", *twice, " twice");
    };
    check_once(texts);
    check_once(numbers);
  }

  Document& document_;
  const std::string& file_;
  std::unordered_map<const Node*, Seen> seen_;
  std::vector<Frame> path_;
  const Node* cycle_ = nullptr;
};

}  // namespace

void settle(Document& document, Node* root, const std::string& file) {
  Settler(document, file).settle(root);
}

}  // namespace neox::torchfile
