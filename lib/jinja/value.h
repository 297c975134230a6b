// The values of Jinja: those of JSON, what is undefined, functions. Their words and comparisons are
// Python's, since templates were written for it. Pure; a namespace alone changes. What is made, or
// gone through, counts in the thread's Budget.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/budget.h"

namespace neox::jinja {

// What a template asks for cannot be done; `line` of it is 0 until a statement says which.
struct Failure : std::runtime_error {
  explicit Failure(const std::string& what, int its_line = 0)
      : std::runtime_error(what), line(its_line) {}
  int line;
};

// The most bytes of a text, and items of a list; lists and maps within each other.
constexpr size_t kLongest = 64 << 20;
constexpr int kDeepest = 600;  // conversations have up to 500
// Each throws Failure for more.
void check_text(size_t bytes);
void check_list(size_t items);

// A text that grows up to there.
class GrowingText {
 public:
  template <class Part>
  void operator+=(const Part& part) {
    size_t before = text_.size();
    text_ += part;
    check_text(text_.size());
    Budget::text(text_.size() - before);
    room_.grow(text_.size() - before);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  Room room_{0};
};

// The texts that part(item) gives, with a separator between them.
template <class Items, class Part>
std::string joined_texts(const Items& items, std::string_view separator, const Part& part) {
  GrowingText all;
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) all += separator;
    all += part(item);
  }
  return all.take();
}

struct Value;
// A list, or a tuple, which is written otherwise and equals no list.
struct List : std::vector<Value> {
  using std::vector<Value>::vector;
  bool is_tuple = false;
};

// Keys are texts, and stay in the order in which they came.
struct Map {
  std::vector<std::pair<std::string, Value>> items;
  enum class Is { kMap, kNamespace, kLoop } is = Is::kMap;
  const Value* find(std::string_view key) const;
  void set(const std::string& key, Value value);
};

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
  // By its place or its name; null where it was not given.
  const Value* find(size_t place, std::string_view name) const;
};
using Function = std::function<Value(const Arguments&)>;

struct Undefined {
  std::string what;  // "'x' is undefined"
};
struct None {};

struct Value {
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<Map>, std::shared_ptr<const Function>>
      data = Undefined{};
  // Of lists and maps within each other, which are taken apart one in the other, too. A namespace,
  // which changes, counts for none: it goes away for itself.
  int depth = 0;

  Value() = default;
  Value(Undefined v) : data(std::move(v)) {}
  Value(None v) : data(v) {}
  Value(bool v) : data(v) {}
  Value(int64_t v) : data(v) {}
  Value(double v) : data(v) {}
  // Each throws Failure for what is too large, or nested too deep.
  Value(std::string v);
  Value(const char* v) : Value(std::string(v)) {}
  Value(List v);
  Value(Map v);
  // of: what it belongs to.
  Value(Function v) : data(std::make_shared<const Function>(std::move(v))) {}
  Value(Function v, const Value& of) : Value(std::move(v)) { depth = of.depth; }

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_number() const { return is<bool>() || is<int64_t>() || is<double>(); }
  bool is_integer() const { return is<bool>() || is<int64_t>(); }
  // Null where it is none.
  const std::string* text() const;
  const List* list() const;  // or tuple
  Map* map() const;
  const Function* function() const;
};

// From JSON, whose objects are maps. Throws Failure for a whole number beyond 64 bits.
Value value_of(const nlohmann::ordered_json& json);

// As bool(), str() and repr() of Python; what is undefined is "".
bool truth(const Value& value);
std::string text_of(const Value& value);
std::string repr_of(const Value& value);
// "str", "int" ... as Python names it.
std::string type_of(const Value& value);

// Each throws Failure where Python would throw.
bool equal(const Value& a, const Value& b);
int compare(const Value& a, const Value& b);  // < 0, 0, > 0
const Value& defined(const Value& value);     // itself
int64_t length_of(const Value& value);
List items_of(const Value& value);  // that a loop over it goes through
bool contains(const Value& in, const Value& what);
int64_t integer_of(const Value& value);
double number_of(const Value& value);
const std::string& words_of(const Value& value);  // of a text

// As transformers' filter: json.dumps(value, ensure_ascii=False, ...).
struct JsonStyle {
  std::optional<std::string> indent = {};  // of each level, in lines of their own
  std::string between = ", ", behind_key = ": ";
  enum class Keys { kAsTheyAre, kSorted } keys = Keys::kAsTheyAre;
};
std::string json_of(const Value& value, const JsonStyle& style = {});

}  // namespace neox::jinja
