#include "torchfile/pickle.h"

#include <bit>

#include "base/error.h"
#include "base/text.h"
#include "torchfile/builder.h"
#include "torchfile/bytes.h"

namespace neox::torchfile {
namespace {

constexpr uint64_t kMaxObjects = 100'000'000;

// Python 2's names, which protocol 2 uses, and NumPy's old ones.
std::string python3_name(std::string_view module, std::string_view name) {
  if (module == "__builtin__") {
    if (name == "long") name = "int";
    if (name == "unicode") name = "str";
    if (name == "xrange") name = "range";
    module = "builtins";
  }
  if (module == "copy_reg") module = "copyreg";
  if (module.starts_with("numpy.core."))
    return concat("numpy._core.", module.substr(11), ".", name);
  return concat(module, ".", name);
}

// Little-endian two's complement of any length as hexadecimal digits.
std::string big_int_text(std::span<const std::byte> bytes) {
  bool negative = (bytes.back() & std::byte{0x80}) != std::byte{0};
  std::string magnitude(text(bytes));
  if (negative) {
    unsigned carry = 1;
    for (char& byte : magnitude) {
      carry += static_cast<unsigned char>(~byte);
      byte = static_cast<char>(carry);
      carry >>= 8;
    }
  }
  std::string digits = hexadecimal(std::string(magnitude.rbegin(), magnitude.rend()));
  size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  return (negative ? "-0x" : "0x") + digits.substr(first);
}

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& file, const Records& records,
          Document& document)
      : bytes_(bytes), file_(file), builder_(document, file_, records, 4 * bytes.size() + 65536) {}

  Node* run();

  std::span<const std::byte> take(uint64_t n) {
    check_pickle(n <= bytes_.size() - at_, "ends before ", n, " bytes of it");
    at_ += n;
    return bytes_.subspan(at_ - n, n);
  }
  template <class T>
  T number() {
    return little<T>(take(sizeof(T)));
  }
  std::string_view line() {
    std::string_view rest = text(bytes_.subspan(at_));
    size_t end = rest.find('\n');
    check_pickle(end != std::string_view::npos, "ends within a line");
    at_ += end + 1;
    return rest.substr(0, end);
  }
  uint64_t number_line() {
    auto number = number_of<uint64_t>(line());
    check_pickle(number.has_value(), "has no number");
    return *number;
  }

  void push(Node* node) { stack_.push_back(node); }
  template <class Data>
  void push(Kind kind, Data data) {
    push(builder_.make(kind, std::move(data)));
  }
  void push_text(Kind kind, uint64_t n) { push(kind, text(take(n))); }
  void push_int(std::span<const std::byte> bytes);
  // What stands above the last mark is popped one by one, never the mark itself.
  Node* pop() {
    check_pickle(stack_.size() > floor(), "takes a value from an empty stack");
    Node* top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Node* top() {
    check_pickle(stack_.size() > floor(), "looks at an empty stack");
    return stack_.back();
  }
  void mark() { marks_.push_back(stack_.size()); }
  std::vector<Value> pop_mark() {
    check_pickle(!marks_.empty(), "has no mark");
    std::vector<Value> values(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                              stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }
  std::vector<Value> pop(size_t n) {
    std::vector<Value> values(n);
    while (n-- > 0) values[n] = Value(pop());
    return values;
  }

  void put(uint64_t index) {
    check_pickle(index <= bytes_.size(), "has the memo number ", index, ", beyond its size");
    if (index >= memo_.size()) memo_.resize(index + 1);
    memo_[index] = top();
    next_memo_ = std::max(next_memo_, index + 1);
  }
  void memoize() { put(next_memo_); }
  void get(uint64_t index) {
    check_pickle(index < memo_.size() && memo_[index], "asks for memo number ", index,
                 ", which it never put");
    push(memo_[index]);
  }

  void append(const std::vector<Value>& values) { add_to(top(), values); }
  void set_items(const std::vector<Value>& values);
  void global(std::string_view module, std::string_view name) {
    push(Kind::kGlobal, builder_.keep(python3_name(module, name)));
  }
  void stack_global() {
    Value name(pop()), module(pop());
    check_pickle(module.is(Kind::kString) && name.is(Kind::kString), "names a class by ",
                 kind_name(module.kind()), " and ", kind_name(name.kind()));
    global(module.text(), name.text());
  }
  void reduce() {
    Value arguments(pop()), function(pop());
    push(builder_.call(function, arguments));
  }
  void new_object(bool with_keywords) {
    Value keywords = with_keywords ? Value(pop()) : Value();
    Value arguments(pop()), cls(pop());
    push(builder_.call(cls, arguments, keywords));
  }
  void build() {
    Value state(pop());
    builder_.build(*top(), state);
  }
  void persistent() {
    Value id(pop());
    push(builder_.persistent(id));
  }
  void protocol() {
    int version = number<uint8_t>();
    check_pickle(version >= 2 && version <= 5, "is of protocol ", version,
                 "; protocols 2 to 5 are read: save it again with PyTorch");
  }
  void frame() {
    uint64_t n = number<uint64_t>();
    check_pickle(n <= bytes_.size() - at_, "ends before a frame of ", n, " bytes");
  }
  void stop() { done_ = true; }
  Builder& builder() { return builder_; }

  template <class... Parts>
  void check_pickle(bool ok, const Parts&... parts) const {
    check_io(ok, file_, ": the pickle ", parts..., " (byte ", at_, " of ", bytes_.size(), ")");
  }

 private:
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void add_to(Node* target, const std::vector<Value>& values);

  std::span<const std::byte> bytes_;
  const std::string file_;
  Builder builder_;
  uint64_t at_ = 0, next_memo_ = 0;
  bool done_ = false;
  std::vector<Node*> stack_;
  std::vector<size_t> marks_;
  std::vector<Node*> memo_;
};

void Machine::push_int(std::span<const std::byte> bytes) {
  if (bytes.empty()) return push(Kind::kInt, int64_t{0});
  if (bytes.size() > 8) return push(Kind::kBigInt, builder_.keep(big_int_text(bytes)));
  bool negative = (bytes.back() & std::byte{0x80}) != std::byte{0};
  int64_t value = negative ? -1 : 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  push(Kind::kInt, value);
}

void Machine::add_to(Node* target, const std::vector<Value>& values) {
  bool grows = target->kind == Kind::kList || target->kind == Kind::kSet;
  check_pickle(grows || target->kind == Kind::kObject, "appends to ", kind_name(target->kind));
  std::vector<Value>& items =
      grows ? std::get<std::vector<Value>>(target->data) : builder_.parts_of(*target).items;
  items.insert(items.end(), values.begin(), values.end());
}

void Machine::set_items(const std::vector<Value>& values) {
  Node* target = top();
  bool dict = target->kind == Kind::kDict;
  check_pickle(dict || target->kind == Kind::kObject, "sets keys in ", kind_name(target->kind));
  check_pickle(values.size() % 2 == 0, "sets a key without a value");
  std::vector<Entry>& entries =
      dict ? std::get<std::vector<Entry>>(target->data) : builder_.parts_of(*target).entries;
  for (size_t i = 0; i < values.size(); i += 2) entries.push_back({values[i], values[i + 1]});
}

using Operation = void (*)(Machine&);
struct NamedOperation {
  unsigned char code;
  Operation run;
};

constexpr auto kNone = [](Machine& m) { m.push(m.builder().make_none()); };
const NamedOperation kOperations[] = {
    {0x80, [](Machine& m) { m.protocol(); }},
    {0x95, [](Machine& m) { m.frame(); }},
    {'.', [](Machine& m) { m.stop(); }},
    {'(', [](Machine& m) { m.mark(); }},
    {'0', [](Machine& m) { m.pop(); }},
    {'1', [](Machine& m) { m.pop_mark(); }},
    {'2', [](Machine& m) { m.push(m.top()); }},
    {'N', kNone},
    {0x88, [](Machine& m) { m.push(Kind::kBool, true); }},
    {0x89, [](Machine& m) { m.push(Kind::kBool, false); }},
    {'J', [](Machine& m) { m.push(Kind::kInt, int64_t{m.number<int32_t>()}); }},
    {'K', [](Machine& m) { m.push(Kind::kInt, int64_t{m.number<uint8_t>()}); }},
    {'M', [](Machine& m) { m.push(Kind::kInt, int64_t{m.number<uint16_t>()}); }},
    {0x8a, [](Machine& m) { m.push_int(m.take(m.number<uint8_t>())); }},
    {0x8b, [](Machine& m) { m.push_int(m.take(m.number<uint32_t>())); }},
    {'G',
     [](Machine& m) {
       uint64_t bits = __builtin_bswap64(m.number<uint64_t>());
       m.push(Kind::kFloat, std::bit_cast<double>(bits));
     }},
    {'X', [](Machine& m) { m.push_text(Kind::kString, m.number<uint32_t>()); }},
    {0x8c, [](Machine& m) { m.push_text(Kind::kString, m.number<uint8_t>()); }},
    {0x8d, [](Machine& m) { m.push_text(Kind::kString, m.number<uint64_t>()); }},
    {'T', [](Machine& m) { m.push_text(Kind::kString, m.number<uint32_t>()); }},
    {'U', [](Machine& m) { m.push_text(Kind::kString, m.number<uint8_t>()); }},
    {'B', [](Machine& m) { m.push_text(Kind::kBytes, m.number<uint32_t>()); }},
    {'C', [](Machine& m) { m.push_text(Kind::kBytes, m.number<uint8_t>()); }},
    {0x8e, [](Machine& m) { m.push_text(Kind::kBytes, m.number<uint64_t>()); }},
    {0x96, [](Machine& m) { m.push_text(Kind::kBytes, m.number<uint64_t>()); }},
    {']', [](Machine& m) { m.push(Kind::kList, std::vector<Value>()); }},
    {'}', [](Machine& m) { m.push(Kind::kDict, std::vector<Entry>()); }},
    {0x8f, [](Machine& m) { m.push(Kind::kSet, std::vector<Value>()); }},
    {')', [](Machine& m) { m.push(Kind::kTuple, std::vector<Value>()); }},
    {'t', [](Machine& m) { m.push(Kind::kTuple, m.pop_mark()); }},
    {'l', [](Machine& m) { m.push(Kind::kList, m.pop_mark()); }},
    {0x91, [](Machine& m) { m.push(Kind::kSet, m.pop_mark()); }},
    {0x85, [](Machine& m) { m.push(Kind::kTuple, m.pop(1)); }},
    {0x86, [](Machine& m) { m.push(Kind::kTuple, m.pop(2)); }},
    {0x87, [](Machine& m) { m.push(Kind::kTuple, m.pop(3)); }},
    {'a', [](Machine& m) { m.append(m.pop(1)); }},
    {'e', [](Machine& m) { m.append(m.pop_mark()); }},
    {0x90, [](Machine& m) { m.append(m.pop_mark()); }},
    {'s', [](Machine& m) { m.set_items(m.pop(2)); }},
    {'u', [](Machine& m) { m.set_items(m.pop_mark()); }},
    {'p', [](Machine& m) { m.put(m.number_line()); }},
    {'q', [](Machine& m) { m.put(m.number<uint8_t>()); }},
    {'r', [](Machine& m) { m.put(m.number<uint32_t>()); }},
    {0x94, [](Machine& m) { m.memoize(); }},
    {'g', [](Machine& m) { m.get(m.number_line()); }},
    {'h', [](Machine& m) { m.get(m.number<uint8_t>()); }},
    {'j', [](Machine& m) { m.get(m.number<uint32_t>()); }},
    {'c',
     [](Machine& m) {
       std::string_view module = m.line();
       m.global(module, m.line());
     }},
    {0x93, [](Machine& m) { m.stack_global(); }},
    {'R', [](Machine& m) { m.reduce(); }},
    {0x81, [](Machine& m) { m.new_object(false); }},
    {0x92, [](Machine& m) { m.new_object(true); }},
    {'b', [](Machine& m) { m.build(); }},
    {'Q', [](Machine& m) { m.persistent(); }},
};

Node* Machine::run() {
  Operation table[256] = {};
  for (const NamedOperation& operation : kOperations) table[operation.code] = operation.run;
  check_pickle(bytes_.size() >= 2 && bytes_[0] == std::byte{0x80},
               "does not begin with a protocol of 2 to 5");
  while (!done_) {
    check_pickle(at_ < bytes_.size(), "ends without a STOP");
    int code = number<uint8_t>();
    check_pickle(table[code], "has the operation 0x", hexadecimal(std::string(1, char(code))),
                 ", which is not read");
    table[code](*this);
    check_pickle(builder_.document().nodes.size() <= kMaxObjects, "makes more than ", kMaxObjects,
                 " objects");
  }
  Node* root = pop();
  check_pickle(stack_.empty() && marks_.empty(), "leaves values on its stack");
  return root;
}

}  // namespace

Value read_pickle(std::span<const std::byte> bytes, const std::string& file, const Records& records,
                  Document& document) {
  Node* root = Machine(bytes, file, records, document).run();
  settle(document, root, file);
  return Value(root);
}

}  // namespace neox::torchfile
