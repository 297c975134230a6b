// LibTorch takes 0.3 s to start. A program that needs it is two executables of one source:
// bin/NAME, compiled with NEOX_FRONT and linked without LibTorch, answers what needs none of it
// (--help, a wrong option, a dry run), and becomes libexec/NAME for the rest.
#pragma once

namespace neox {

#ifdef NEOX_FRONT
inline constexpr bool kFront = true;
#else
inline constexpr bool kFront = false;
#endif

// This process becomes ../libexec/NAME with the same arguments. Throws (74) where that cannot be
// started.
[[noreturn]] void become_whole_program();

}  // namespace neox
