// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/shim/fake_worker.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "abi/end_word.h"
#include "abi/preempt.h"
#include "mediator/base/check.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/wait.h"

namespace sluice::testing {
namespace {

constexpr uint64_t kRegionBytes = 64 << 20;
constexpr uint64_t kBulkOffset = 4 << 20;
constexpr uint32_t kSlot = 1;
constexpr uint64_t kEpoch = 77;

// Only what the session does not do itself and the tests need.
struct NoDriver {
#define SLUICE_FAKE(opcode, function, status, ...) \
  decltype(&::function) function = [](auto...) -> CUresult { return CUDA_SUCCESS; };
  SLUICE_GENERIC_CALLS(SLUICE_FAKE)
#undef SLUICE_FAKE
};

}  // namespace

FakeWorker::FakeWorker(Options options) : options_(options), hold_syncs_(options.hold_syncs) {
  char name[] = "/tmp/sluice-shim-test-XXXXXX";
  SLUICE_CHECK(::mkdtemp(name) != nullptr);
  path_ = std::string(name) + "/s";
  auto listener = listen_unix(path_, SOCK_SEQPACKET, 0600);
  auto region = make_memfd("fake-region", kRegionBytes);
  SLUICE_CHECK(listener.ok() && region.ok());
  listener_ = std::move(*listener);
  region_fd_ = std::move(*region);
  bell_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  wake_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  stop_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  void* at = ::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, region_fd_.get(), 0);
  SLUICE_CHECK(at != MAP_FAILED);
  region_ = static_cast<std::byte*>(at);
  auto* header = reinterpret_cast<sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET +
                                                       kSlot * SLUICE_SLOT_STRIDE);
  header->state = SLUICE_SLOT_OPEN;
  header->epoch = kEpoch;
  header->staging_offset = kBulkOffset;
  header->staging_bytes = options_.staging_bytes;
  next_extent_ = kBulkOffset + ((options_.staging_bytes + SLUICE_EXTENT_BYTES - 1) &
                                ~uint64_t{SLUICE_EXTENT_BYTES - 1});
  submit_ = RingConsumer(submit_ring(region_, kSlot), Bell::for_eventfd(wake_.get()));
  complete_ = RingProducer(complete_ring(region_, kSlot), Bell::for_eventfd(wake_.get()));
  thread_ = std::thread([this] { run(); });
}

FakeWorker::~FakeWorker() {
  Bell::for_eventfd(stop_.get()).ring();
  thread_.join();
  ::munmap(region_, kRegionBytes);
  ::unlink(path_.c_str());
  ::rmdir(path_.substr(0, path_.rfind('/')).c_str());
}

void FakeWorker::problem(const std::string& text) {
  std::lock_guard lock(mutex_);
  problems_.push_back(text);
}
std::vector<std::string> FakeWorker::problems() {
  std::lock_guard lock(mutex_);
  return problems_;
}

bool FakeWorker::region_is_mapped_twice() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("fake-region") != std::string::npos) ++found;
  return found > 1;
}

void FakeWorker::pause(bool paused) {
  paused_ = paused;
  Bell::for_eventfd(bell_.get()).ring();
}

void FakeWorker::hold(bool held) {
  auto* header = reinterpret_cast<sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET +
                                                       kSlot * SLUICE_SLOT_STRIDE);
  store_shared<uint32_t>(header->hold, held, std::memory_order_release);
  if (!held) Bell::for_eventfd(wake_.get()).ring();
}

void FakeWorker::want_clones(CUfunction function) {
  auto* header = reinterpret_cast<sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET +
                                                       kSlot * SLUICE_SLOT_STRIDE);
  const auto handle = reinterpret_cast<uint64_t>(function);
  store_shared<uint64_t>(header->wanted_clones[handle % SLUICE_WANTED_CLONES], handle);
}

std::string FakeWorker::clones_text() {
  std::lock_guard lock(mutex_);
  return clones_text_;
}

void FakeWorker::end_session(int error, const std::string& reason) {
  auto* header = reinterpret_cast<sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET +
                                                       kSlot * SLUICE_SLOT_STRIDE);
  header->error = error;
  std::strncpy(header->reason, reason.c_str(), sizeof header->reason - 1);
  store_shared<uint32_t>(header->state, SLUICE_SLOT_ENDED, std::memory_order_release);
  Bell::for_eventfd(wake_.get()).ring();
}

void FakeWorker::give_slot_away() {
  auto* header = reinterpret_cast<sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET +
                                                       kSlot * SLUICE_SLOT_STRIDE);
  store_shared<uint64_t>(header->epoch, kEpoch + 1, std::memory_order_release);
}

void FakeWorker::hang_up() { ::shutdown(connection_.get(), SHUT_RDWR); }

void FakeWorker::run() {
  pollfd first[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  ::poll(first, 2, -1);
  if (first[1].revents != 0) return;
  connection_ = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  sluice_join join{};
  auto received = receive_with_fds(connection_.get(), &join, sizeof join);
  SLUICE_CHECK(received.ok() && join.magic == SLUICE_JOIN_MAGIC);
  sluice_joined joined{};
  joined.magic = SLUICE_JOIN_MAGIC;
  joined.slot = kSlot;
  joined.doorbell_kind = SLUICE_DOORBELL_EVENTFD;
  joined.epoch = kEpoch;
  joined.region_bytes = kRegionBytes;
  joined.can_wait = 1;
  joined.flags = options_.joined_flags;
  if (!options_.refuse.empty()) {
    joined.status = EBUSY;
    std::strncpy(joined.reason, options_.refuse.c_str(), sizeof joined.reason - 1);
  }
  const int fds[] = {region_fd_.get(), bell_.get(), wake_.get()};
  (void)send_with_fds(connection_.get(), &joined, sizeof joined, fds);
  RecordBuffer record;
  for (;;) {
    const Pop pop = paused_ ? Pop::kEmpty : submit_.pop(record);
    if (pop == Pop::kBroken) {
      problem(submit_.broken_reason());
      return;
    }
    if (pop == Pop::kRecord) {
      ++records_;
      serve(record);
      complete_.publish();
      continue;
    }
    if (paused_ || submit_.arm()) {
      pollfd fds2[2] = {{bell_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      ::poll(fds2, 2, -1);
      if (fds2[1].revents != 0) return;
      drain_eventfd(bell_.get());
      submit_.disarm();
    }
  }
}

void FakeWorker::answer(const sluice_record& record, CUresult status,
                        std::span<const std::byte> body) {
  sluice_completion completion{};
  completion.opcode = record.opcode;
  completion.call_id = record.call_id;
  completion.status = status;
  if ((record.flags & SLUICE_RECORD_NO_REPLY) != 0) {
    if (status == CUDA_SUCCESS) return;
    completion.call_id = 0;
  }
  while (!complete_.push(completion, body)) {
    if (complete_.broken()) {
      problem(complete_.broken_reason());
      return;
    }
    complete_.publish();
    ::usleep(100);
  }
}

std::optional<void*> FakeWorker::driver_object(sluice_handle_kind kind, uint64_t handle) {
  const auto it = handles_.find(handle);
  if (it == handles_.end() || SLUICE_HANDLE_KIND(handle) != kind) return std::nullopt;
  return it->second;
}
uint64_t FakeWorker::add(sluice_handle_kind kind, void* object) {
  const uint64_t handle = SLUICE_HANDLE(kind, 3, next_index_++);
  handles_[handle] = object;
  return handle;
}
void FakeWorker::remove(uint64_t handle) { handles_.erase(handle); }

bool FakeWorker::owns(CUdeviceptr p, uint64_t bytes) {
  const auto global = reinterpret_cast<CUdeviceptr>(global_.data());
  if (p >= global && p - global <= global_.size() && bytes <= global_.size() - (p - global))
    return true;
  if (p >= SLUICE_WINDOW_ADDRESS && p - SLUICE_WINDOW_ADDRESS < kRegionBytes)  // pinned
    return bytes <= kRegionBytes - (p - SLUICE_WINDOW_ADDRESS);
  auto it = allocations_.upper_bound(p);
  if (it == allocations_.begin()) return false;
  --it;
  const uint64_t at = p - it->first;
  return at < it->second.size() && bytes <= it->second.size() - at;
}

CUresult FakeWorker::cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                          CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      *value = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *value = 64;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *value = 0x7fffffff;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *value = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    default:
      *value = 1;
  }
  return CUDA_SUCCESS;
}

CUresult FakeWorker::cuDevicePrimaryCtxRetain(calls::WireHandle<SLUICE_HANDLE_CONTEXT>* context,
                                              CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  context->value = add(SLUICE_HANDLE_CONTEXT, nullptr);
  return CUDA_SUCCESS;
}
CUresult FakeWorker::cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }

CUresult FakeWorker::cuDevicePrimaryCtxReset_v2(CUdevice) {
  before_reset_.merge(allocations_);
  allocations_.clear();
  live_allocations_ = 0;
  return CUDA_SUCCESS;
}

CUresult FakeWorker::cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) {
  if (bytes > (256 << 20)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<std::byte> memory;
  for (auto& [address, again] : before_reset_)
    if (memory.empty() && again.size() == bytes) memory = std::move(again);
  memory.resize(bytes);
  *p = reinterpret_cast<CUdeviceptr>(memory.data());
  allocations_[*p] = std::move(memory);
  ++live_allocations_;
  return CUDA_SUCCESS;
}
CUresult FakeWorker::cuMemFree_v2(CUdeviceptr p) {
  if (allocations_.erase(p) == 0) return CUDA_ERROR_INVALID_VALUE;
  --live_allocations_;
  return CUDA_SUCCESS;
}
CUresult FakeWorker::cuModuleGetGlobal_v2(CUdeviceptr* p, size_t* bytes,
                                          calls::WireHandle<SLUICE_HANDLE_MODULE> module,
                                          const char* name) {
  if (!driver_object(SLUICE_HANDLE_MODULE, module.value)) return CUDA_ERROR_INVALID_HANDLE;
  if (std::string(name) != "table") return CUDA_ERROR_NOT_FOUND;
  if (p != nullptr) *p = reinterpret_cast<CUdeviceptr>(global_.data());
  if (bytes != nullptr) *bytes = global_.size();
  return CUDA_SUCCESS;
}

CUresult FakeWorker::cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, calls::WireHandle<SLUICE_HANDLE_FUNCTION> function, int, size_t) {
  if (!driver_object(SLUICE_HANDLE_FUNCTION, function.value)) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = 4;
  return CUDA_SUCCESS;
}

namespace {
template <class T>
bool read(std::span<const std::byte> body, T& to, size_t at = 0) {
  if (at > body.size() || body.size() - at < sizeof to) return false;
  std::memcpy(&to, body.data() + at, sizeof to);
  return true;
}
}  // namespace

void FakeWorker::put_end_word(uint32_t value) {
  const auto& header = *reinterpret_cast<const sluice_slot_header*>(
      region_ + SLUICE_SLOT_OFFSET + uint64_t{kSlot} * SLUICE_SLOT_STRIDE);
  const uint64_t at = sluice_end_word_offset(header.staging_offset, header.staging_bytes);
  store_shared(*reinterpret_cast<uint32_t*>(region_ + at), value, std::memory_order_release);
}

void FakeWorker::serve(const RecordBuffer& buffer) {
  const sluice_record& record = buffer.record();
  const auto body = buffer.body();
  if (record.call_id == 0) problem("call id 0");
  if (record.context != 0 && !driver_object(SLUICE_HANDLE_CONTEXT, record.context))
    return answer(record, CUDA_ERROR_INVALID_CONTEXT);
  switch (record.opcode) {
    case SLUICE_CALL_MODULE_LOAD:
      return module_load(record, body);
    case SLUICE_CALL_FUNCTION_GET:
      return function_get(record, body);
    case SLUICE_CALL_LAUNCH:
      return launch(record, body);
    case SLUICE_CALL_CLUSTERS: {
      const int32_t reply[2] = {clusters_that_fit_, 0};
      return answer(record, CUDA_SUCCESS, std::as_bytes(std::span(reply)));
    }
    case SLUICE_CALL_COPY:
      return copy(record, body);
    case SLUICE_CALL_MEMSET:
      return fill(record, body);
    case SLUICE_CALL_SYNCHRONIZE: {
      if (options_.printed != nullptr) {
        const sluice_printed header{static_cast<uint32_t>(std::strlen(options_.printed)),
                                    static_cast<uint32_t>(options_.printed_to)};
        std::vector<std::byte> text(sizeof header + header.bytes);
        std::memcpy(text.data(), &header, sizeof header);
        std::memcpy(text.data() + sizeof header, options_.printed, header.bytes);
        sluice_record of_nobody{};
        of_nobody.opcode = SLUICE_CALL_PRINTED;
        answer(of_nobody, CUDA_SUCCESS, text);
      }
      sluice_synchronize request;
      if (writes_end_words_ && read(body, request) && request.end_word != 0)
        put_end_word(request.end_word);
      held_.push_back(record);
      if (held_.size() < hold_syncs_) return;
      while (!held_.empty()) {
        answer(held_.back(), sync_status_);
        held_.pop_back();
        ++answered_syncs_;
      }
      return;
    }
    case SLUICE_CALL_FUNCTION_CLONES: {
      sluice_function_clones clones{};
      if (!read(body, clones)) return problem("function_clones is short");
      clones_flags_ = clones.flags;
      return answer(record, CUDA_SUCCESS);
    }
    case SLUICE_CALL_EVENT_RECORD:
    case SLUICE_CALL_STREAM_WAIT:
    case SLUICE_CALL_STREAM_VALUE:
    case SLUICE_CALL_STREAM_VALUE64:
    case SLUICE_CALL_QUERY:
      return answer(record, CUDA_SUCCESS);
    case SLUICE_CALL_EXTENT_ALLOC: {
      sluice_extent want{};
      read(body, want);
      const uint64_t bytes =
          (want.bytes + SLUICE_EXTENT_BYTES - 1) & ~uint64_t{SLUICE_EXTENT_BYTES - 1};
      if (bytes == 0 || bytes > kRegionBytes - next_extent_)
        return answer(record, CUDA_ERROR_OUT_OF_MEMORY);
      const sluice_bulk bulk{next_extent_, bytes};
      next_extent_ += bytes;
      extents_[bulk.offset] = bytes;
      ++live_extents_;
      return answer_with(record, bulk);
    }
    case SLUICE_CALL_EXTENT_FREE: {
      sluice_bulk bulk{};
      read(body, bulk);
      const auto it = extents_.find(bulk.offset);
      if (it == extents_.end() || it->second != bulk.bytes)
        return answer(record, CUDA_ERROR_INVALID_VALUE);
      extents_.erase(it);
      --live_extents_;
      if (!options_.answer_extent_frees) return;
      return answer(record, CUDA_SUCCESS);
    }
    case SLUICE_CALL_HOST_FUNC:
      return answer(record, CUDA_SUCCESS);
    case SLUICE_CALL_HOST_FUNC_DONE:
      ++host_funcs_done_;
      return;
    default:
      break;
  }
  static NoDriver driver;
  std::vector<std::byte> room(calls::kMaxOutBytes + 256);
  calls::ReplyWriter reply(room);
  const auto status = calls::dispatch_call(*this, driver, record.opcode, body, reply);
  if (!status) return problem(status.error().message);
  answer(record, *status, reply.written());
}

void FakeWorker::module_load(const sluice_record& record, std::span<const std::byte> body) {
  sluice_module_load load{};
  if (!read(body, load)) return problem("module_load is short");
  std::string text;
  if (load.bulk.bytes != 0) {
    if (load.bulk.offset > kRegionBytes || load.bulk.bytes > kRegionBytes - load.bulk.offset)
      return problem("module bulk");
    text.assign(reinterpret_cast<const char*>(region_) + load.bulk.offset, load.bulk.bytes);
  } else {
    text.assign(reinterpret_cast<const char*>(body.data()) + sizeof load, load.inline_bytes);
  }
  const bool clones = text.find(SLUICE_CLONE_SUFFIX) != std::string::npos;
  if (text.find("bad module") != std::string::npos || (clones && !options_.accept_rewritten)) {
    const std::string log = "ptxas would not have it";
    return answer(record, CUDA_ERROR_INVALID_PTX, std::as_bytes(std::span(log)));
  }
  if (clones) {
    std::lock_guard lock(mutex_);
    clones_text_ = text;
    ++modules_with_clones_;
  }
  answer_with(record, sluice_handle_reply{add(SLUICE_HANDLE_MODULE, nullptr)});
}

// Kernels by name: "fill" (u64 to, u32 n, u32 value), "odd" (s8, u64 out, s16).
void FakeWorker::function_get(const sluice_record& record, std::span<const std::byte> body) {
  sluice_function_get get{};
  if (!read(body, get) || get.name_bytes > body.size() - sizeof get) return problem("function_get");
  const std::string name(reinterpret_cast<const char*>(body.data()) + sizeof get, get.name_bytes);
  std::vector<std::pair<uint32_t, uint32_t>> params;
  if (name == "fill") params = {{0, 8}, {8, 4}, {12, 4}};
  if (name == "odd") params = {{0, 1}, {8, 8}, {16, 2}};
  if (params.empty() && name != "nothing") return answer(record, CUDA_ERROR_NOT_FOUND);
  sluice_function_reply reply{};
  reply.handle = add(SLUICE_HANDLE_FUNCTION, nullptr);
  functions_[reply.handle] = name;
  reply.param_count = static_cast<uint32_t>(params.size());
  reply.param_bytes = params.empty() ? 0 : params.back().first + params.back().second;
  for (int& attribute : reply.attributes) attribute = INT32_MIN;
  reply.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
  reply.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 96;
  reply.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 << 10;
  std::vector<std::byte> bytes(sizeof reply + params.size() * 8);
  std::memcpy(bytes.data(), &reply, sizeof reply);
  for (size_t i = 0; i < params.size(); ++i)
    std::memcpy(bytes.data() + sizeof reply + i * 8, &params[i], 8);
  answer(record, CUDA_SUCCESS, bytes);
}

void FakeWorker::launch(const sluice_record& record, std::span<const std::byte> body) {
  sluice_launch launch{};
  if (!read(body, launch) || launch.param_bytes > body.size() - sizeof launch)
    return problem("launch is short");
  if (const CUresult fail = fail_launch_.exchange(CUDA_SUCCESS); fail != CUDA_SUCCESS)
    return answer(record, fail);
  last_launch_flags_ = launch.flags;
  const std::string name = functions_[launch.function];
  const auto params = body.subspan(sizeof launch, launch.param_bytes);
  if (name == "fill") {
    uint64_t to;
    uint32_t n, value;
    if (!read(params, to) || !read(params, n, 8) || !read(params, value, 12) ||
        !owns(to, uint64_t{n} * 4))
      return answer(record, CUDA_ERROR_ILLEGAL_ADDRESS);
    for (uint32_t i = 0; i < n; ++i) reinterpret_cast<uint32_t*>(to)[i] = value;
  } else if (name == "odd") {
    int8_t a;
    uint64_t out;
    int16_t c;
    if (!read(params, a) || !read(params, out, 8) || !read(params, c, 16) || !owns(out, 8))
      return answer(record, CUDA_ERROR_ILLEGAL_ADDRESS);
    *reinterpret_cast<int64_t*>(out) = int64_t{a} * 1000 + c;
  }
}

std::byte* FakeWorker::copy_end(uint32_t kind, uint64_t address, uint64_t bytes) {
  if (kind == SLUICE_COPY_DEVICE)
    return owns(address, bytes) ? reinterpret_cast<std::byte*>(address) : nullptr;
  if (address < kBulkOffset || address > kRegionBytes || bytes > kRegionBytes - address)
    return nullptr;
  return region_ + address;
}

void FakeWorker::copy(const sluice_record& record, std::span<const std::byte> body) {
  sluice_copy c{};
  if (!read(body, c) || c.width == 0 || c.height == 0) return problem("copy");
  const uint64_t dst_span = c.height == 1 ? c.width : c.dst_pitch * (c.height - 1) + c.width;
  const uint64_t src_span = c.height == 1 ? c.width : c.src_pitch * (c.height - 1) + c.width;
  std::byte* dst = copy_end(c.dst_kind, c.dst, dst_span);
  std::byte* src = copy_end(c.src_kind, c.src, src_span);
  if (dst == nullptr || src == nullptr) return answer(record, CUDA_ERROR_INVALID_VALUE);
  for (uint64_t row = 0; row < c.height; ++row)
    std::memmove(dst + row * c.dst_pitch, src + row * c.src_pitch, c.width);
  answer(record, CUDA_SUCCESS);
}

void FakeWorker::fill(const sluice_record& record, std::span<const std::byte> body) {
  sluice_memset m{};
  if (!read(body, m)) return problem("memset");
  const uint64_t row_bytes = m.width * m.element_bytes;
  const uint64_t span = m.height == 1 ? row_bytes : m.pitch * (m.height - 1) + row_bytes;
  if (!owns(m.dst, span)) return answer(record, CUDA_ERROR_INVALID_VALUE);
  for (uint64_t row = 0; row < m.height; ++row)
    for (uint64_t i = 0; i < m.width; ++i)
      std::memcpy(reinterpret_cast<std::byte*>(m.dst) + row * m.pitch + i * m.element_bytes,
                  &m.value, m.element_bytes);
  waited_fills_ += m.wait;
  answer(record, CUDA_SUCCESS);
}

}  // namespace sluice::testing
