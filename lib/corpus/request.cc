#include "corpus/request.h"

#include <cctype>
#include <cstdlib>

#include "base/text.h"
#include "base/version.h"
#include "launch/certificates.h"

namespace neox {
namespace {

CURL* new_handle() {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  check(ready == CURLE_OK, "libcurl does not start");
  CURL* curl = curl_easy_init();
  check(curl != nullptr, "libcurl gives no handle");
  return curl;
}

}  // namespace

Request::Request(const std::string& url, double connect_seconds)
    : curl_(new_handle(), curl_easy_cleanup), headers_(nullptr, curl_slist_free_all) {
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, 10L);
  set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_QUICK_EXIT, 1L);  // does not wait for a name server that is silent
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(1000 * connect_seconds));
  set(CURLOPT_USERAGENT, concat("neox.cpp/", kVersion).c_str());
  set(CURLOPT_ERRORBUFFER, error_);
  static const std::string kCertificates = certificates(environment());
  if (!kCertificates.empty()) set(CURLOPT_CAINFO, kCertificates.c_str());
  set(CURLOPT_HEADERFUNCTION, &Request::header);
  set(CURLOPT_HEADERDATA, this);
}

void Request::add_header(const std::string& line) {
  curl_slist* longer = curl_slist_append(headers_.get(), line.c_str());
  check(longer != nullptr, "libcurl takes no header");
  static_cast<void>(headers_.release());
  headers_.reset(longer);
  set(CURLOPT_HTTPHEADER, headers_.get());
}

CURLcode Request::perform() { return curl_easy_perform(curl_.get()); }

long Request::status() const {
  long status = 0;
  curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
  return status;
}

int64_t Request::whole_bytes() const {
  if (status() == 206) {  // "bytes 10-19/50", where the whole may be "*"
    size_t slash = range_.find('/');
    bool told = slash != std::string::npos && std::isdigit(range_.c_str()[slash + 1]);
    return told ? std::atoll(range_.c_str() + slash + 1) : -1;
  }
  curl_off_t bytes = -1;
  curl_easy_getinfo(curl_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &bytes);
  return bytes;
}

double Request::retry_after_seconds() const {
  curl_off_t seconds = 0;
  curl_easy_getinfo(curl_.get(), CURLINFO_RETRY_AFTER, &seconds);
  return static_cast<double>(seconds);
}

std::string Request::describe(CURLcode code) const {
  if (code == CURLE_HTTP_RETURNED_ERROR) return concat("HTTP status ", status());
  return error_[0] ? std::string(error_) : std::string(curl_easy_strerror(code));
}

size_t Request::header(char* data, size_t, size_t size, void* self) {
  static_cast<Request*>(self)->take_header(std::string(data, size));
  return size;
}

void Request::take_header(const std::string& line) {
  if (line.starts_with("HTTP/")) etag_ = date_ = range_ = "";  // of an answer that led elsewhere
  size_t colon = line.find(':');
  if (colon == std::string::npos) return;
  std::string name = lower_case(line.substr(0, colon)), value(trim(line.substr(colon + 1)));
  if (name == "etag" && !value.starts_with("W/")) etag_ = value;  // a weak one asks for no ranges
  if (name == "last-modified") date_ = value;
  if (name == "content-range") range_ = value;
}

}  // namespace neox
