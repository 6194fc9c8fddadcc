// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/calls/shared_events.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/graphs/in_context.h"
#include "guest-agent/shim/state/api.h"
#include "mediator/base/fd.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

constexpr uint64_t kSlots = 256;
constexpr size_t kPage = 4096;
// Pauses of who waits for an event of another program: from the least, doubled each time.
constexpr long kLeastPauseNs = 20'000, kMostPauseNs = 1'000'000;

class SharedEvent {
 public:
  SharedEvent(bool own, uint64_t context) : own_(own), context_(context) {}
  ~SharedEvent() {
    if (counter_ != nullptr) ::munmap(counter_, kPage);
    if (stream_ != nullptr) (void)cuStreamDestroy_v2(stream_);
    if (memory_ != 0) (void)(own_ ? cuMemFree_v2(memory_) : cuIpcCloseMemHandle(memory_));
  }
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  // Its memory and its page, and what others find them by. Its context is current.
  CUresult make(CUipcMemHandle* memory) {
    CUresult r = cuMemAlloc_v2(&memory_, kSlots * sizeof(uint64_t));
    if (r == CUDA_SUCCESS) r = cuMemsetD8_v2(memory_, 0, kSlots * sizeof(uint64_t));
    if (r == CUDA_SUCCESS) r = cuCtxSynchronize();
    if (r == CUDA_SUCCESS) r = cuIpcGetMemHandle(memory, memory_);
    if (r != CUDA_SUCCESS) return r;
    file_.reset(::memfd_create("cuda-event", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file_ || ::ftruncate(file_.get(), kPage) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    (void)::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK);
    return map();
  }
  CUresult open(const CUipcMemHandle& memory, const sluice_ipc_handle& handle) {
    const std::string path =
        "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.descriptor);
    file_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!file_ || file_number() != handle.file ||
        (::fcntl(file_.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0)
      return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult r = map(); r != CUDA_SUCCESS) return r;
    return cuIpcOpenMemHandle_v2(&memory_, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  }
  CUresult handle(CUipcMemHandle* memory) const { return cuIpcGetMemHandle(memory, memory_); }
  void describe(sluice_ipc_handle* handle) const {
    handle->pid = static_cast<uint32_t>(::getpid());
    handle->descriptor = static_cast<uint32_t>(file_.get());
    handle->file = file_number();
  }

  CUresult record(CUstream stream) {
    if (const CUresult r = graphs::refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
    const uint64_t number = counter_->fetch_add(1) + 1;
    return cuStreamWriteValue64_v2(stream, slot(number), number, CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  CUresult wait(CUstream stream) const {
    if (const CUresult r = graphs::refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
    const uint64_t number = counter_->load();
    if (number == 0) return CUDA_SUCCESS;
    return cuStreamWaitValue64_v2(stream, slot(number), number, CU_STREAM_WAIT_VALUE_GEQ);
  }
  CUresult query() { return passed(counter_->load()); }
  CUresult synchronize() {
    const uint64_t number = counter_->load();
    for (long pause = kLeastPauseNs;; pause = std::min(2 * pause, kMostPauseNs)) {
      const CUresult r = passed(number);
      if (r != CUDA_ERROR_NOT_READY) return r;
      const timespec rest{0, pause};
      ::nanosleep(&rest, nullptr);
    }
  }

 private:
  CUdeviceptr slot(uint64_t number) const { return memory_ + number % kSlots * sizeof(uint64_t); }
  uint64_t file_number() const {
    struct stat s {};
    return ::fstat(file_.get(), &s) == 0 && s.st_size == kPage ? s.st_ino : 0;
  }
  CUresult map() {
    void* const p = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (p == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
    counter_ = static_cast<std::atomic<uint64_t>*>(p);
    return CUDA_SUCCESS;
  }
  // Whether the record of this number has ended; in a stream that waits for no other.
  CUresult passed(uint64_t number) {
    if (number == 0) return CUDA_SUCCESS;
    const graphs::InContext there(context_);
    if (there.status != CUDA_SUCCESS) return there.status;
    std::lock_guard lock(mutex_);
    CUresult r = CUDA_SUCCESS;
    if (stream_ == nullptr) r = cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    uint64_t word = 0;
    if (r == CUDA_SUCCESS) r = cuMemcpyDtoHAsync_v2(&word, slot(number), sizeof word, stream_);
    if (r == CUDA_SUCCESS) r = cuStreamSynchronize(stream_);
    if (r != CUDA_SUCCESS) return r;
    return word >= number ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }

  const bool own_;
  const uint64_t context_;
  CUdeviceptr memory_ = 0;
  sluice::Fd file_;
  std::atomic<uint64_t>* counter_ = nullptr;
  std::mutex mutex_;
  CUstream stream_ = nullptr;  // under mutex_
};

std::mutex events_mutex;
// Under events_mutex; not ended with the process, when no call can be made any more.
auto& events = *new std::map<CUevent, std::shared_ptr<SharedEvent>>;
std::atomic<size_t> event_count{0};

std::shared_ptr<SharedEvent> find(CUevent event) {
  if (event_count.load(std::memory_order_relaxed) == 0) return nullptr;
  std::lock_guard lock(events_mutex);
  const auto it = events.find(event);
  return it == events.end() ? nullptr : it->second;
}

void add(CUevent event, std::shared_ptr<SharedEvent> shared) {
  std::lock_guard lock(events_mutex);
  events[event] = std::move(shared);
  event_count = events.size();
}

// What was recorded before the event became one of several programs is its first record.
CUresult take_over(CUevent event, SharedEvent& shared) {
  CUstream stream = nullptr;
  CUresult r = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (r != CUDA_SUCCESS) return r;
  r = cuStreamWaitEvent(stream, event, 0);
  if (r == CUDA_SUCCESS) r = shared.record(stream);
  (void)cuStreamDestroy_v2(stream);
  return r;
}

}  // namespace

namespace sluice::guest {

std::optional<CUresult> record_shared(CUevent event, CUstream stream) {
  const auto shared = find(event);
  return shared ? std::optional(shared->record(stream)) : std::nullopt;
}
std::optional<CUresult> wait_for_shared(CUstream stream, CUevent event) {
  const auto shared = find(event);
  return shared ? std::optional(shared->wait(stream)) : std::nullopt;
}
std::optional<CUresult> query_shared(CUevent event) {
  const auto shared = find(event);
  return shared ? std::optional(shared->query()) : std::nullopt;
}
std::optional<CUresult> synchronize_shared(CUevent event) {
  const auto shared = find(event);
  return shared ? std::optional(shared->synchronize()) : std::nullopt;
}
void forget_shared(CUevent event) {
  std::shared_ptr<SharedEvent> gone;  // ends outside of the lock: it makes calls
  if (event_count.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(events_mutex);
  if (const auto it = events.find(event); it != events.end()) {
    gone = std::move(it->second);
    events.erase(it);
  }
  event_count = events.size();
}

}  // namespace sluice::guest

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  const Entered e = enter_context();
  if (!e) return e.status;
  const EventInfo* info = state().events.find(wire(event));
  if (info == nullptr || (info->flags & CU_EVENT_INTERPROCESS) == 0)
    return CUDA_ERROR_INVALID_HANDLE;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const graphs::InContext there(info->context);
  if (there.status != CUDA_SUCCESS) return there.status;
  static std::mutex one_at_a_time;
  std::lock_guard lock(one_at_a_time);
  auto shared = find(event);
  const bool is_new = shared == nullptr;
  CUipcMemHandle memory{};
  CUresult r = CUDA_SUCCESS;
  if (is_new) {
    shared = std::make_shared<SharedEvent>(true, info->context);
    r = shared->make(&memory);
    if (r == CUDA_SUCCESS) r = take_over(event, *shared);
    if (r == CUDA_SUCCESS) add(event, shared);
  } else {
    r = shared->handle(&memory);
  }
  if (r != CUDA_SUCCESS) return r;
  sluice_ipc_handle inside;
  std::memcpy(&inside, &memory, sizeof inside);
  shared->describe(&inside);
  std::memcpy(handle, &inside, sizeof inside);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  sluice_ipc_handle inside;
  std::memcpy(&inside, &handle, sizeof inside);
  if (inside.magic != SLUICE_IPC_MAGIC || inside.pid == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (inside.pid == static_cast<uint32_t>(::getpid())) return CUDA_ERROR_INVALID_CONTEXT;
  CUipcMemHandle memory;
  std::memcpy(&memory, &inside, sizeof memory);
  auto shared = std::make_shared<SharedEvent>(false, e.context);
  CUresult r = shared->open(memory, inside);
  if (r != CUDA_SUCCESS) return r;
  r = cuEventCreate(event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  if (r == CUDA_SUCCESS) add(*event, std::move(shared));
  return r;
}
