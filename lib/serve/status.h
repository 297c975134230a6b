// How a Service answers what it does not do.
#pragma once
#include <string>

#include "serve/order.h"

namespace neox {

constexpr int kOk = 200, kBad = 400, kNoKey = 401, kNotFound = 404, kNotAllowed = 405,
              kBroken = 500, kClosing = 503;
constexpr const char* kJson = "application/json";
constexpr const char* kStopping = "the server is stopping";

inline void refuse(HttpReply& reply, ApiForm form, int status, const std::string& message) {
  reply.whole(status, kJson, error_body(form, status, message));
}

}  // namespace neox
