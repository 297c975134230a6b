#include "launch/hostlist.h"

#include "environments.h"

namespace neox {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Hostlist, ExpandsAsScontrolDoes) {
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {"ip-10-1-4-[190-191]", "ip-10-1-4-190 ip-10-1-4-191"},
      {"ip-10-1-4-190,ip-10-1-5-138", "ip-10-1-4-190 ip-10-1-5-138"},
      {"n[001-003,7,010-011]", "n001 n002 n003 n7 n010 n011"},
      {"p5-st-p5-[1,9-11]", "p5-st-p5-1 p5-st-p5-9 p5-st-p5-10 p5-st-p5-11"},
      {"n[8-11]", "n8 n9 n10 n11"},
      {"n[08-11]", "n08 n09 n10 n11"},
      {"n[098-101]", "n098 n099 n100 n101"},
      {"r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"},
      {"ip-10-1-[4-5]-[190-191]", "ip-10-1-4-190 ip-10-1-4-191 ip-10-1-5-190 ip-10-1-5-191"},
      {"a,b[1,3],c", "a b1 b3 c"},
      {"n[3,1-2]", "n3 n1 n2"},
      {"n[1,1,2]", "n1 n1 n2"},
      {"n[1-2]-ib", "n1-ib n2-ib"},
      {"node7.cluster.local", "node7.cluster.local"}};
  for (const auto& [list, hosts] : kCases)
    EXPECT_EQ(join(expand_hostlist(list), " "), hosts) << list;
}

TEST(Hostlist, RefusesWhatIsMalformed) {
  for (const char* list : {"",
                           ",",
                           "a,",
                           ",a",
                           "a,,b",
                           "n[",
                           "n]",
                           "n[1",
                           "n1]",
                           "n[]",
                           "n[1-]",
                           "n[-1]",
                           "n[2-1]",
                           "n[a]",
                           "n[1,]",
                           "n[[1]]",
                           "n]1[",
                           "n[1-2",
                           "a b",
                           "n[1-2-3]",
                           "n[0x1]",
                           "(null)",
                           "n[99999999999999999999]",
                           "n\n"})
    EXPECT_THAT(error_of([&] { expand_hostlist(list); }), HasSubstr("malformed")) << list;
}

TEST(Hostlist, RefusesRangesOfAbsurdSize) {
  EXPECT_EQ(expand_hostlist("n[1-65536]").size(), 65536u);
  for (const char* list : {"n[1-65537]", "n[0-999999999999999999]", "n[1-300]m[1-300]",
                           "a,n[1-65536]", "n[1-40000,1-40000]"})
    EXPECT_THAT(error_of([&] { expand_hostlist(list); }), HasSubstr("65536 hosts")) << list;
}

TEST(Hostlist, RefusesNamesOfAbsurdLength) {
  std::string brackets = "n";
  for (int i = 0; i < 40000; ++i) brackets += "[1]";
  for (const std::string& list : {brackets, "n[1-65536]" + std::string(100000, 'x')})
    EXPECT_THAT(error_of([&] { expand_hostlist(list); }), HasSubstr("more than 255 characters"));
}

TEST(TasksPerNode, ExpandsRepetitions) {
  EXPECT_THAT(expand_tasks_per_node("8(x3),4"), ElementsAre(8, 8, 8, 4));
  EXPECT_THAT(expand_tasks_per_node("8,3,1"), ElementsAre(8, 3, 1));
  EXPECT_THAT(expand_tasks_per_node("2(x2),1"), ElementsAre(2, 2, 1));
  EXPECT_EQ(expand_tasks_per_node("8(x65536)").size(), 65536u);
}

TEST(TasksPerNode, RefusesWhatIsMalformed) {
  for (const char* list : {"", "8,", ",8", "8(x", "8(x)", "8(x0)", "0", "8(3)", "8(x3", "-1", "x",
                           "8x3", "8(x3)4", "8 ", "(x3)", "8(x99999999999999999999)"})
    EXPECT_THAT(error_of([&] { expand_tasks_per_node(list); }), HasSubstr("malformed")) << list;
  EXPECT_THAT(error_of([] { expand_tasks_per_node("8(x999999999)"); }), HasSubstr("too long"));
}

}  // namespace
}  // namespace neox
