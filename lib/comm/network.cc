#include "comm/network.h"

#include <dlfcn.h>
#include <link.h>

#include <fstream>

#include "base/error.h"
#include "base/text.h"
#include "launch/efa.h"

namespace neox {
namespace {

namespace fs = std::filesystem;

// Adds the lines NAME=VALUE of a configuration file of NCCL's; what is set stays.
void add_file(const fs::path& path, Environment& env) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    size_t equals = line.find('=');
    if (!line.starts_with("#") && equals != std::string::npos)
      env.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
}

// What NCCL will see: it reads two files at its start (src/misc/param.cc of NCCL 2.28).
Environment with_files(const NetworkQuery& query) {
  Environment env = query.env;
  if (std::string file = variable(env, "NCCL_CONF_FILE"); !file.empty())
    add_file(file, env);
  else if (std::string home = variable(env, "HOME"); !home.empty())
    add_file(fs::path(home) / ".nccl.conf", env);
  add_file(query.root / "etc/nccl.conf", env);
  return env;
}

// The names that NCCL tries, in its order (src/plugin/plugin_open.cc of NCCL 2.28): "ofi" is a name
// itself, then libnccl-net-ofi.so.
std::vector<std::string> plugin_names(const Environment& env) {
  std::string chosen = variable(env, "NCCL_NET_PLUGIN");
  if (chosen == "none") return {};
  if (chosen.empty()) return {"libnccl-net.so"};
  std::vector<std::string> names;
  for (const std::string& name : split(chosen, ',')) {
    names.push_back(name);
    bool is_file = name.starts_with("lib") && name.ends_with(".so");
    if (!is_file && name.find('/') == std::string::npos)
      names.push_back("libnccl-net-" + name + ".so");
  }
  return names;
}

// Where Amazon's installers put the plugin.
std::string amazon_plugin(const fs::path& root) {
  for (const char* dir :
       {"opt/amazon/ofi-nccl/lib", "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
        "opt/amazon/ofi-nccl/lib/aarch64-linux-gnu", "opt/amazon/ofi-nccl/lib64",
        "opt/aws-ofi-nccl/lib", "opt/aws-ofi-nccl/install/lib", "opt/amazon/efa/lib"})
    for (const char* name : {"libnccl-net-ofi.so", "libnccl-net.so"}) {
      std::error_code error;
      if (fs::exists(root / dir / name, error)) return (fs::path("/") / dir / name).string();
    }
  return "";
}

// EFA is reached through aws-ofi-nccl alone; images of PyTorch hold others under the same name.
bool is_amazon_plugin(const std::string& path) {
  std::error_code error;
  std::string real = fs::weakly_canonical(path, error).string();
  return (path + real).find("ofi") != std::string::npos ||
         (path + real).find("amazon") != std::string::npos;
}

std::string find_plugin(const NetworkQuery& query) {
  for (const std::string& name : plugin_names(query.env))
    if (std::string path = query.find_library(name); !path.empty()) return path;
  return "";
}

// "4 EFA devices (rdmap0s6 ... rdmap3s6)".
std::string count_devices(const std::vector<std::string>& devices, const std::string& kind) {
  std::string names = devices.front();
  if (devices.size() > 1) names += (devices.size() > 2 ? " ... " : ", ") + devices.back();
  return concat(devices.size(), " ", kind, devices.size() == 1 ? " device (" : " devices (", names,
                ")");
}

std::string effective_variables(const Environment& env) {
  std::string text;
  for (const auto& [name, value] : env)
    if (name.starts_with("NCCL_") || name.starts_with("FI_") || name.starts_with("OFI_NCCL_"))
      text += concat(text.empty() ? "" : " ", name, "=", value);
  return text;
}

std::string socket_warning(const NetworkQuery& query, const std::string& plugin,
                           const std::string& devices) {
  std::string why, what;
  std::string installed = amazon_plugin(query.root);
  if (variable(query.env, "NCCL_NET") == "Socket") {
    why = "NCCL_NET=Socket says so";
    what = "unset it";
  } else if (variable(query.env, "NCCL_NET_PLUGIN") == "none") {
    why = "NCCL_NET_PLUGIN=none says so";
    what = "unset it";
  } else if (!plugin.empty()) {
    why = concat("its plugin is ", plugin, ", not Amazon's");
    what = "put the directory of aws-ofi-nccl before it in LD_LIBRARY_PATH";
  } else {
    why = concat("the loader finds no ", plugin_names(query.env).back());
    what = installed.empty()
               ? std::string(
                     "install the EFA installer's plugin (aws-ofi-nccl) on the node or in the "
                     "container")
               : concat(installed, " is there: add its directory to LD_LIBRARY_PATH");
  }
  return concat("this node has ", devices,
                ", but NCCL will use TCP sockets, many times slower: ", why, "; ", what,
                ". NCCL_NET=\"AWS Libfabric\" makes a job without it fail");
}

}  // namespace

NetworkReport describe_network(const NetworkQuery& asked) {
  NetworkQuery query = asked;
  query.env = with_files(asked);
  NetworkReport report;
  auto [efa, infiniband] = fabric_devices(query.root / "sys");
  std::string chosen = variable(query.env, "NCCL_NET");
  std::string plugin = chosen == "Socket" || chosen == "IB" ? "" : find_plugin(query);
  std::string text = concat("NCCL ", query.nccl_version, "; between nodes: ");
  bool amazon = !plugin.empty() && is_amazon_plugin(plugin);
  if (!plugin.empty())
    text += concat(!efa.empty() && amazon ? "AWS Libfabric, plugin " : "plugin ", plugin);
  else if (chosen != "Socket" && !infiniband.empty())
    text += "InfiniBand or RoCE";
  else
    text += "Socket (TCP)";
  if (!efa.empty()) text += ", " + count_devices(efa, "EFA");
  if (!infiniband.empty()) text += ", " + count_devices(infiniband, "InfiniBand");
  report.lines.push_back(text);
  if (std::string variables = effective_variables(query.env); !variables.empty())
    report.lines.push_back("set for NCCL: " + variables);
  if (!efa.empty() && !amazon && query.num_nodes > 1)
    report.warnings.push_back(socket_warning(query, plugin, count_devices(efa, "EFA")));
  return report;
}

std::string find_library(const std::string& name) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return "";
  link_map* map = nullptr;
  std::string path = name;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name) path = map->l_name;
  ::dlclose(library);
  return path;
}

}  // namespace neox
