#include "torchfile_dump.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <map>

#include "base/text.h"
#include "torchfile/bytes.h"
#include "torchfile/tensor.h"

namespace neox::torchfile {
namespace {

using Json = nlohmann::json;

class Dump {
 public:
  Json of(Value value) {
    switch (value.kind()) {
      case Kind::kNone:
        return nullptr;
      case Kind::kBool:
        return value.as_bool();
      case Kind::kInt:
        return value.as_int();
      case Kind::kBigInt:
        return {{"big", value.text()}};
      case Kind::kFloat:
        return {{"float", bits(value.as_float())}};
      case Kind::kComplex:
        return {{"complex", {bits(value.as_complex().real()), bits(value.as_complex().imag())}}};
      case Kind::kString:
        return value.text();
      case Kind::kBytes:
        return {{"bytes", hexadecimal(value.text())}};
      case Kind::kList:
        return list(value.items());
      case Kind::kTuple:
        return tuple(value);
      case Kind::kSet:
        return set(value);
      case Kind::kDict:
        return dict(value);
      case Kind::kTensor:
        return {{"tensor", tensor(value.tensor())}};
      case Kind::kStorage:
        return {{"storage", storage(value.storage())}};
      case Kind::kGlobal:
        return {{"global", value.text()}};
      case Kind::kObject:
        return object(value);
      case Kind::kCycle:
        return {{"cycle", true}};
    }
    return nullptr;
  }

 private:
  static std::string bits(double number) {
    char text[17];
    std::snprintf(text, sizeof text, "%016lx", std::bit_cast<uint64_t>(number));
    return text;
  }
  Json list(std::span<const Value> items) {
    Json json = Json::array();
    for (Value item : items) json.push_back(of(item));
    return json;
  }
  Json entries(std::span<const Entry> entries) {
    Json json = Json::array();
    for (const Entry& entry : entries) {
      Json key = of(entry.key);
      json.push_back(Json::array({std::move(key), of(entry.value)}));
    }
    return json;
  }
  Json tuple(Value value) {
    Json json = {{"tuple", list(value.items())}};
    if (!value.type().empty()) json["type"] = value.type();
    return json;
  }
  Json set(Value value) {
    Json items = list(value.items());
    std::sort(items.begin(), items.end(),
              [](const Json& a, const Json& b) { return a.dump() < b.dump(); });
    return {{"set", items}};
  }
  Json dict(Value value) {
    Json json = {{"dict", entries(value.entries())}};
    if (!value.type().empty()) json["type"] = value.type();
    if (!value.arguments().is(Kind::kNone)) json["args"] = of(value.arguments());
    if (!value.state().is(Kind::kNone)) json["state"] = of(value.state());
    return json;
  }
  Json object(Value value) {
    Json json = {{"object", value.type()}, {"args", list(value.arguments().items())}};
    if (!value.keywords().is(Kind::kNone)) json["keywords"] = of(value.keywords());
    if (!value.state().is(Kind::kNone)) json["state"] = of(value.state());
    if (!value.items().empty()) json["items"] = list(value.items());
    if (!value.entries().empty()) json["entries"] = entries(value.entries());
    return json;
  }
  Json tensor(const TensorRef& tensor) {
    constexpr const char* kClasses[] = {"tensor", "parameter", "array"};
    at::Tensor whole = to_tensor(tensor).contiguous();
    std::span<const std::byte> bytes(static_cast<const std::byte*>(whole.const_data_ptr()),
                                     whole.nbytes());
    Json json = {{"class", kClasses[static_cast<size_t>(tensor.of)]},
                 {"dtype", info(tensor.dtype).name},
                 {"sizes", tensor.sizes},
                 {"strides", tensor.strides},
                 {"offset", tensor.offset},
                 {"requires_grad", tensor.requires_grad},
                 {"bytes", hexadecimal(text(bytes))}};
    // Storages by the order in which they come.
    if (tensor.of != TensorRef::Class::kArray)
      json["storage"] = storages_.try_emplace(tensor.storage->key, storages_.size()).first->second;
    return json;
  }
  static Json storage(const Storage& storage) {
    return {{"dtype", storage.dtype ? info(*storage.dtype).name : ""},
            {"bytes", hexadecimal(text(storage.bytes))}};
  }

  std::map<std::string, size_t> storages_;
};

}  // namespace

nlohmann::json json_of(Value value) { return Dump().of(value); }

}  // namespace neox::torchfile
