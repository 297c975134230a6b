#include "checkpoint/catalog.h"

#include <algorithm>
#include <type_traits>

#include "base/error.h"

namespace neox {
namespace {

constexpr const char* kRoot = "/catalog/";
// Elements of a tensor, and places in a file: those of any file are less.
constexpr int64_t kMost = int64_t{1} << 56;

// A member of every row of a table, as a column.
template <class Row, class Get>
auto column(const std::vector<Row>& rows, Get get) {
  std::vector<std::decay_t<decltype(get(rows[0]))>> values;
  values.reserve(rows.size());
  for (const Row& row : rows) values.push_back(get(row));
  return values;
}

// Rows of equal length; what a row lacks is filled with 0.
template <class Row, class Get>
std::vector<int64_t> matrix(const std::vector<Row>& rows, size_t width, Get get) {
  std::vector<int64_t> values(rows.size() * width, 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Dims& dims = get(rows[i]);
    std::copy(dims.begin(), dims.end(), values.begin() + static_cast<int64_t>(i * width));
  }
  return values;
}

size_t at_index(int64_t i, size_t count, const std::string& where) {
  check_io(i >= 0 && i < static_cast<int64_t>(count), where, ": the catalog names row ", i, " of ",
           count);
  return static_cast<size_t>(i);
}

Checksum checksum_from(const std::string& text, const std::string& where) {
  std::optional<Checksum> sum = parse_checksum(text);
  check_io(sum.has_value(), where, ": '", text, "' is not a checksum");
  return *sum;
}

// Columns of one table, all of the same length.
class TableReader {
 public:
  TableReader(const Hdf5File& file, std::string table, std::string where)
      : file_(file), table_(kRoot + table + "/"), where_(std::move(where)) {}
  std::vector<std::string> texts(const char* name) { return held(file_.texts(table_ + name), 1); }
  std::vector<int64_t> numbers(const char* name) { return held(file_.numbers(table_ + name), 1); }
  // Row by row; the width comes out of the length.
  std::vector<int64_t> rows(const char* name, size_t& width) {
    std::vector<int64_t> values = file_.numbers(table_ + name);
    width = rows_ ? values.size() / rows_ : 0;
    return held(std::move(values), width);
  }
  size_t size() const { return rows_; }

 private:
  template <class Values>
  Values held(Values values, size_t width) {
    if (!known_) rows_ = values.size(), known_ = true;
    check_io(values.size() == rows_ * width, where_, ": the columns of ", table_,
             " differ in length");
    return values;
  }
  const Hdf5File& file_;
  std::string table_, where_;
  size_t rows_ = 0;
  bool known_ = false;
};

Dims row_of(const std::vector<int64_t>& values, size_t row, size_t width, int64_t count,
            const std::string& where) {
  check_io(count >= 0 && count <= static_cast<int64_t>(width), where, ": a tensor of ", count,
           " dimensions");
  auto first = values.begin() + static_cast<int64_t>(row * width);
  return Dims(first, first + count);
}

void get_tensors(const Hdf5File& file, const std::string& where, Catalog& catalog) {
  TableReader table(file, "tensors", where);
  auto state = table.texts("state"), name = table.texts("name"), dtype = table.texts("dtype");
  auto dims = table.numbers("dims");
  size_t width = 0;
  auto shape = table.rows("shape", width);
  for (size_t i = 0; i < table.size(); ++i) {
    catalog.tensors.push_back(
        {state[i], name[i], dtype_of(dtype[i]), row_of(shape, i, width, dims[i], where)});
    int64_t elements = 1;
    for (int64_t extent : catalog.tensors.back().shape) {
      check_io(extent > 0, where, ": ", name[i], " has a dimension of ", extent);
      check_io(extent <= kMost / elements, where, ": ", name[i], " has more than ", kMost,
               " elements");
      elements *= extent;
    }
  }
}

// Whether it has elements, all of them in a tensor of that shape.
bool is_within(const Box& box, const Dims& shape) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (box.start[d] < 0 || box.start[d] >= shape[d] || box.extent[d] <= 0 ||
        box.extent[d] > shape[d] - box.start[d])
      return false;
  return true;
}

void get_boxes(const Hdf5File& file, const std::string& where, Catalog& catalog) {
  TableReader table(file, "boxes", where);
  auto tensor = table.numbers("tensor"), dataset = table.numbers("dataset");
  auto offset = table.numbers("offset");
  auto sum = table.texts("xxh3");
  size_t width = 0;
  auto start = table.rows("start", width), extent = table.rows("extent", width);
  for (size_t i = 0; i < table.size(); ++i) {
    const StoredTensor& of = catalog.tensors[at_index(tensor[i], catalog.tensors.size(), where)];
    at_index(dataset[i], catalog.datasets.size(), where);
    auto dims = static_cast<int64_t>(of.shape.size());
    Box box{row_of(start, i, width, dims, where), row_of(extent, i, width, dims, where)};
    check_io(is_within(box, of.shape), where, ": the box at ", to_string(box.start), " of ",
             to_string(box.extent), " is not within ", of.name, " ", to_string(of.shape));
    check_io(offset[i] >= 0 && offset[i] <= kMost, where, ": a box of ", of.name, " at element ",
             offset[i]);
    catalog.boxes.push_back({tensor[i], dataset[i], box, offset[i], checksum_from(sum[i], where)});
  }
}

}  // namespace

ByteRange Catalog::range(const StoredBox& box) const {
  auto item =
      static_cast<int64_t>(c10::elementSize(tensors[static_cast<size_t>(box.tensor)].dtype));
  int64_t begin = datasets[static_cast<size_t>(box.dataset)].offset + box.offset * item;
  return {begin, begin + box.box.numel() * item};
}

std::vector<std::vector<ByteRange>> Catalog::ranges() const {
  std::vector<std::vector<ByteRange>> of(std::max<size_t>(files.size(), 1));
  for (const StoredBox& box : boxes) of[static_cast<size_t>(file_of(box))].push_back(range(box));
  for (std::vector<ByteRange>& found : of) {
    std::ranges::sort(found, {}, &ByteRange::begin);
    for (size_t i = 1; i < found.size(); ++i)
      check(found[i - 1].end <= found[i].begin, "two boxes share bytes ", found[i].begin, " to ",
            found[i - 1].end, " of a file");
  }
  return of;
}

std::string Catalog::label(int64_t tensor) const {
  const StoredTensor& t = tensors[static_cast<size_t>(tensor)];
  return t.state + " of " + t.name;
}

void put_catalog(Hdf5File& file, const Catalog& c) {
  auto at = [](const char* name) { return kRoot + std::string(name); };
  size_t width = 1;
  for (const StoredTensor& tensor : c.tensors) width = std::max(width, tensor.shape.size());
  file.put_texts(at("files/name"), column(c.files, [](auto& f) { return f.name; }));
  file.put_numbers(at("files/bytes"), column(c.files, [](auto& f) { return f.bytes; }));
  file.put_texts(at("files/rest_xxh3"), column(c.files, [](auto& f) { return to_string(f.rest); }));
  file.put_numbers(at("datasets/file"), column(c.datasets, [](auto& d) { return d.file; }));
  file.put_texts(at("datasets/name"), column(c.datasets, [](auto& d) { return d.name; }));
  file.put_numbers(at("datasets/offset"), column(c.datasets, [](auto& d) { return d.offset; }));
  file.put_texts(at("tensors/state"), column(c.tensors, [](auto& t) { return t.state; }));
  file.put_texts(at("tensors/name"), column(c.tensors, [](auto& t) { return t.name; }));
  file.put_texts(at("tensors/dtype"),
                 column(c.tensors, [](auto& t) { return dtype_name(t.dtype); }));
  auto dims = column(c.tensors, [](auto& t) { return static_cast<int64_t>(t.shape.size()); });
  file.put_numbers(at("tensors/dims"), dims);
  file.put_numbers(at("tensors/shape"),
                   matrix(
                       c.tensors, width, [](auto& t) -> auto& { return t.shape; }),
                   width);
  file.put_numbers(at("boxes/tensor"), column(c.boxes, [](auto& b) { return b.tensor; }));
  file.put_numbers(at("boxes/dataset"), column(c.boxes, [](auto& b) { return b.dataset; }));
  file.put_numbers(at("boxes/offset"), column(c.boxes, [](auto& b) { return b.offset; }));
  file.put_numbers(at("boxes/start"),
                   matrix(
                       c.boxes, width, [](auto& b) -> auto& { return b.box.start; }),
                   width);
  file.put_numbers(at("boxes/extent"),
                   matrix(
                       c.boxes, width, [](auto& b) -> auto& { return b.box.extent; }),
                   width);
  file.put_texts(at("boxes/xxh3"), column(c.boxes, [](auto& b) { return to_string(b.sum); }));
}

Catalog get_catalog(const Hdf5File& file, const std::string& where) {
  Catalog catalog;
  TableReader files(file, "files", where), datasets(file, "datasets", where);
  auto name = files.texts("name"), rest = files.texts("rest_xxh3");
  auto bytes = files.numbers("bytes");
  for (size_t i = 0; i < files.size(); ++i)
    catalog.files.push_back({name[i], bytes[i], checksum_from(rest[i], where)});
  auto of = datasets.numbers("file"), offset = datasets.numbers("offset");
  auto dataset = datasets.texts("name");
  for (size_t i = 0; i < datasets.size(); ++i) {
    at_index(of[i], std::max<size_t>(catalog.files.size(), 1), where);
    check_io(offset[i] >= 0 && offset[i] <= kMost, where, ": dataset ", dataset[i], " at ",
             offset[i]);
    catalog.datasets.push_back({of[i], dataset[i], offset[i]});
  }
  get_tensors(file, where, catalog);
  get_boxes(file, where, catalog);
  return catalog;
}

int64_t CatalogMerger::tensor_id(const StoredTensor& tensor, const std::string& file) {
  auto next = static_cast<int64_t>(all_.tensors.size());
  auto [at, fresh] = ids_.try_emplace({tensor.state, tensor.name}, next);
  if (fresh) {
    all_.tensors.push_back(tensor);
    first_file_.push_back(file);
  }
  auto id = static_cast<size_t>(at->second);
  const StoredTensor& known = all_.tensors[id];
  check(known.shape == tensor.shape && known.dtype == tensor.dtype, all_.label(at->second), " is ",
        dtype_name(known.dtype), " ", to_string(known.shape), " in ", first_file_[id], ", but ",
        dtype_name(tensor.dtype), " ", to_string(tensor.shape), " in ", file);
  return at->second;
}

void CatalogMerger::add(const StoredFile& file, const Catalog& part) {
  auto file_id = static_cast<int64_t>(all_.files.size());
  auto first_dataset = static_cast<int64_t>(all_.datasets.size());
  all_.files.push_back(file);
  for (StoredDataset dataset : part.datasets) {
    dataset.file = file_id;
    all_.datasets.push_back(std::move(dataset));
  }
  std::vector<int64_t> ids;
  for (const StoredTensor& tensor : part.tensors) ids.push_back(tensor_id(tensor, file.name));
  for (StoredBox box : part.boxes) {
    box.tensor = ids[static_cast<size_t>(box.tensor)];
    box.dataset += first_dataset;
    all_.boxes.push_back(std::move(box));
  }
}

}  // namespace neox
