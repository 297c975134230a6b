#include "checkpoint/hdf5_file.h"

#include <hdf5.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/raw_file.h"

namespace neox {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are written as they lie");
constexpr hsize_t kAlignment = 4096;
// HDF5 refuses to open an image under the name of a file that exists.
constexpr const char* kNoFile = "/dev/null/image";

std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

int64_t number_after(const std::string& text, const std::string& words) {
  size_t at = text.find(words);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + words.size());
}

// Why the last call failed: the operating system's reason where it has one, else HDF5's, innermost
// first.
std::string hdf5_reasons(const std::string& where) {
  std::vector<std::string> reasons;
  auto add = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->push_back(
        concat(error->desc, " (", error->func_name, ")"));
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, add, &reasons);
  H5Eclear2(H5E_DEFAULT);
  if (reasons.empty()) return "HDF5 gives no reason";
  if (int error = static_cast<int>(number_after(reasons[0], "errno = ")))
    return describe_write_error(error, where, number_after(reasons[0], "total write size = "));
  reasons.resize(std::min<size_t>(reasons.size(), 3));
  std::string text = "HDF5 says: " + join(reasons, ", ");
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// Throws where an HDF5 call failed; returns its result.
template <class Result>
Result check_hdf5(Result result, const char* operation, const std::string& where) {
  if (result < 0) fail(Exit::kIo, "cannot ", operation, " ", where, ": ", hdf5_reasons(where));
  return result;
}

// An HDF5 object that closes itself.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle(hid_t id, Close close, const char* operation, const std::string& where)
      : id_(check_hdf5(id, operation, where)), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }
  herr_t close() { return close_(std::exchange(id_, -1)); }

 private:
  hid_t id_;
  Close close_;
};

struct Dtype {
  const char* name;
  c10::ScalarType type;
  size_t size, exponent, mantissa;
};

constexpr Dtype kDtypes[] = {{"bfloat16", c10::ScalarType::BFloat16, 2, 8, 7},
                             {"float16", c10::ScalarType::Half, 2, 5, 10},
                             {"float32", c10::ScalarType::Float, 4, 8, 23},
                             {"float64", c10::ScalarType::Double, 8, 11, 52}};

const Dtype& find_dtype(c10::ScalarType type) {
  for (const Dtype& dtype : kDtypes)
    if (dtype.type == type) return dtype;
  fail(Exit::kInternal, "a checkpoint cannot hold elements of type ", c10::toString(type));
}

// IEEE 754 and its like: sign, exponent, mantissa, from the top.
Handle hdf5_type(const Dtype& dtype) {
  Handle type(H5Tcopy(dtype.size == 8 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE), H5Tclose, "copy the type",
              dtype.name);
  if (dtype.size == 2) {
    size_t bias = (size_t{1} << (dtype.exponent - 1)) - 1;
    check_hdf5(H5Tset_fields(type, 15, dtype.mantissa, dtype.exponent, 0, dtype.mantissa),
               "set the fields of", dtype.name);
    check_hdf5(H5Tset_size(type, 2), "set the size of", dtype.name);
    check_hdf5(H5Tset_ebias(type, bias), "set the bias of", dtype.name);
  }
  return type;
}

Handle access_list() {
  Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make", "a file access list");
  // Version 1.8 of the format: compact, with checksums of its own, and read by every HDF5 since.
  check_hdf5(H5Pset_libver_bounds(list, H5F_LIBVER_V18, H5F_LIBVER_V18), "set", "the version");
  check_hdf5(H5Pset_alignment(list, 1, kAlignment), "set", "the alignment");
  // Network file systems often have no locks, and a file here has one writer.
  check_hdf5(H5Pset_file_locking(list, false, true), "set", "file locking");
  return list;
}

Handle text_type(size_t length) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "copy", "the text type");
  check_hdf5(H5Tset_size(type, std::max<size_t>(length, 1)), "set the size of", "the text type");
  check_hdf5(H5Tset_strpad(type, H5T_STR_NULLPAD), "set the padding of", "the text type");
  check_hdf5(H5Tset_cset(type, H5T_CSET_UTF8), "set the code of", "the text type");
  return type;
}

}  // namespace

std::string dtype_name(c10::ScalarType dtype) { return find_dtype(dtype).name; }

c10::ScalarType dtype_of(const std::string& name) {
  for (const Dtype& dtype : kDtypes)
    if (dtype.name == name) return dtype.type;
  fail(Exit::kIo, "unknown element type '", name,
       "'; known are bfloat16, float16, float32, float64");
}

struct Hdf5File::Impl {
  explicit Impl(std::string file_name) : lock(hdf5_mutex()), name(std::move(file_name)) {
    // A file that could not be closed must not be flushed once more when the program ends.
    static const herr_t once = H5dont_atexit();
    (void)once;
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Handle open_column(const std::string& column) const {
    return Handle(H5Dopen2(*file, column.c_str(), H5P_DEFAULT), H5Dclose, "open",
                  name + ":" + column);
  }
  Handle add_column(const std::string& column, hid_t type, std::span<const hsize_t> shape,
                    hid_t properties) {
    std::string where = name + ":" + column;
    Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose,
                 "make the space of", where);
    Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "make the links of", where);
    check_hdf5(H5Pset_create_intermediate_group(links, 1), "make the groups of", where);
    return Handle(H5Dcreate2(*file, column.c_str(), type, space, links, properties, H5P_DEFAULT),
                  H5Dclose, "create", where);
  }

  // How many values there are of so many bytes each, which are not more than the file has: a file
  // may name any number of values that it does not hold.
  size_t count_of(const Handle& data, size_t bytes, const std::string& where) const {
    Handle space(H5Dget_space(data), H5Sclose, "read the shape of", where);
    hssize_t count = check_hdf5(H5Sget_simple_extent_npoints(space), "read the shape of", where);
    hsize_t size = 0;
    check_hdf5(H5Fget_filesize(*file, &size), "measure", name);
    check_io(static_cast<hsize_t>(count) <= size / std::max<size_t>(bytes, 1), where, " has ",
             count, " values of ", bytes, " bytes, and the file ", size, " bytes: it is damaged");
    return static_cast<size_t>(count);
  }

  std::lock_guard<std::mutex> lock;
  std::string name;
  std::unique_ptr<Handle> file;
};

Hdf5File::Hdf5File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File::~Hdf5File() = default;

Hdf5File::Hdf5File(const fs::path& path, Mode mode) : impl_(std::make_unique<Impl>(path.string())) {
  Handle list = access_list();
  hid_t id = mode == Mode::kCreate   ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, list)
             : mode == Mode::kExtend ? H5Fopen(path.c_str(), H5F_ACC_RDWR, list)
                                     : H5Fopen(path.c_str(), H5F_ACC_RDONLY, list);
  const char* operation = mode == Mode::kCreate ? "create" : "open";
  impl_->file = std::make_unique<Handle>(id, H5Fclose, operation, impl_->name);
}

Hdf5File Hdf5File::in_memory(const std::string& name) {
  auto impl = std::make_unique<Impl>(name);
  Handle list = access_list();
  check_hdf5(H5Pset_alignment(list, 1, 1), "set", "the alignment");
  // H5Fget_file_image of 1.10 changes a byte of a superblock with a checksum, so take one without.
  check_hdf5(H5Pset_libver_bounds(list, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18), "set", "the version");
  check_hdf5(H5Pset_fapl_core(list, 1 << 20, false), "prepare", name);
  impl->file = std::make_unique<Handle>(H5Fcreate(kNoFile, H5F_ACC_TRUNC, H5P_DEFAULT, list),
                                        H5Fclose, "create", name);
  return Hdf5File(std::move(impl));
}

Hdf5File Hdf5File::from_image(std::string_view bytes, const std::string& name) {
  auto impl = std::make_unique<Impl>(name);
  Handle list = access_list();
  check_hdf5(H5Pset_fapl_core(list, 1 << 20, false), "prepare", name);
  check_hdf5(H5Pset_file_image(list, const_cast<char*>(bytes.data()), bytes.size()), "prepare",
             name);
  impl->file =
      std::make_unique<Handle>(H5Fopen(kNoFile, H5F_ACC_RDONLY, list), H5Fclose, "open", name);
  return Hdf5File(std::move(impl));
}

int64_t Hdf5File::add_payload(const std::string& name, c10::ScalarType dtype, int64_t elements) {
  Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make the properties of", name);
  check_hdf5(H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY), "set the properties of", name);
  check_hdf5(H5Pset_fill_time(list, H5D_FILL_TIME_NEVER), "set the properties of", name);
  check_hdf5(H5Pset_obj_track_times(list, false), "set the properties of", name);
  hsize_t shape[] = {static_cast<hsize_t>(elements)};
  Handle data = impl_->add_column(name, hdf5_type(find_dtype(dtype)), shape, list);
  haddr_t offset = H5Dget_offset(data);
  check(offset != HADDR_UNDEF && offset % kAlignment == 0, impl_->name, ":", name,
        " has no aligned place in the file");
  return static_cast<int64_t>(offset);
}

void Hdf5File::put_numbers(const std::string& name, std::span<const int64_t> values, size_t row) {
  hsize_t shape[] = {values.size() / row, row};
  Handle data =
      impl_->add_column(name, H5T_STD_I64LE, std::span(shape, row == 1 ? 1 : 2), H5P_DEFAULT);
  if (values.empty()) return;
  check_hdf5(H5Dwrite(data, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
             "write", impl_->name + ":" + name);
}

void Hdf5File::put_texts(const std::string& name, const std::vector<std::string>& values) {
  size_t length = 1;
  for (const std::string& value : values) length = std::max(length, value.size());
  std::string all;
  for (const std::string& value : values) all += value, all.append(length - value.size(), '\0');
  Handle type = text_type(length);
  hsize_t shape[] = {values.size()};
  Handle data = impl_->add_column(name, type, shape, H5P_DEFAULT);
  if (values.empty()) return;
  check_hdf5(H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()), "write",
             impl_->name + ":" + name);
}

std::vector<int64_t> Hdf5File::numbers(const std::string& name) const {
  std::string where = impl_->name + ":" + name;
  Handle data = impl_->open_column(name);
  std::vector<int64_t> values(impl_->count_of(data, sizeof(int64_t), where));
  if (!values.empty())
    check_hdf5(H5Dread(data, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
               "read", where);
  return values;
}

std::vector<std::string> Hdf5File::texts(const std::string& name) const {
  std::string where = impl_->name + ":" + name;
  Handle data = impl_->open_column(name);
  Handle stored(H5Dget_type(data), H5Tclose, "read the type of", where);
  size_t length = H5Tget_size(stored);
  Handle type = text_type(length);
  size_t count = impl_->count_of(data, length, where);
  std::string all(count * length, '\0');
  if (count)
    check_hdf5(H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()), "read", where);
  std::vector<std::string> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = all.substr(i * length, length);
    values[i].resize(values[i].find_last_not_of('\0') + 1);
  }
  return values;
}

std::string Hdf5File::image() {
  check_hdf5(H5Fflush(*impl_->file, H5F_SCOPE_GLOBAL), "flush", impl_->name);
  ssize_t size = check_hdf5(H5Fget_file_image(*impl_->file, nullptr, 0), "measure", impl_->name);
  std::string bytes(static_cast<size_t>(size), '\0');
  check_hdf5(H5Fget_file_image(*impl_->file, bytes.data(), bytes.size()), "copy", impl_->name);
  return bytes;
}

void Hdf5File::close() { check_hdf5(impl_->file->close(), "finish", impl_->name); }

}  // namespace neox
