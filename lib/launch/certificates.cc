#include "launch/certificates.h"

namespace neox {

std::string certificates(const Environment& env, const std::filesystem::path& root) {
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"})
    if (std::string named = variable(env, name); !named.empty()) return named;
  std::error_code error;
  for (const char* place : {"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt",
                            "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem"})
    if (std::filesystem::exists(root / place, error)) return root / place;
  return "";
}

}  // namespace neox
