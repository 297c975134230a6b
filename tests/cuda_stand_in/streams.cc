// Streams, events, captures and graphs.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "machine.h"

namespace cuda_stand_in {
namespace {

struct Node {
  std::function<void()> work;
  std::string what;
  bool has_successor = false;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
};

struct Stream;
thread_local int thread_mark = 0;  // its address is the thread's name

struct Capture {
  unsigned long long id;
  cudaStreamCaptureMode mode;
  Stream* origin;
  const int* thread;
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  bool ended_by_error = false, is_over = false;
};

struct Stream {
  int id = 0;
  uint64_t given = 0, done = 0;
  std::deque<std::function<void()>> waiting = {};
  Capture* capture = nullptr;
  std::vector<Node*> last = {};  // what the next node of the capture follows
};

struct Event {
  Stream* stream = nullptr;  // where it was recorded
  uint64_t at = 0;           // so many pieces of the stream's work come before it
  Capture* capture = nullptr;
  std::vector<Node*> nodes = {};
  int asked = 0;
};

struct Streams {
  Stream legacy;
  std::set<Stream*> all = {&legacy};
  std::set<Capture*> captures;
  unsigned long long num_captures = 0;
  int num_streams = 0;
};

Streams& streams() {
  static auto* all = new Streams;  // other libraries' last calls come behind main
  return *all;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

Stream* stream_of(cudaStream_t s) {
  bool legacy = s == nullptr || s == cudaStreamLegacy || s == cudaStreamPerThread;
  return legacy ? &streams().legacy : reinterpret_cast<Stream*>(s);
}

void work_up_to(Stream* s, uint64_t end) {
  while (s->done < end && !s->waiting.empty()) {
    auto work = std::move(s->waiting.front());
    s->waiting.pop_front();
    ++s->done;
    if (work) work();
  }
}

void add_node(Stream* s, const std::string& what, std::function<void()> work) {
  for (Node* before : s->last) before->has_successor = true;
  auto& nodes = s->capture->graph->nodes;
  nodes.push_back(std::make_unique<Node>(std::move(work), what));
  s->last = {nodes.back().get()};
  note(concat("capture ", s->capture->id, ", stream ", s->id, ": ", what));
}

cudaError_t refuse_captured(Capture* capture, cudaError_t error, const std::string& what) {
  capture->ended_by_error = true;
  return refuse(error, what);
}

// A stream that waits for an event of a capture takes part in it.
cudaError_t join_capture(Stream* s, const Event& event) {
  if (event.capture->is_over)
    return refuse(cudaErrorCapturedEvent, "a wait for an event of a capture that has ended");
  if (s == &streams().legacy)
    return refuse_captured(event.capture, cudaErrorStreamCaptureImplicit,
                           "the legacy stream waits for an event of a capture");
  if (s->capture && s->capture != event.capture)
    return refuse_captured(s->capture, cudaErrorStreamCaptureMerge,
                           "a stream of one capture waits for an event of another");
  if (!s->capture) s->last.clear();
  s->capture = event.capture;
  for (Node* node : event.nodes)
    if (std::ranges::find(s->last, node) == s->last.end()) s->last.push_back(node);
  return cudaSuccess;
}

// The work of some stream that the origin does not wait for, or null.
const Node* unjoined(const Capture& capture) {
  const std::vector<Node*>& last = capture.origin->last;
  for (const auto& node : capture.graph->nodes)
    if (!node->has_successor && std::ranges::find(last, node.get()) == last.end())
      return node.get();
  return nullptr;
}

bool counts(const Capture& capture) {
  bool other = capture.thread != &thread_mark;
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.mode == cudaStreamCaptureModeThreadLocal && other) return false;
  return !(thread_mode == cudaStreamCaptureModeThreadLocal && other);
}

}  // namespace

void enqueue(cudaStream_t stream, const std::string& what, std::function<void()> work) {
  Stream* s = stream_of(stream);
  if (s->capture) return add_node(s, what, std::move(work));
  note(concat("stream ", s->id, ": ", what));
  ++s->given;
  s->waiting.push_back(std::move(work));
  constexpr size_t kMost = 4096;
  if (s->waiting.size() > kMost) work_up_to(s, s->done + kMost / 2);
}

bool is_captured(cudaStream_t stream) { return stream_of(stream)->capture; }
void wait_for(cudaStream_t stream) { work_up_to(stream_of(stream), stream_of(stream)->given); }
void wait_for_all() {
  for (Stream* s : streams().all) work_up_to(s, s->given);
}

cudaError_t check_no_capture(const char* call) {
  for (Capture* capture : streams().captures)
    if (counts(*capture))
      return refuse_captured(capture, cudaErrorStreamCaptureUnsupported,
                             concat(call, " beside a capture"));
  return cudaSuccess;
}

}  // namespace cuda_stand_in

using namespace cuda_stand_in;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  use_context("cudaStreamCreateWithPriority");
  auto guard = lock();
  auto* s = new Stream{.id = ++streams().num_streams};
  streams().all.insert(s);
  *stream = reinterpret_cast<cudaStream_t>(s);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  auto guard = lock();
  wait_for(stream);
  streams().all.erase(stream_of(stream));
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  use_context("cudaStreamSynchronize");
  auto guard = lock();
  Stream* s = stream_of(stream);
  if (s->capture)
    return refuse_captured(s->capture, cudaErrorStreamCaptureUnsupported,
                           "cudaStreamSynchronize of a stream that is captured");
  note(concat("wait for stream ", s->id));
  wait_for(stream);
  return cudaSuccess;
}

// Something is always left for the first who asks.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  use_context("cudaStreamQuery");
  auto guard = lock();
  Stream* s = stream_of(stream);
  if (s->capture)
    return refuse_captured(s->capture, cudaErrorStreamCaptureUnsupported,
                           "cudaStreamQuery of a stream that is captured");
  if (s->waiting.empty()) return cudaSuccess;
  wait_for(stream);
  return cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  if (auto error = failure()) return error;
  auto guard = lock();
  if (auto error = check_no_capture("cudaDeviceSynchronize")) return error;
  note("wait for the device");
  wait_for_all();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
  use_context("cudaStreamWaitEvent");
  auto guard = lock();
  Stream* s = stream_of(stream);
  auto* event = reinterpret_cast<Event*>(handle);
  if (event->capture) return join_capture(s, *event);
  if (!event->stream) return cudaSuccess;
  if (s->capture)
    return refuse_captured(s->capture, cudaErrorStreamCaptureIsolation,
                           "a stream that is captured waits for an event outside of the capture");
  Stream* other = event->stream;
  enqueue(stream, concat("waits for stream ", other->id),
          [other, at = event->at] { work_up_to(other, at); });
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void* data,
                                  unsigned) {
  auto guard = lock();
  enqueue(stream, "callback", [=] { call(stream, cudaSuccess, data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  use_context("cudaEventCreateWithFlags");
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  use_context("cudaEventDestroy");
  auto guard = lock();
  delete reinterpret_cast<Event*>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned) {
  use_context("cudaEventRecordWithFlags");
  if (auto error = failure()) return error;
  auto guard = lock();
  Stream* s = stream_of(stream);
  auto* event = reinterpret_cast<Event*>(handle);
  if (s->capture) {
    *event = {.capture = s->capture, .nodes = s->last};
  } else {
    enqueue(stream, "event");
    *event = {.stream = s, .at = s->given};
  }
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

// What was recorded is not ready for the first two who ask.
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  use_context("cudaEventQuery");
  if (auto error = failure()) return error;
  auto guard = lock();
  auto* event = reinterpret_cast<Event*>(handle);
  if (event->capture)
    return refuse_captured(event->capture, cudaErrorCapturedEvent,
                           "cudaEventQuery of an event that is captured");
  if (auto error = check_no_capture("cudaEventQuery")) return error;
  if (!event->stream || event->stream->done >= event->at) return cudaSuccess;
  if (++event->asked < 3) return cudaErrorNotReady;
  work_up_to(event->stream, event->at);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  use_context("cudaEventSynchronize");
  if (auto error = failure()) return error;
  auto guard = lock();
  auto* event = reinterpret_cast<Event*>(handle);
  if (event->capture)
    return refuse_captured(event->capture, cudaErrorCapturedEvent,
                           "cudaEventSynchronize of an event that is captured");
  if (!event->stream) return cudaSuccess;
  // As the thread that writes a save does, whenever it comes to it.
  const char* waits = ::gettid() == ::getpid() ? "wait" : "another thread waits";
  note(concat(waits, " for an event of stream ", event->stream->id, ", ",
              event->stream->given - event->at, " pieces of work before its end"));
  work_up_to(event->stream, event->at);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  use_context("cudaEventElapsedTime");
  *milliseconds = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  auto guard = lock();
  Stream* s = stream_of(stream);
  if (s == &streams().legacy || s->capture)
    return refuse(cudaErrorStreamCaptureUnsupported,
                  "capture of the legacy stream, or of one that is captured");
  s->capture = new Capture{++streams().num_captures, mode, s, &thread_mark};
  s->last.clear();
  streams().captures.insert(s->capture);
  note(concat("capture ", s->capture->id, " begins on stream ", s->id));
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  auto guard = lock();
  Stream* s = stream_of(stream);
  *graph = nullptr;
  Capture* capture = s->capture;
  if (!capture || capture->origin != s)
    return refuse(cudaErrorStreamCaptureUnmatched, "the end of a capture that began elsewhere");
  const Node* lost = unjoined(*capture);
  streams().captures.erase(capture);
  capture->is_over = true;
  for (Stream* member : streams().all)
    if (member->capture == capture) member->capture = nullptr, member->last.clear();
  note(concat("capture ", capture->id, " ends with ", capture->graph->nodes.size(), " nodes"));
  if (capture->ended_by_error)
    return refuse(cudaErrorStreamCaptureInvalidated, "the end of a capture with an error in it");
  if (lost)
    return refuse(cudaErrorStreamCaptureUnjoined,
                  concat("the end of a capture that does not wait for ", lost->what));
  *graph = reinterpret_cast<cudaGraph_t>(capture->graph.release());
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  auto guard = lock();
  const Capture* capture = stream_of(stream)->capture;
  *status = !capture                  ? cudaStreamCaptureStatusNone
            : capture->ended_by_error ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* num_nodes) {
  auto guard = lock();
  Stream* s = stream_of(stream);
  if (id) *id = s->capture ? s->capture->id : 0;
  if (graph) *graph = s->capture ? reinterpret_cast<cudaGraph_t>(s->capture->graph.get()) : nullptr;
  if (nodes) *nodes = reinterpret_cast<const cudaGraphNode_t*>(s->last.data());
  if (edges) *edges = nullptr;
  if (num_nodes) *num_nodes = s->last.size();
  return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  use_context("cudaThreadExchangeStreamCaptureMode");
  std::swap(thread_mode, *mode);
  return cudaSuccess;
}

// A graph is its own executable form, and stays.
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  if (auto guard = lock(); !may_make_graph()) return cudaErrorMemoryAllocation;
  *executable = reinterpret_cast<cudaGraphExec_t>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  auto guard = lock();
  if (auto error = failure()) return error;
  count_graph();
  auto* graph = reinterpret_cast<Graph*>(executable);
  enqueue(stream, concat("graph of ", graph->nodes.size(), " nodes"), [graph] {
    for (const auto& node : graph->nodes)
      if (node->work) node->work();
  });
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* num_nodes) {
  *num_nodes = reinterpret_cast<Graph*>(graph)->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

}  // extern "C"
