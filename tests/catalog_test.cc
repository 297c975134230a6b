// Catalogs of checkpoints whose HDF5 is right and whose numbers are not.
#include "checkpoint/catalog.h"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <functional>

#include "base/error.h"

namespace neox {
namespace {

Catalog good() {
  return {.files = {{"rank_00000.h5", 8192, {}}},
          .datasets = {{0, "b/param", 4096}},
          .tensors = {{"param", "w", c10::ScalarType::Float, {3, 4}}},
          .boxes = {{0, 0, {{1, 0}, {2, 4}}, 0, {}}}};
}

// What is wrong with one that was changed so; "" where nothing is.
std::string fault(const std::function<void(Catalog&)>& change) {
  Catalog catalog = good();
  change(catalog);
  std::string image;
  {
    Hdf5File file = Hdf5File::in_memory("made");
    put_catalog(file, catalog);
    image = file.image();
  }
  try {
    get_catalog(Hdf5File::from_image(image, "index.h5"), "index.h5").ranges();
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kIo) << e.what();
    return e.what();
  }
}

TEST(CatalogTest, NumbersBeyondAnyFileAreRefused) {
  EXPECT_EQ(fault([](Catalog&) {}), "");
  const std::string not_within = "index.h5: the box at ", of = " is not within w [3, 4]";
  EXPECT_EQ(fault([](Catalog& c) { c.boxes[0].box.start[0] = INT64_MAX; }),
            not_within + "[9223372036854775807, 0] of [2, 4]" + of);
  EXPECT_EQ(fault([](Catalog& c) { c.boxes[0].box.extent[1] = INT64_MAX; }),
            not_within + "[1, 0] of [2, 9223372036854775807]" + of);
  EXPECT_EQ(fault([](Catalog& c) { c.boxes[0].box.extent[1] = -1; }),
            not_within + "[1, 0] of [2, -1]" + of);
  EXPECT_EQ(fault([](Catalog& c) { c.boxes[0].offset = INT64_MAX; }),
            "index.h5: a box of w at element 9223372036854775807");
  EXPECT_EQ(fault([](Catalog& c) { c.datasets[0].offset = INT64_MAX; }),
            "index.h5: dataset b/param at 9223372036854775807");
  EXPECT_EQ(fault([](Catalog& c) {
              c.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
            }),
            "index.h5: w has more than 72057594037927936 elements");
}

// HDF5 takes values that were never written for zeros, however many.
TEST(CatalogTest, MoreValuesThanAFileHoldsAreRefused) {
  std::string path = ::testing::TempDir() + concat("neox_values_", ::getpid(), ".h5");
  hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hsize_t count = hsize_t{1} << 40;
  hid_t space = H5Screate_simple(1, &count, nullptr);
  for (auto [name, type] : {std::pair{"numbers", H5T_STD_I64LE}, {"texts", H5T_C_S1}})
    H5Dclose(H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  H5Fclose(file);
  Hdf5File opened(path, Hdf5File::Mode::kRead);
  for (const std::function<void()>& read :
       {std::function<void()>([&] { opened.numbers("numbers"); }),
        {[&] { opened.texts("texts"); }}})
    try {
      read();
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("has 1099511627776 values"), std::string::npos)
          << e.what();
    }
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace neox
