#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "torchfile/tensor.h"
#include "torchfile_dump.h"
#include "torchfile_files.h"

namespace neox::torchfile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const RecordList kSix = {{"a/data/0", raw("\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@")}};

std::string tensor_file(const TensorPickle& tensor) { return file_of(pickle_of(tensor), kSix); }

Item tree() {
  auto data = [](const NewTensor::Write& write) { write(bytes_of("abcdefgh")); };
  Item tensor = NewTensor{DType::kFloat32, {2, 1}, data};
  return Item::dict({{"none", {}},
                     {"flags", Item::list({true, false})},
                     {"ints", Item::tuple({0, -1, 1 << 30, int64_t{1} << 40, INT64_MIN})},
                     {"float", 0.1},
                     {"bytes", Item::bytes(raw("\0a\xff"))},
                     {3, Item::ordered_dict({{"Gr\xc3\xbc\xc3\x9f"
                                              "e",
                                              tensor},
                                             {"tied", tensor}})},
                     {"half", NewTensor{DType::kUInt16, {4}, data}},
                     {"empty", NewTensor{DType::kInt64, {2, 0}, [](const auto&) {}}}});
}

std::string written(const Item& item) {
  testing::Directory dir;
  write_torch_file(dir / "made.pt", item);
  EXPECT_THAT(dir.list(), ElementsAre("made.pt"));
  return read_file(dir / "made.pt");
}

TEST(TorchFile, ReadsWhatPyTorchWrote) {
  for (const Golden& file : goldens()) {
    if (file.name == "legacy") continue;
    EXPECT_EQ(json_of(read(file.bytes).root()), file.value) << file.name;
    EXPECT_THAT(damaged_records(bytes_of(file.bytes)), ElementsAre()) << file.name;
  }
}

TEST(TorchFile, FindsPartsByPath) {
  TorchFile file = read(golden("objects.2").bytes);
  EXPECT_EQ(file.at("args.num_layers").as_int(), 2);
  EXPECT_EQ(file.at("scaler.nested.a.b.0").as_int(), 1);
  EXPECT_EQ(file.at("slots.right").as_string(), "two");
  EXPECT_EQ(file.at("names.1").as_int(), 2);
  EXPECT_EQ(file.at("table.a").as_int(), 1);
  EXPECT_FALSE(file.root().find("args.layers").has_value());
  TorchFile keys = read(golden("plain.2").bytes);
  EXPECT_EQ(keys.at("7.8.a.b").as_int(), 9);
}

TEST(TorchFile, SaysWhereAPathEnds) {
  TorchFile file = read(golden("plain.2").bytes);
  try {
    file.at("ordered.a.x.y");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::kIo);
    EXPECT_STREQ(error.what(), "made.pt: there is no ordered.a.x.y: ordered.a is a dict; it has c");
  }
  EXPECT_THROW(file.at("true").as_int(), Error);
  EXPECT_THROW(file.at("text").tensor(), Error);
}

TEST(TorchFile, TensorsAreViewsOfTheFile) {
  TorchFile file = read(golden("views.2").bytes);
  const TensorRef& columns = file.at("columns").tensor();
  EXPECT_EQ(columns.storage->key, file.at("base").tensor().storage->key);
  EXPECT_THAT(columns.strides, ElementsAre(6, 2));
  EXPECT_EQ(to_tensor(columns)[3][1].item<float>(), 21);
}

TEST(TorchFile, NamesFilesOfOtherFormats) {
  EXPECT_THAT(error_of(golden("legacy").bytes), HasSubstr("before PyTorch 1.6; load it with"));
  std::string tar(600, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_THAT(error_of(tar), HasSubstr("before PyTorch 0.2"));
  EXPECT_THAT(error_of("\x80\x04N."), HasSubstr("is a pickle, not a file of torch.save"));
  EXPECT_THAT(error_of("{\"a\": 1}"), HasSubstr("does not begin as a zip file"));
  EXPECT_THAT(error_of(""), HasSubstr("is empty"));
  EXPECT_THAT(error_of(zip_of({{"a/b", "c"}})), HasSubstr("has no data.pkl"));
  EXPECT_THAT(error_of(file_of("N", {{"a/constants.pkl", ""}})), HasSubstr("TorchScript"));
}

TEST(TorchFile, RefusesZipsThatAreNotWhole) {
  std::string file = golden("plain.2").bytes;
  EXPECT_THAT(error_of(file.substr(0, file.size() - 1)), HasSubstr("no zip directory at its end"));
  EXPECT_THAT(error_of(file.substr(0, 100)), HasSubstr("cut off"));
  std::string compressed = file;
  size_t entry = compressed.find("PK\1\2");
  compressed[entry + 10] = 8;
  EXPECT_THAT(error_of(compressed), HasSubstr("data.pkl is compressed (method 8)"));
  std::string twice = zip_of({{"a/data.pkl", "\x80\x02N."}, {"a/b", "1"}, {"a/c", "2"}});
  for (size_t at; (at = twice.find("a/c")) != std::string::npos;) twice.replace(at, 3, "a/b");
  EXPECT_THAT(error_of(twice), HasSubstr("has the record a/b twice"));
  std::string moved = file;
  moved[moved.find("PK\1\2") + 42] += 1;
  EXPECT_THAT(error_of(moved), HasSubstr("is not at byte"));
}

TEST(TorchFile, RefusesTensorsThatDoNotFitTheirStorage) {
  EXPECT_EQ(error_of(tensor_file({ints({2, 3}), ints({3, 1})})), "");
  EXPECT_EQ(error_of(tensor_file({ints({2, 2}), ints({1, 4})})), "");
  EXPECT_THAT(error_of(tensor_file({ints({2, 3}), ints({3, 1}), 1})),
              HasSubstr("shape [2, 3], strides [3, 1] and offset 1 in data/0 reaches past its 6"));
  EXPECT_THAT(error_of(tensor_file({ints({3, 2}), ints({1, 1})})), HasSubstr("overlap"));
  EXPECT_THAT(error_of(tensor_file({ints({9}), ints({0})})), HasSubstr("overlap"));
  EXPECT_THAT(error_of(tensor_file({ints({2}), ints({3, 1})})), HasSubstr("cannot be"));
  EXPECT_THAT(error_of(tensor_file({"J\xff\xff\xff\xff\x85", ints({1})})),
              HasSubstr("stride is -1"));
  std::string huge = raw("(\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40t");
  EXPECT_THAT(error_of(tensor_file({huge, ints({1, 1})})), HasSubstr("larger than any memory"));
  EXPECT_THAT(error_of(tensor_file({ints({2, 3}), huge})), HasSubstr("reaches past"));
  EXPECT_THAT(error_of(tensor_file({ints({1}), ints({1}), 0, 7})),
              HasSubstr("data/0 has 24 bytes, 7"));
}

TEST(TorchFile, NamesStoragesWithoutData) {
  EXPECT_THAT(error_of(file_of(pickle_of({ints({1}), ints({1})}))),
              HasSubstr("made.pt: the record data/0 is missing"));
  EXPECT_THAT(error_of(tensor_file({ints({1}), ints({1}), 0, 6, "meta"})),
              HasSubstr("meta device"));
  EXPECT_THAT(error_of(tensor_file({ints({1}), ints({1}), 0, 6, "cpu", "QInt8Storage"})),
              HasSubstr("of a type that is not read"));
}

TEST(TorchFile, SwapsTheBytesOfBigEndianFiles) {
  RecordList records = kSix;
  records[0].second = raw("\0\0\0\0?\x80\0\0@\0\0\0@@\0\0@\x80\0\0@\xa0\0\0");
  records.push_back({"a/byteorder", "big"});
  std::string bytes = file_of(pickle_of({ints({2, 2}), ints({3, 1}), 1}), records);
  TorchFile file = read(bytes);
  at::Tensor tensor = to_tensor(file.root().tensor());
  EXPECT_EQ(tensor[0][0].item<float>(), 1);
  EXPECT_EQ(tensor[1][0].item<float>(), 4);
  EXPECT_THAT(error_of(file_of("N", {{"a/byteorder", "middle"}})), HasSubstr("neither"));
}

TEST(TorchFile, CallsNothing) {
  std::string bytes = file_of("cos\nsystem\n" + text_of("touch /tmp/x") + "\x85R");
  TorchFile file = read(bytes);
  EXPECT_EQ(file.root().type(), "os.system");
  EXPECT_EQ(file.root().arguments().at("0").as_string(), "touch /tmp/x");
  EXPECT_THAT(error_of(file_of("(ios\nsystem\n")), HasSubstr("the operation 0x69"));
}

TEST(TorchFile, DoesNotFollowCallsWithoutEnd) {
  std::string open, close;
  for (int i = 0; i < 100000; ++i) open += raw("(h\0h\1"), close += "Nt";
  EXPECT_THAT(error_of(file_of(raw("ctorch._tensor\n_rebuild_from_type_v2\nq\0") +
                               raw("0ctorch\nTensor\nq\1"
                                   "0h\0") +
                               open + ")" + close + "R")),
              HasSubstr("nested deeper than 500"));
}

TEST(TorchFile, CutsCycles) {
  std::string bytes = file_of(raw("]q\0h\0aK\5a"));
  TorchFile file = read(bytes);
  EXPECT_TRUE(file.at("0").is(Kind::kCycle));
  EXPECT_EQ(file.at("1").as_int(), 5);
  EXPECT_EQ(file.root().items().size(), 2u);
}

TEST(TorchFile, RefusesPicklesThatExplode) {
  EXPECT_THAT(error_of(file_of(std::string(100000, ']') + std::string(99999, 'a'))),
              HasSubstr("nested deeper than 500"));
  std::string doubling = raw("]q\0");
  for (int i = 0; i < 40; ++i) doubling += raw("0]q\1(h\0h\0e") + raw("q\0");
  EXPECT_THAT(error_of(file_of(doubling)), HasSubstr("unfold to more than"));
  std::string copies =
      "X" + raw("\0\0\1\0") + std::string(65536, 'a') + raw("q\0cbuiltins\nbytearray\nq\1");
  copies += text_of("latin-1") + raw("q\2");
  for (int i = 0; i < 100; ++i) copies += raw("h\1h\0h\2\x86R");
  EXPECT_THAT(error_of(file_of(copies)), HasSubstr("again and again"));
  EXPECT_THAT(error_of(file_of(raw("Nr\xff\xff\xff\x7f"))), HasSubstr("memo number 2147483647"));
  EXPECT_THAT(error_of(file_of(raw("X\xff\xff\xff\x7f"))), HasSubstr("ends before 2147483647"));
}

TEST(TorchFile, RefusesPicklesThatAreWrong) {
  EXPECT_THAT(error_of(file_of("t")), HasSubstr("has no mark"));
  EXPECT_THAT(error_of(file_of("")), HasSubstr("empty stack"));
  EXPECT_THAT(error_of(file_of("NN")), HasSubstr("leaves values"));
  EXPECT_THAT(error_of(file_of("NNa")), HasSubstr("appends to None"));
  EXPECT_THAT(error_of(file_of("}(NNNu")), HasSubstr("a key without a value"));
  EXPECT_THAT(error_of(file_of(raw("h\0"))), HasSubstr("memo number 0, which it never put"));
  EXPECT_THAT(error_of(file_of("}(K\1NK\1Nu")), HasSubstr("a dict has the key 1 twice"));
  EXPECT_THAT(error_of(zip_of({{"a/data.pkl", "\x80\x02N"}})), HasSubstr("ends without a STOP"));
  EXPECT_THAT(error_of(zip_of({{"a/data.pkl", "\x80\x01N."}})), HasSubstr("is of protocol 1;"));
}

TEST(TorchWriter, WritesWhatItReads) {
  std::string bytes = written(tree());
  TorchFile file = read(bytes);
  EXPECT_TRUE(file.at("none").is(Kind::kNone));
  EXPECT_TRUE(file.at("flags.0").as_bool());
  EXPECT_EQ(file.at("ints.3").as_int(), int64_t{1} << 40);
  EXPECT_EQ(file.at("ints.4").as_int(), INT64_MIN);
  EXPECT_EQ(file.at("float").as_float(), 0.1);
  EXPECT_EQ(file.at("bytes").text(), raw("\0a\xff"));
  EXPECT_EQ(file.at("3").type(), "collections.OrderedDict");
  const TensorRef& tensor = file.at("3.tied").tensor();
  EXPECT_EQ(tensor.storage->key, "0");
  EXPECT_EQ(text(tensor.storage->bytes), "abcdefgh");
  EXPECT_THAT(tensor.sizes, ElementsAre(2, 1));
  EXPECT_EQ(file.at("half").tensor().dtype, DType::kUInt16);
  EXPECT_THAT(file.at("empty").tensor().sizes, ElementsAre(2, 0));
  EXPECT_THAT(damaged_records(bytes_of(bytes)), ElementsAre());
  EXPECT_EQ(bytes, written(tree()));
}

TEST(TorchWriter, AlignsRecords) {
  std::string bytes = written(tree());
  for (const auto& [name, record] : read_zip(bytes_of(bytes), "made.pt"))
    EXPECT_EQ((record.bytes.data() - bytes_of(bytes).data()) % 64, 0) << name;
}

TEST(TorchWriter, LeavesNothingWhereATensorFails) {
  testing::Directory dir;
  NewTensor few = {DType::kInt8, {3}, [](const auto& write) { write(bytes_of("ab")); }};
  NewTensor many = {DType::kInt8, {1}, [](const auto& write) { write(bytes_of("ab")); }};
  EXPECT_THROW(write_torch_file(dir / "made.pt", few), Error);
  EXPECT_THROW(write_torch_file(dir / "made.pt", many), Error);
  EXPECT_THAT(dir.list(), ElementsAre());
  EXPECT_THROW(write_torch_file(dir / "missing/made.pt", Item()), Error);
}

}  // namespace
}  // namespace neox::torchfile
