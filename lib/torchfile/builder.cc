#include "torchfile/builder.h"

#include <algorithm>
#include <unordered_map>

#include "torchfile/bytes.h"

namespace neox::torchfile {
namespace {

using Meanings = std::unordered_map<std::string_view, Meaning>;

const Meanings& meanings() {
  static const Meanings all = [] {
    Meanings map;
    for (auto table : {tensor_meanings(), python_meanings(), numpy_meanings()})
      for (const NamedMeaning& named : table) map.emplace(named.name, named.meaning);
    return map;
  }();
  return all;
}

Node* make_dict(Builder& builder, std::string_view type, std::vector<Entry> entries) {
  builder.charge(entries.size());
  Node* dict = builder.make(Kind::kDict, std::move(entries));
  builder.parts_of(*dict).type = type;
  return dict;
}

// A dict made of a dict, or of pairs; nothing for anything else.
Node* dict_of(Builder& builder, std::string_view type, std::span<const Value> arguments) {
  if (arguments.empty()) return make_dict(builder, type, {});
  Value from = arguments[0];
  if (arguments.size() > 1 ||
      !(from.is(Kind::kDict) || from.is(Kind::kList) || from.is(Kind::kTuple)))
    return nullptr;
  std::vector<Entry> entries(from.entries().begin(), from.entries().end());
  for (Value pair : from.items()) {
    if (pair.items().size() != 2) return nullptr;
    entries.push_back({pair.items()[0], pair.items()[1]});
  }
  return make_dict(builder, type, std::move(entries));
}

// defaultdict(factory[, dict]): the factory is kept as the argument.
Node* default_dict(Builder& builder, std::span<const Value> arguments) {
  if (arguments.empty()) return dict_of(builder, "collections.defaultdict", {});
  Node* dict = dict_of(builder, "collections.defaultdict", arguments.subspan(1));
  if (dict) builder.parts_of(*dict).arguments = arguments[0];
  return dict;
}

Node* set_of(Builder& builder, std::span<const Value> arguments) {
  if (arguments.size() > 1 || (arguments.size() == 1 && !arguments[0].is(Kind::kList) &&
                               !arguments[0].is(Kind::kTuple) && !arguments[0].is(Kind::kSet)))
    return nullptr;
  std::vector<Value> items;
  if (!arguments.empty()) items.assign(arguments[0].items().begin(), arguments[0].items().end());
  builder.charge(items.size());
  return builder.make(Kind::kSet, std::move(items));
}

Node* size_of(Builder& builder, std::span<const Value> arguments) {
  if (arguments.size() != 1 || !(arguments[0].is(Kind::kTuple) || arguments[0].is(Kind::kList)))
    return nullptr;
  std::vector<Value> items(arguments[0].items().begin(), arguments[0].items().end());
  builder.charge(items.size());
  Node* size = builder.make(Kind::kTuple, std::move(items));
  builder.parts_of(*size).type = "torch.Size";
  return size;
}

// Bytes in protocol 2: text whose characters are the bytes' numbers.
Node* encode(Builder& builder, std::span<const Value> arguments) {
  if (arguments.empty()) return builder.make(Kind::kBytes, std::string_view());
  if (arguments.size() == 1 && arguments[0].is(Kind::kBytes))
    return builder.make(Kind::kBytes, arguments[0].text());
  if (arguments.size() != 2 || !arguments[0].is(Kind::kString) || !arguments[1].is(Kind::kString))
    return nullptr;
  std::string_view encoding = arguments[1].text(), text = arguments[0].text();
  if (encoding != "latin1" && encoding != "latin-1") return nullptr;
  builder.charge(text.size());
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned lead = static_cast<unsigned char>(text[i]);
    if (lead >= 0x80) {
      bool two =
          (lead == 0xc2 || lead == 0xc3) && i + 1 < text.size() && (text[i + 1] & 0xc0) == 0x80;
      builder.check_pickle(two, "bytes are written as a text with a character above U+00FF");
      lead = ((lead & 3) << 6) | (static_cast<unsigned char>(text[++i]) & 0x3f);
    }
    bytes.push_back(static_cast<char>(lead));
  }
  return builder.make(Kind::kBytes, builder.keep(std::move(bytes)));
}

Node* complex_of(Builder& builder, std::span<const Value> arguments) {
  auto real = [](Value value) { return value.is(Kind::kFloat) || value.is(Kind::kInt); };
  if (arguments.size() != 2 || !real(arguments[0]) || !real(arguments[1])) return nullptr;
  return builder.make(Kind::kComplex,
                      std::complex<double>(arguments[0].as_float(), arguments[1].as_float()));
}

// copyreg._reconstructor(cls, base, state): an object of cls.
Node* reconstruct(Builder& builder, std::span<const Value> arguments) {
  if (arguments.empty() || !arguments[0].is(Kind::kGlobal)) return nullptr;
  return builder.make_object(arguments[0].text(),
                             Value(builder.make(Kind::kTuple, std::vector<Value>())));
}

const NamedMeaning kPython[] = {
    {"collections.OrderedDict",
     [](Builder& b, std::span<const Value> a) { return dict_of(b, "collections.OrderedDict", a); }},
    {"collections.Counter",
     [](Builder& b, std::span<const Value> a) { return dict_of(b, "collections.Counter", a); }},
    {"collections.defaultdict", default_dict},
    {"builtins.set", set_of},
    {"builtins.frozenset", set_of},
    {"builtins.bytearray", encode},
    {"builtins.bytes", encode},
    {"_codecs.encode", encode},
    {"builtins.complex", complex_of},
    {"torch.Size", size_of},
    {"copyreg._reconstructor", reconstruct},
};

}  // namespace

std::span<const NamedMeaning> python_meanings() { return kPython; }

void Builder::charge(uint64_t amount) {
  check_pickle(amount <= budget_, "the pickle copies its values again and again; ",
               "no program that saves data does that");
  budget_ -= amount;
}

std::string_view Builder::keep(std::string text) {
  charge(text.size());
  return document_.texts.emplace_back(std::move(text));
}

Parts& Builder::parts_of(Node& node) {
  if (!node.parts) node.parts = &document_.parts.emplace_back();
  return *node.parts;
}

Node* Builder::make_object(std::string_view type, Value arguments, Value keywords) {
  Node* object = &document_.nodes.emplace_back(Node{Kind::kObject});
  Parts& parts = parts_of(*object);
  parts.type = type;
  parts.arguments = arguments;
  parts.keywords = keywords;
  return object;
}

Node* Builder::call(Value function, Value arguments, Value keywords) {
  check_pickle(arguments.is(Kind::kTuple), "an object is made of ", kind_name(arguments.kind()),
               ", not of a tuple of arguments");
  if (!function.is(Kind::kGlobal)) return make_object("", arguments, keywords);
  auto meaning = meanings().find(function.text());
  if (meaning != meanings().end())
    if (Node* made = meaning->second(*this, arguments.items())) return made;
  return make_object(function.text(), arguments, keywords);
}

void Builder::build(Node& object, Value state) {
  if (object.kind == Kind::kObject && object.parts->type == kEmptyArray)
    return build_array(*this, object, state);
  parts_of(object).state = state;
}

}  // namespace neox::torchfile
