#pragma once
#include <filesystem>
#include <string>

#include "launch/environment.h"

namespace neox {

// The file of trusted certificates: the one that SSL_CERT_FILE or CURL_CA_BUNDLE names, or where
// this machine's distribution has it below `root`; "" where that is unknown. Libraries that speak
// TLS only know the place of the distribution that they were built on.
std::string certificates(const Environment& env, const std::filesystem::path& root = "/");

}  // namespace neox
