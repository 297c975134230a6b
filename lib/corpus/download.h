// Files from the network, several at once. A transfer that was cut goes on where it ended, provided
// that the server still has the same file; a file has its name only when it is whole and its
// checksum is right.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace neox {

struct RemoteFile {
  std::vector<std::string> urls;  // tried in this order
  int64_t bytes = -1;             // -1: not known
  std::string sha256 = {};        // "": not known
};

struct DownloadFile {
  RemoteFile remote;
  fs::path to;
};

struct DownloadOptions {
  enum class Network { kUse, kRefuse } network = Network::kUse;
  enum class Existing { kKeep, kReplace } existing = Existing::kKeep;
  size_t files_at_once = 4;
  std::string advice = {};                  // what to do instead, at the end of messages
  double connect_seconds = 8;               // for all addresses of a file, where none answers
  double stall_seconds = 30;                // without a byte
  int retries = 5;                          // without a byte in between
  double first_pause_seconds = 1;           // between tries; it doubles each time
  const std::atomic<bool>* stop = nullptr;  // ends the transfers where it becomes true
};

// Is a file of that size there? Opens no socket.
bool is_downloaded(const RemoteFile& file, const fs::path& to);

// Brings the files that are not there to their places, with <to>.part and <to>.part.from beside
// each until it is whole. One progress bar, called `label`, counts the bytes of all. Opens no
// socket where all are there. The first file that cannot be had ends all, and throws Error (74)
// with each of its addresses and what that answered.
void download(std::span<const DownloadFile> files, const std::string& label,
              const DownloadOptions& options);

// Throws Error (74) unless size and checksum are those that are known.
void check_content(const RemoteFile& file, const fs::path& path);

// Bytes that an interrupted download has left for the next; 0: none.
int64_t size_of_part(const std::filesystem::path& to);

}  // namespace neox
