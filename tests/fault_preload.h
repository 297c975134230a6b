// Makes file operations below a directory fail, or kill the process. Link a test with the
// fault_preload library, or LD_PRELOAD it and set NEOX_FAULT_DIR, NEOX_FAULT_ERRNO and one of
// NEOX_FAULT_BYTES and NEOX_FAULT_CALLS; or NEOX_FAULT_DELAY: they take so many milliseconds more.
// NEOX_FAULT_LOCKS: no file can be locked, for that errno.
#pragma once
#include <cstdint>

inline constexpr int kFaultKill = -1;  // instead of an errno: SIGKILL to the own process

// From now on operations below `dir` (absolute; "" for none) fail with `error`, once `bytes` bytes
// were written or `calls` calls were made (-1: never for that reason). A write that crosses the
// limit is cut short first, as on a full disk.
extern "C" void neox_fault(const char* dir, int error, int64_t bytes, int64_t calls);
// From now on names cannot be exchanged, as on NFS (error 0: they can).
extern "C" void neox_fault_exchange(int error);
// From now on a file cannot be opened, or not written, past the page cache (O_DIRECT), as on file
// systems that have no such way (0: it can). Counts what was written so since.
inline constexpr int kFaultDirectOpen = 1, kFaultDirectWrite = 2;
extern "C" void neox_fault_direct(int refused);
extern "C" int64_t neox_fault_direct_writes();
// From now on the file of this path cannot be opened to be read ("": none).
extern "C" void neox_fault_open(const char* path, int error);
// From now on nothing can be read of it at offsets (pread).
extern "C" void neox_fault_read(const char* path, int error);
// From now on only so many more threads can be started (-1: any number).
extern "C" void neox_fault_threads(int64_t more);
// Calls seen since.
extern "C" int64_t neox_fault_calls();
// From now on renames below `dir` ("": none) are watched. What a power cut could take since: names
// given while something written below it was not flushed, and directories whose last rename is not.
extern "C" void neox_fault_watch(const char* dir);
extern "C" int64_t neox_fault_unflushed();
