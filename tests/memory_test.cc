// What a process may take of the memory of its machine and its control groups.
#include "base/memory.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "data_files.h"

namespace neox {
namespace {

TEST(AvailableMemory, IsThereAndHasALimit) {
  EXPECT_GT(available_memory(), 1 << 20);
  EXPECT_LT(available_memory(), int64_t{1} << 50);
}

using Files = std::map<std::string, std::string>;

void put_group(const testing::Directory& dir, const std::string& group, const Files& files) {
  for (const auto& [name, text] : files) dir.put(group + "/" + name, text);
}

TEST(MemoryOfGroups, IsTheLeastOnTheWayToTheRoot) {
  testing::Directory dir;
  dir.put("v2", "0::/job/step\n");
  put_group(dir, "job",
            {{"memory.max", "1000"},
             {"memory.current", "900"},
             {"memory.stat", "anon 700\ninactive_file 150\nactive_file 50\n"}});
  put_group(dir, "job/step", {{"memory.max", "max"}, {"memory.current", "800"}});
  EXPECT_EQ(memory_of_groups(dir / "v2", dir.path()), 300);
  put_group(dir, "job/step", {{"memory.max", "850"}});
  EXPECT_EQ(memory_of_groups(dir / "v2", dir.path()), 50);
}

TEST(MemoryOfGroups, AreThoseOfVersion1Too) {
  testing::Directory dir;
  dir.put("v1", "9:name=systemd:/x\n4:cpu,memory:/slurm/job_7\n0::/\n");
  put_group(dir, "memory/slurm/job_7",
            {{"memory.limit_in_bytes", "2000"},
             {"memory.usage_in_bytes", "1500"},
             {"memory.stat", "inactive_file 9\ntotal_inactive_file 100\ntotal_active_file 1\n"}});
  EXPECT_EQ(memory_of_groups(dir / "v1", dir.path()), 601);
  // Of a container that sees its group as the root.
  fs::remove_all(dir / "memory/slurm");
  put_group(dir, "memory", {{"memory.limit_in_bytes", "700"}, {"memory.usage_in_bytes", "600"}});
  EXPECT_EQ(memory_of_groups(dir / "v1", dir.path()), 100);
}

TEST(MemoryOfGroups, MayHaveMoreFilesThanIsUsed) {
  testing::Directory dir;
  dir.put("v1", "4:memory:/job\n");
  put_group(dir, "memory/job",
            {{"memory.limit_in_bytes", "9223372036854771712"},
             {"memory.usage_in_bytes", "100000"},
             {"memory.stat", "total_inactive_file 60000\ntotal_active_file 50000\n"}});
  EXPECT_EQ(memory_of_groups(dir / "v1", dir.path()), 9223372036854771712);
}

TEST(MemoryOfGroups, EndsWhereAGroupLiesOutsideOfTheRoot) {
  testing::Directory dir;
  dir.put("outside", "0::/../../x\n");
  EXPECT_EQ(memory_of_groups(dir / "outside", dir.path()), std::numeric_limits<int64_t>::max());
  put_group(dir, ".", {{"memory.max", "10"}, {"memory.current", "4"}});
  EXPECT_EQ(memory_of_groups(dir / "outside", dir.path()), 6);
}

}  // namespace
}  // namespace neox
