#include "comm/network.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"

namespace neox {
namespace {

namespace fs = std::filesystem;

// A node in a folder.
class Network : public ::testing::Test {
 protected:
  Network() { fs::create_directories(query.root); }
  ~Network() override { fs::remove_all(query.root); }
  void device(const std::string& name, const std::string& vendor) {
    write("sys/class/infiniband/" + name + "/device/vendor", vendor + "\n");
  }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((query.root / path).parent_path());
    std::ofstream(query.root / path) << text;
  }
  std::string first() { return describe_network(query).lines.at(0); }
  std::string warning() {
    auto warnings = describe_network(query).warnings;
    return warnings.empty() ? "" : warnings[0];
  }

  Environment libraries;  // name -> path
  NetworkQuery query{.nccl_version = "2.28.9",
                     .num_nodes = 2,
                     .root = fs::path(::testing::TempDir()) / concat("network.", ::getpid()),
                     .find_library = [this](const std::string& name) {
                       return libraries.contains(name) ? libraries[name] : "";
                     }};
};

TEST_F(Network, WithoutFabricItIsTheSocket) {
  EXPECT_EQ(first(), "NCCL 2.28.9; between nodes: Socket (TCP)");
  EXPECT_EQ(warning(), "");
}

TEST_F(Network, EfaWithItsPluginIsNamed) {
  for (int i = 0; i < 4; ++i) device(concat("rdmap", i, "s0"), "0x1d0f");
  libraries["libnccl-net.so"] = "/opt/amazon/ofi-nccl/lib/libnccl-net.so";
  EXPECT_EQ(first(),
            "NCCL 2.28.9; between nodes: AWS Libfabric, plugin "
            "/opt/amazon/ofi-nccl/lib/libnccl-net.so, 4 EFA devices (rdmap0s0 ... rdmap3s0)");
  EXPECT_EQ(warning(), "");
}

TEST_F(Network, EfaWithoutPluginWarnsAndSaysWhereItLies) {
  device("efa_0", "0x1d0f");
  EXPECT_EQ(warning(),
            "this node has 1 EFA device (efa_0), but NCCL will use TCP sockets, many times slower: "
            "the loader finds no libnccl-net.so; install the EFA installer's plugin (aws-ofi-nccl) "
            "on the node or in the container. NCCL_NET=\"AWS Libfabric\" makes a job without it "
            "fail");
  write("opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "");
  EXPECT_NE(warning().find("/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so is there: add its "
                           "directory to LD_LIBRARY_PATH"),
            std::string::npos);
  fs::remove(query.root / "opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so");
  write("opt/amazon/ofi-nccl/lib/aarch64-linux-gnu/libnccl-net-ofi.so", "");
  EXPECT_NE(warning().find("aarch64-linux-gnu/libnccl-net-ofi.so is there"), std::string::npos);
  query.num_nodes = 1;
  EXPECT_EQ(warning(), "");
}

TEST_F(Network, APluginThatIsNotAmazonsDoesNotReachEfa) {
  device("efa_0", "0x1d0f");
  libraries["libnccl-net.so"] = "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so";
  EXPECT_NE(warning().find("its plugin is /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so, not "
                           "Amazon's; put the directory of aws-ofi-nccl before it"),
            std::string::npos);
}

TEST_F(Network, VariablesThatChooseAreFollowedAndShown) {
  device("efa_0", "0x1d0f");
  libraries["libnccl-net-ofi.so"] = "/x/libnccl-net-ofi.so";
  query.env = {{"NCCL_NET_PLUGIN", "ofi"}, {"FI_PROVIDER", "efa"}, {"HOME", "/root"}};
  EXPECT_NE(first().find("plugin /x/libnccl-net-ofi.so"), std::string::npos);
  EXPECT_EQ(describe_network(query).lines.at(1),
            "set for NCCL: FI_PROVIDER=efa NCCL_NET_PLUGIN=ofi");
  query.env = {{"NCCL_NET", "Socket"}};
  EXPECT_NE(warning().find("NCCL_NET=Socket says so; unset it"), std::string::npos);
  query.env = {{"NCCL_NET_PLUGIN", "none"}};
  EXPECT_NE(warning().find("NCCL_NET_PLUGIN=none says so"), std::string::npos);
}

TEST_F(Network, TheFilesOfNcclAreReadButDoNotOverride) {
  device("efa_0", "0x1d0f");
  libraries["libnccl-net-ofi.so"] = "/x/libnccl-net-ofi.so";
  write("etc/nccl.conf", "# of the site\nNCCL_NET_PLUGIN=absent,ofi\nNCCL_DEBUG=INFO\n");
  query.env = {{"NCCL_DEBUG", "WARN"}};
  EXPECT_NE(first().find("plugin /x/libnccl-net-ofi.so"), std::string::npos);
  EXPECT_EQ(describe_network(query).lines.at(1),
            "set for NCCL: NCCL_DEBUG=WARN NCCL_NET_PLUGIN=absent,ofi");
}

TEST_F(Network, OtherVendorsAreInfiniBandAndNoEfa) {
  device("mlx5_0", "0x15b3");
  device("mlx5_1", "0x15b3");
  EXPECT_EQ(
      first(),
      "NCCL 2.28.9; between nodes: InfiniBand or RoCE, 2 InfiniBand devices (mlx5_0, mlx5_1)");
  EXPECT_EQ(warning(), "");
}

TEST(FindLibrary, GivesThePathTheLoaderTakes) {
  EXPECT_NE(find_library("libc.so.6").find("/libc.so.6"), std::string::npos);
  EXPECT_EQ(find_library("libnccl-net-absent.so"), "");
}

}  // namespace
}  // namespace neox
