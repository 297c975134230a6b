// The bytes of answers over HTTP.
#pragma once
#include <boost/beast/http.hpp>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/version.h"

namespace neox {

// Without the empty line behind it. version: as Beast has them, 11 for HTTP/1.1.
inline std::string head_of(int status, const std::string& type, bool keeps, unsigned version) {
  namespace http = boost::beast::http;
  http::response<http::empty_body> head(static_cast<http::status>(status), version);
  head.set(http::field::server, concat("neox.cpp/", kVersion));
  head.set(http::field::content_type, type);
  head.set(http::field::cache_control, "no-store");
  head.keep_alive(keeps);
  std::ostringstream text;
  text << head.base();
  std::string all = text.str();
  all.resize(all.size() - 2);  // the empty line
  return all;
}

inline std::string whole_answer(const std::string& head, const std::string& body) {
  return concat(head, "Content-Length: ", body.size(), "\r\n\r\n", body);
}

// In the forms of all that ask: who could not be read has not said which.
inline std::string refusal(int status, const std::string& why, unsigned version) {
  return whole_answer(
      head_of(status, "application/json", false, version),
      concat(R"({"message": ")", why, R"(", "error": {"message": ")", why,
             R"(", "type": "invalid_request_error", "param": null, "code": null}})"));
}

// Of an answer whose length its head does not say (RFC 9112, 7.1).
inline std::string chunk_of(const std::string& text) {
  std::ostringstream size;
  size << std::hex << text.size();
  return size.str() + "\r\n" + text + "\r\n";
}

}  // namespace neox
