// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/calls/shared_events.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/graphs/in_context.h"
#include "guest-agent/shim/state/api.h"
#include "mediator/base/fd.h"
#include "mediator/base/process/without_signals.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

constexpr uint64_t kSlots = 256;
constexpr size_t kPage = 4096;
using Numbers = std::array<uint64_t, kSlots>;  // of records, one at most for each slot
// Pauses of who waits for an event of another program: from the least, doubled each time.
constexpr long kLeastPauseNs = 20'000, kMostPauseNs = 1'000'000;

// Who made a record, in a word: record number, process and when that began, each cut to its lowest
// bits.
struct Recorder {
  static constexpr unsigned kNumberBits = 16, kPidBits = 22;
  uint64_t pid = 0, began = 0;

  uint64_t word(uint64_t number) const {
    return (number & low(kNumberBits)) | pid << kNumberBits | began << (kNumberBits + kPidBits);
  }
  static bool is_of(uint64_t word, uint64_t number) {
    return word != 0 && ((word ^ number) & low(kNumberBits)) == 0;
  }
  static Recorder from(uint64_t word) {
    return {word >> kNumberBits & low(kPidBits), word >> (kNumberBits + kPidBits)};
  }
  // The process that has this number now. Nothing: none has, or it is not known.
  static std::optional<Recorder> of(uint64_t pid, bool* gone = nullptr) {
    char text[1024] = {};
    const sluice::Fd stat(
        ::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
    if (gone != nullptr) *gone = !stat && errno == ENOENT;
    if (!stat || ::read(stat.get(), text, sizeof text - 1) <= 0) return std::nullopt;
    // Behind the name: state, and as the 20th word the time of its start.
    const char* at = std::strrchr(text, ')');
    if (at == nullptr) return std::nullopt;
    if (gone != nullptr) *gone = at[1] == ' ' && (at[2] == 'Z' || at[2] == 'X');
    for (int words = 0; at != nullptr && words < 20; ++words) at = std::strchr(at + 1, ' ');
    if (at == nullptr) return std::nullopt;
    constexpr unsigned kBeganBits = 64 - kNumberBits - kPidBits;
    return Recorder{pid & low(kPidBits), std::strtoull(at, nullptr, 10) & low(kBeganBits)};
  }
  bool has_ended() const {
    bool gone = false;
    const auto now = of(pid, &gone);
    return gone || (now && now->began != began);
  }
  bool operator==(const Recorder&) const = default;

 private:
  static constexpr uint64_t low(unsigned bits) { return (uint64_t{1} << bits) - 1; }
};

const Recorder& this_process() {
  static const Recorder self = Recorder::of(static_cast<uint64_t>(::getpid())).value_or(Recorder{});
  return self;
}

class SharedEvent : public std::enable_shared_from_this<SharedEvent> {
 public:
  SharedEvent(bool own, uint64_t context) : own_(own), context_(context) {}
  ~SharedEvent() {
    if (page_ != nullptr) ::munmap(page_, kPage);
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
    const uint64_t number = page_->counter.fetch_add(1) + 1;
    page_->recorders[number % kSlots] = this_process().word(number);
    return cuStreamWriteValue64_v2(stream, slot(number), number, CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  CUresult wait(CUstream stream);
  CUresult query() {
    const uint64_t number = page_->counter;
    const CUresult r = passed(number);
    return r == CUDA_ERROR_NOT_READY && is_lost(number) ? lost(number) : r;
  }
  CUresult synchronize() {
    const uint64_t number = page_->counter;
    for (long pause = kLeastPauseNs;; pause = std::min(2 * pause, kMostPauseNs)) {
      const CUresult r = passed(number);
      if (r != CUDA_ERROR_NOT_READY) return r;
      if (pause == kMostPauseNs && is_lost(number)) return lost(number);
      const timespec rest{0, pause};
      ::nanosleep(&rest, nullptr);
    }
  }

  // Whether the record of this number has ended; in a stream that waits for no other.
  CUresult passed(uint64_t number);
  // Whether the process that made it has ended.
  bool is_lost(uint64_t number) const {
    const auto by = recorder(number);
    return by && by->has_ended();
  }
  // Of these, the records that will never end: 0 in place of the others.
  Numbers lost_of(const Numbers& numbers);
  // Streams that wait for these continue.
  void unblock_waits(const Numbers& numbers);
  // Those that have not ended; 0 in place of the others.
  Numbers not_passed(const Numbers& numbers);
  uint64_t context() const { return context_; }

 private:
  // Nobody knows any more, or not yet: nothing.
  std::optional<Recorder> recorder(uint64_t number) const {
    const uint64_t word = page_->recorders[number % kSlots];
    if (!Recorder::is_of(word, number)) return std::nullopt;
    return Recorder::from(word);
  }
  // It may have ended before its process did.
  CUresult lost(uint64_t number) {
    const CUresult r = passed(number);
    return r == CUDA_ERROR_NOT_READY ? CUDA_ERROR_INVALID_HANDLE : r;
  }
  CUdeviceptr slot(uint64_t number) const { return memory_ + number % kSlots * sizeof(uint64_t); }
  uint64_t file_number() const {
    struct stat s {};
    return ::fstat(file_.get(), &s) == 0 && s.st_size == kPage ? s.st_ino : 0;
  }
  CUresult map() {
    void* const p = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (p == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
    page_ = static_cast<Page*>(p);
    return CUDA_SUCCESS;
  }
  // With mutex_ held, in the context: copies the word of the record, to or from there.
  template <class Copy>
  CUresult in_own_stream(Copy copy) {
    CUresult r = CUDA_SUCCESS;
    if (stream_ == nullptr) r = cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    if (r == CUDA_SUCCESS) r = copy(stream_);
    return r == CUDA_SUCCESS ? cuStreamSynchronize(stream_) : r;
  }

  struct Page {
    std::atomic<uint64_t> counter;
    std::atomic<uint64_t> recorders[kSlots];  // Recorder::word()
  };
  static_assert(sizeof(Page) <= kPage);
  const bool own_;
  const uint64_t context_;
  CUdeviceptr memory_ = 0;
  sluice::Fd file_;
  Page* page_ = nullptr;
  std::mutex mutex_;
  CUstream stream_ = nullptr;  // under mutex_
};

CUresult SharedEvent::passed(uint64_t number) {
  if (number == 0) return CUDA_SUCCESS;
  const graphs::InContext there(context_);
  if (there.status != CUDA_SUCCESS) return there.status;
  std::lock_guard lock(mutex_);
  uint64_t word = 0;
  const CUresult r = in_own_stream([&](CUstream stream) {
    return cuMemcpyDtoHAsync_v2(&word, slot(number), sizeof word, stream);
  });
  if (r != CUDA_SUCCESS) return r;
  return word >= number ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

Numbers SharedEvent::not_passed(const Numbers& numbers) {
  Numbers open{}, words{};
  const graphs::InContext there(context_);
  if (there.status != CUDA_SUCCESS) return open;
  std::lock_guard lock(mutex_);
  const CUresult r = in_own_stream([&](CUstream stream) {
    return cuMemcpyDtoHAsync_v2(words.data(), memory_, sizeof words, stream);
  });
  for (size_t i = 0; r == CUDA_SUCCESS && i < kSlots; ++i)
    if (words[i] < numbers[i]) open[i] = numbers[i];
  return open;
}

Numbers SharedEvent::lost_of(const Numbers& numbers) {
  Numbers lost{};
  for (size_t i = 0; i < kSlots; ++i)
    if (numbers[i] != 0 && is_lost(numbers[i]) && passed(numbers[i]) == CUDA_ERROR_NOT_READY)
      lost[i] = numbers[i];
  return lost;
}

void SharedEvent::unblock_waits(const Numbers& numbers) {
  const graphs::InContext there(context_);
  if (there.status != CUDA_SUCCESS) return;
  std::lock_guard lock(mutex_);
  for (const uint64_t number : numbers)
    if (number != 0)
      (void)in_own_stream([&](CUstream stream) {
        return cuMemcpyHtoDAsync_v2(slot(number), &number, sizeof number, stream);
      });
}

// Records of other processes that streams of this one wait for. A thread of its own, from the first
// of them on.
class LostRecords {
 public:
  void add(const std::shared_ptr<SharedEvent>& event, uint64_t number) {
    std::lock_guard lock(mutex_);
    uint64_t& newest = waits_[event][number % kSlots];
    newest = std::max(newest, number);
    more_.notify_one();
    if (std::exchange(started_, true)) return;
    const sluice::WithoutSignals threads;
    std::thread([this] { run(); }).detach();
  }

 private:
  static constexpr std::chrono::milliseconds kLook{100};

  [[noreturn]] void run() {
    WorkerLink::leave_deferred();
    for (;;) {
      std::map<std::shared_ptr<SharedEvent>, Numbers> waits;
      {
        std::unique_lock lock(mutex_);
        more_.wait(lock, [this] { return !waits_.empty(); });
      }
      std::this_thread::sleep_for(kLook);
      {
        std::lock_guard lock(mutex_);
        waits = waits_;
      }
      while (!waits.empty()) {
        check(waits.begin()->first, waits.begin()->second);
        auto last = waits.extract(waits.begin());
        const graphs::InContext there(last.key()->context());
        last.key().reset();  // it may end here
      }
    }
  }
  void check(const std::shared_ptr<SharedEvent>& event, const Numbers& numbers) {
    if (const Numbers lost = event->lost_of(numbers); lost != Numbers{}) {
      // First, or a call that waits for the stream finds nothing wrong.
      CUresult why = CUDA_SUCCESS;
      if (WorkerLink* link = WorkerLink::current(&why); link != nullptr)
        link->defer(CUDA_ERROR_INVALID_HANDLE);
      event->unblock_waits(lost);
    }
    const Numbers open = event->not_passed(numbers);
    std::lock_guard lock(mutex_);
    const auto wait = waits_.find(event);
    bool any = false;
    for (size_t i = 0; i < kSlots; ++i) {
      uint64_t& number = wait->second[i];
      if (number == numbers[i]) number = open[i];
      any |= number != 0;
    }
    if (!any) waits_.erase(wait);
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::map<std::shared_ptr<SharedEvent>, Numbers> waits_;
  bool started_ = false;
};

LostRecords& lost_records() {
  static auto* records = new LostRecords;
  return *records;
}

CUresult SharedEvent::wait(CUstream stream) {
  if (const CUresult r = graphs::refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
  const uint64_t number = page_->counter;
  if (number == 0) return CUDA_SUCCESS;
  const CUresult r = cuStreamWaitValue64_v2(stream, slot(number), number, CU_STREAM_WAIT_VALUE_GEQ);
  const auto by = recorder(number);
  if (r == CUDA_SUCCESS && by && !(*by == this_process()))
    lost_records().add(shared_from_this(), number);
  return r;
}

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
