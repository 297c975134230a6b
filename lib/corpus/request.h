// A request over HTTP by libcurl, set up as all of ours are: redirects are followed, proxies of the
// environment used, a name server that is silent is not waited for.
#pragma once
#include <curl/curl.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace neox {

class Request {
 public:
  Request(const std::string& url, double connect_seconds);
  Request(const Request&) = delete;  // libcurl holds its address
  Request& operator=(const Request&) = delete;

  template <class Value>
  void set(CURLoption option, Value value) {
    CURLcode code = curl_easy_setopt(curl_.get(), option, value);
    check(code == CURLE_OK, "libcurl refuses option ", option, ": ", curl_easy_strerror(code));
  }
  void add_header(const std::string& line);

  CURLcode perform();
  long status() const;  // of the last answer; 0: there was none
  // Header lines of the last answer; "" where there is none such. Names in lower case.
  const std::string& etag() const { return etag_; }  // a strong one
  const std::string& date() const { return date_; }
  const std::string& range() const { return range_; }
  int64_t whole_bytes() const;         // of the file that is asked for; -1: not told
  double retry_after_seconds() const;  // 0: not told
  std::string describe(CURLcode code) const;

 private:
  static size_t header(char* data, size_t, size_t size, void* self);
  void take_header(const std::string& line);

  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers_;
  char error_[CURL_ERROR_SIZE] = {};
  std::string etag_, date_, range_;
};

}  // namespace neox
