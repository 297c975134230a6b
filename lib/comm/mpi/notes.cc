// The side channel of a session: questions, answers and bad news between ranks that wait.
#include <algorithm>
#include <cstring>
#include <thread>

#include "comm/mpi/check_mpi.h"
#include "comm/mpi/session.h"

namespace neox::mpi {

void Session::post_inbox() {
  check_mpi(MPI_Irecv(&inbox_, sizeof inbox_, MPI_BYTE, MPI_ANY_SOURCE, 0, notes_, &inbox_request_),
            "MPI: receive of a note");
}

void Session::serve() {
  while (true) {
    std::unique_lock lock(mutex_);
    int done = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&inbox_request_, &done, &status), "MPI: receive of a note");
    if (!done) return;
    Note note = inbox_;
    post_inbox();
    if (note.kind == Note::kAnswer) answers_[{note.tag, status.MPI_SOURCE}] = note;
    lock.unlock();
    if (note.kind == Note::kAsk) answer(status.MPI_SOURCE, note.tag);
    if (note.kind == Note::kAbort) abort(note.text.data());
  }
}

void Session::answer(int peer, int tag) {
  int64_t calls = 0;
  std::string text;
  {
    std::lock_guard lock(mutex_);
    for (const Group* group : groups_)
      if (group->tag == tag) calls = group->calls;
    for (const Call* call : waiting_) text += concat(text.empty() ? "" : " and ", *call);
  }
  post_note(peer, Note::kAnswer, tag, calls, text);
}

void Session::post_note(int peer, Note::Kind kind, int tag, int64_t calls,
                        const std::string& text) {
  auto note = std::make_unique<Note>(Note{kind, tag, calls, {}});
  std::memcpy(note->text.data(), text.data(), std::min(text.size(), note->text.size() - 1));
  notes_sent();
  std::lock_guard lock(mutex_);
  MPI_Request request;
  check_mpi(MPI_Isend(note.get(), sizeof(Note), MPI_BYTE, peer, 0, notes_, &request),
            "MPI: send of a note");
  outbox_.push_back({std::move(note), request});
}

// Frees the notes that are gone; true where all are.
bool Session::notes_sent() {
  std::lock_guard lock(mutex_);
  std::erase_if(outbox_, [](Sent& sent) {
    int done = 0;
    MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  return outbox_.empty();
}

// What one rank found out, so that those that wait do not find out each by itself, or find that
// one. Ranks that are gone do not take their note.
void Session::tell_all(const std::string& reason) {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) post_note(peer, Note::kAbort, 0, 0, reason);
  for (int tries = 0; tries < 200 && !notes_sent(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace neox::mpi
