// Where the store of a job listens, and the plain sockets that lead to it.
#pragma once
#include <chrono>
#include <string>

#include "launch/process_info.h"

namespace neox {

struct Address {
  std::string host;
  int port = 0;
};

// "node1:29500", and back. Throws (64) for what is no address.
std::string to_string(const Address& address);
Address parse_address(const std::string& text);

// The name under which all ranks of the job reach this process.
std::string reachable_name(const ProcessInfo& process);

// A socket that listens on all addresses of this machine, IPv6 and IPv4.
struct Listener {
  int fd = -1;
  int port = 0;
};

// At the first free one of `count` ports; 0: at any. Throws (76) where all are taken.
Listener listen_from(int first_port, int count);

// Throws, with the system's reason, unless somebody accepts a connection there within the limit.
void knock(const Address& address, std::chrono::milliseconds limit);

}  // namespace neox
