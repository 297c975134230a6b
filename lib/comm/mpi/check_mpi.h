// MPI's error codes as exceptions that say what was called.
#pragma once
#include <mpi.h>

#include <string>

#include "base/error.h"

namespace neox::mpi {

inline std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

template <class... Parts>
void check_mpi(int code, const Parts&... parts) {
  if (code != MPI_SUCCESS) fail(Exit::kInternal, concat(parts...), ": ", error_text(code));
}

}  // namespace neox::mpi
