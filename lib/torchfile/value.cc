#include "torchfile/value.h"

#include "base/error.h"
#include "base/text.h"
#include "torchfile/document.h"

namespace neox::torchfile {
namespace {

constexpr std::string_view kKindNames[] = {
    "None",     "a bool",    "an int",   "a big int", "a float", "a complex number",
    "a string", "bytes",     "a list",   "a tuple",   "a set",   "a dict",
    "a tensor", "a storage", "a global", "an object", "a cycle"};

bool is_key(Value key, std::string_view text) {
  if (key.is(Kind::kString)) return key.text() == text;
  return key.is(Kind::kInt) && number_of<int64_t>(text) == key.as_int();
}

std::optional<Value> entry_of(std::span<const Entry> entries, std::string_view key) {
  for (const Entry& entry : entries)
    if (is_key(entry.key, key)) return entry.value;
  return {};
}

std::string described(Value value) {
  std::string type(value.type());
  return std::string(kind_name(value.kind())) + (type.empty() ? "" : " (" + type + ")");
}

}  // namespace

std::string_view kind_name(Kind kind) { return kKindNames[static_cast<size_t>(kind)]; }

int64_t TensorRef::numel() const {
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  return n;
}

Kind Value::kind() const { return node_ ? node_->kind : Kind::kNone; }

void Value::check_kind(Kind wanted) const {
  check_io(is(wanted), "expected ", kind_name(wanted), ", found ", described(*this));
}

bool Value::as_bool() const {
  check_kind(Kind::kBool);
  return std::get<bool>(node_->data);
}

int64_t Value::as_int() const {
  check_kind(Kind::kInt);
  return std::get<int64_t>(node_->data);
}

double Value::as_float() const {
  if (is(Kind::kInt)) return static_cast<double>(as_int());
  check_kind(Kind::kFloat);
  return std::get<double>(node_->data);
}

std::complex<double> Value::as_complex() const {
  check_kind(Kind::kComplex);
  return std::get<std::complex<double>>(node_->data);
}

std::string_view Value::as_string() const {
  check_kind(Kind::kString);
  return text();
}

std::string_view Value::text() const {
  bool is_text = node_ && std::holds_alternative<std::string_view>(node_->data);
  check_io(is_text, "expected a text, found ", described(*this));
  return std::get<std::string_view>(node_->data);
}

const TensorRef& Value::tensor() const {
  check_kind(Kind::kTensor);
  return *std::get<const TensorRef*>(node_->data);
}

const Storage& Value::storage() const {
  check_kind(Kind::kStorage);
  return *std::get<const Storage*>(node_->data);
}

std::span<const Value> Value::items() const {
  if (!node_) return {};
  if (const auto* items = std::get_if<std::vector<Value>>(&node_->data)) return *items;
  return node_->parts ? std::span<const Value>(node_->parts->items) : std::span<const Value>();
}

std::span<const Entry> Value::entries() const {
  if (!node_) return {};
  if (const auto* entries = std::get_if<std::vector<Entry>>(&node_->data)) return *entries;
  return node_->parts ? std::span<const Entry>(node_->parts->entries) : std::span<const Entry>();
}

std::string_view Value::type() const {
  return node_ && node_->parts ? node_->parts->type : std::string_view();
}
Value Value::arguments() const { return node_ && node_->parts ? node_->parts->arguments : Value(); }
Value Value::keywords() const { return node_ && node_->parts ? node_->parts->keywords : Value(); }
Value Value::state() const { return node_ && node_->parts ? node_->parts->state : Value(); }

std::optional<Value> Value::child(std::string_view key) const {
  if (std::optional<Value> entry = entry_of(entries(), key)) return entry;
  if (is(Kind::kList) || is(Kind::kTuple) || is(Kind::kObject)) {
    std::optional<int64_t> index = number_of<int64_t>(key);
    if (index && *index >= 0 && static_cast<uint64_t>(*index) < items().size())
      return items()[static_cast<size_t>(*index)];
  }
  if (!is(Kind::kObject)) return {};
  if (std::optional<Value> entry = entry_of(state().entries(), key)) return entry;
  // Objects with slots have a pair as their state: attributes, slots.
  if (!state().is(Kind::kTuple)) return {};
  for (Value part : state().items())
    if (std::optional<Value> entry = entry_of(part.entries(), key)) return entry;
  return {};
}

std::optional<Value> Value::find(std::string_view path) const {
  if (path.empty()) return *this;
  for (size_t end = path.size();; end = path.rfind('.', end - 1)) {
    if (end == std::string_view::npos) return {};
    if (std::optional<Value> next = child(path.substr(0, end))) {
      std::string_view rest = end == path.size() ? "" : path.substr(end + 1);
      if (std::optional<Value> found = next->find(rest)) return found;
    }
    if (end == 0) return {};
  }
}

Value Value::at(std::string_view path) const {
  if (std::optional<Value> found = find(path)) return *found;
  std::string_view known = path;
  std::optional<Value> nearest = *this;
  do {
    size_t dot = known.rfind('.');
    known = dot == std::string_view::npos ? "" : known.substr(0, dot);
    nearest = find(known);
  } while (!nearest);
  std::string keys;
  for (const Entry& entry : nearest->entries())
    if (entry.key.is(Kind::kString) && keys.size() < 200)
      keys += (keys.empty() ? "; it has " : ", ") + std::string(entry.key.text());
  fail(Exit::kIo, "there is no ", path, ": ", known.empty() ? "the whole" : known, " is ",
       described(*nearest), keys);
}

}  // namespace neox::torchfile
