// One client of a web server: a request, its answer, the next one.
#pragma once
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>

#include "serve/http.h"

namespace neox {

// In which what is left of an answer goes, behind its end or the server's.
constexpr std::chrono::seconds kHttpLinger{2};

// What the connections of a server have in common.
struct HttpShared {
  HttpOptions options;
  HttpServer::Handler handler;
  std::atomic<int> connections = 0;
  std::atomic<int> writing = 0;  // connections with something to write
};

// Reads requests and answers them, in the socket's executor, until one side hangs up. What is
// shared must outlive the executor's context.
void converse(boost::asio::ip::tcp::socket socket, HttpShared& shared);

}  // namespace neox
