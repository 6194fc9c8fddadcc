// SPDX-License-Identifier: Apache-2.0
// Device memory that several programs of one vGPU have: GenericCalls' part of the table.
//
//   exporter  cuIpcGetMemHandle  -> ShareRequest; sluiced makes a token, which is the guest's
//   handle importer  cuIpcOpenMemHandle -> OpenRequest; sluiced finds the token among its vGPU's
//
// On NVIDIA's driver sluiced passes on what the driver's cuIpcGetMemHandle gave. On the software
// GPU it makes a file: the exporter moves the memory there, the importer maps it.
//
// All of it runs on the job thread. A call that needs sluiced is parked and made again with the
// answer in SharedMemory::reply.
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "mediator/worker/calls/decode.h"
#include "mediator/worker/calls/generic_calls.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {

constexpr uint64_t kPageBytes = 4096;  // of the software GPU's files

// What the software GPU has besides the driver API (mediator/softgpu/softgpu.h).
template <class... A>
CUresult call_soft_gpu(const gpu::DriverApi& api, const char* name, A... arguments) {
  using Function = CUresult (*)(A...);
  const auto function = reinterpret_cast<Function>(::dlsym(api.library, name));
  return function ? function(arguments...) : CUDA_ERROR_NOT_SUPPORTED;
}

// What is shared with an allocation: itself, or its pages.
struct Extent {
  uint64_t base, bytes;
};
Extent shared_with(const Allocation& a, bool nvidia) {
  if (nvidia) return {a.address, a.bytes};
  const uint64_t first = a.address / kPageBytes * kPageBytes;
  return {first, (a.address + a.bytes - first + kPageBytes - 1) / kPageBytes * kPageBytes};
}

CUipcMemHandle handle_of(const SharedMemory::Wire& wire, const Allocation& a,
                         const Extent& extent) {
  sluice_ipc_handle inside{};
  inside.magic = SLUICE_IPC_MAGIC;
  std::memcpy(inside.token, wire.token, sizeof inside.token);
  inside.offset = a.address - extent.base;
  inside.bytes = a.bytes;
  CUipcMemHandle handle{};
  static_assert(sizeof inside == sizeof handle);
  std::memcpy(&handle, &inside, sizeof inside);
  return handle;
}

// By the process id in a handle, which is its third word, NVIDIA's driver refuses what the process
// itself exported (201). Each worker is process 1 of its namespace, so that all would be one: those
// of a vGPU get numbers that no process has.
void number_exporter(CUipcMemHandle* handle, uint32_t slot) {
  constexpr size_t kProcess = 2 * sizeof(uint32_t);
  constexpr uint32_t kMostProcesses = 1u << 22;
  char* at = reinterpret_cast<char*>(handle) + kProcess;
  uint32_t process = 0;
  std::memcpy(&process, at, sizeof process);
  if (process != static_cast<uint32_t>(::getpid())) return;  // another driver's layout
  process = kMostProcesses + slot;
  std::memcpy(at, &process, sizeof process);
}

SharedMemory::Wire wire_in(const wp::Message& message) {
  SharedMemory::Wire wire;
  std::memcpy(static_cast<void*>(&wire), message.text, sizeof wire);
  return wire;
}

}  // namespace

CUresult GenericCalls::park_for_sluiced(wp::Message question) {
  std::lock_guard lock(s.mutex);
  if (s.control.lost()) return CUDA_ERROR_SYSTEM_NOT_READY;
  if (s.control.shared_waiting() >= s.setup.limits.parked_calls)
    s.violation("too many calls wait for memory of other programs");
  s.control.ask_shared(question, [&session = s, again = call,
                                  kept = std::make_shared<KeptBody>(s.work.queued, body)](
                                     const wp::Message* reply, const std::shared_ptr<Fd>& file) {
    if (!reply) return session.answer(again, CUDA_ERROR_SYSTEM_NOT_READY);
    session.jobs.post([&session, again, kept, message = *reply, file] {
      session.memory.shared.reply = {message, file};
      run_generic(session, again, kept->bytes());
      session.memory.shared.reply.reset();
    });
  });
  return kParked;
}

CUresult GenericCalls::ask_for_token(CUdeviceptr address, uint64_t bytes) {
  wp::Message question{};
  question.type = wp::Type::kShareRequest;
  question.bytes = bytes;
  SharedMemory::Wire wire;
  if (s.setup.start.nvidia) {
    CUipcMemHandle of_driver{};
    const CUresult r = s.api.cuIpcGetMemHandle(&of_driver, address);
    if (r != CUDA_SUCCESS) return r;
    number_exporter(&of_driver, s.setup.start.slot);
    std::memcpy(wire.handle, &of_driver, sizeof wire.handle);
  }
  std::memcpy(question.text, &wire, sizeof wire);
  return park_for_sluiced(question);
}

CUresult GenericCalls::cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  const auto reply = std::exchange(s.memory.shared.reply, std::nullopt);
  const bool nvidia = s.setup.start.nvidia != 0;
  Allocation a;
  std::shared_ptr<ContextObject> owner;
  {
    std::lock_guard lock(s.mutex);
    const Allocation* found = s.memory.allocations.find(address);
    if (found && found->charged_bytes != 0) {
      a = *found;
      owner = s.handles.find<ContextObject>(SLUICE_HANDLE_CONTEXT, a.owner);
    }
    const Extent extent = shared_with(a, nvidia);
    const SharedMemory::Wire* known = owner ? s.memory.shared.exported(extent.base) : nullptr;
    // It was freed, or exported by another thread, while sluiced was asked.
    if (reply && reply->message.code == 0 && (!owner || known))
      s.control.end_share(wire_in(reply->message), 0);
    if (!handle || !owner) return CUDA_ERROR_INVALID_VALUE;
    if (known) {
      const SharedMemory::Wire wire = *known;
      s.memory.shared.add_export(extent.base, a.address, wire);
      *handle = handle_of(wire, a, extent);
      return CUDA_SUCCESS;
    }
  }
  const Extent extent = shared_with(a, nvidia);
  CUresult r = make_current(s.api, owner->cu);
  if (r != CUDA_SUCCESS) return r;
  if (!reply) return ask_for_token(a.address, extent.bytes);
  if (reply->message.code != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const SharedMemory::Wire wire = wire_in(reply->message);
  if (!nvidia)
    r = call_soft_gpu(s.api, "sluice_softgpu_share", CUdeviceptr{a.address},
                      reply->file->release());
  std::lock_guard lock(s.mutex);
  if (r != CUDA_SUCCESS) {
    s.control.end_share(wire, 0);
    return r;
  }
  s.memory.shared.add_export(extent.base, a.address, wire);
  *handle = handle_of(wire, a, extent);
  return CUDA_SUCCESS;
}

// With the session's lock held. kParked: it is not open yet.
CUresult GenericCalls::open_again(const SharedMemory::Wire& wire, uint64_t guest_offset,
                                  CUdeviceptr* address) {
  if (s.memory.shared.is_own(wire)) return CUDA_ERROR_INVALID_CONTEXT;
  if (auto* import = s.memory.shared.find_import(wire)) {
    if (import->context != call.context) return CUDA_ERROR_INVALID_CONTEXT;
    if (guest_offset >= import->bytes) return CUDA_ERROR_INVALID_VALUE;
    ++import->uses;
    *address = import->base + guest_offset;
    return CUDA_SUCCESS;
  }
  return s.charges.held_is_refused() ? CUDA_ERROR_OUT_OF_MEMORY : kParked;
}

CUresult GenericCalls::cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle,
                                             unsigned flags) {
  const auto reply = std::exchange(s.memory.shared.reply, std::nullopt);
  sluice_ipc_handle guest{};
  std::memcpy(&guest, &handle, sizeof guest);
  if (!call.context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || guest.magic != SLUICE_IPC_MAGIC)
    return CUDA_ERROR_INVALID_VALUE;
  SharedMemory::Wire wire;
  std::memcpy(wire.token, guest.token, sizeof wire.token);
  {
    std::lock_guard lock(s.mutex);
    if (const CUresult r = open_again(wire, guest.offset, address); r != kParked) return r;
  }
  if (!reply) {
    wp::Message question{};
    question.type = wp::Type::kOpenRequest;
    std::memcpy(question.text, &wire, sizeof wire);
    return park_for_sluiced(question);
  }
  if (reply->message.code != 0) return CUDA_ERROR_INVALID_VALUE;
  SharedMemory::Import import;
  import.wire = wire;
  import.bytes = reply->message.bytes;
  import.uses = 1;
  import.context = call.context;
  const SharedMemory::Wire from = wire_in(reply->message);
  CUdeviceptr base = 0;
  CUresult r;
  if (s.setup.start.nvidia) {
    CUipcMemHandle of_driver{};
    std::memcpy(&of_driver, from.handle, sizeof of_driver);
    r = s.api.cuIpcOpenMemHandle_v2(&base, of_driver, flags);
  } else {
    r = call_soft_gpu(s.api, "sluice_softgpu_open", &base, reply->file->release());
  }
  import.base = base;
  std::lock_guard lock(s.mutex);
  if (r == CUDA_SUCCESS &&
      (guest.offset >= import.bytes || !s.memory.allocations.add({base, import.bytes, base, 0}))) {
    (void)end_import(import);
    r = CUDA_ERROR_INVALID_VALUE;
  }
  if (r != CUDA_SUCCESS) {
    s.control.end_import(wire);
    return r;
  }
  s.memory.shared.add_import(import);
  *address = base + guest.offset;
  return CUDA_SUCCESS;
}

// The mapping goes; its context is current.
CUresult GenericCalls::end_import(const SharedMemory::Import& import) {
  if (s.setup.start.nvidia) return s.api.cuIpcCloseMemHandle(import.base);
  return call_soft_gpu(s.api, "sluice_softgpu_close", CUdeviceptr{import.base});
}

CUresult GenericCalls::cuIpcCloseMemHandle(CUdeviceptr address) {
  SharedMemory::Import import;
  {
    std::lock_guard lock(s.mutex);
    auto* found = s.memory.shared.find_import(address);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    if (--found->uses != 0) return CUDA_SUCCESS;
    import = *found;
    s.memory.shared.remove_import(import.base);
    s.memory.allocations.remove_owner(import.base);  // first: no copy to it is let through any more
  }
  CUresult r = make_current(s.api, import.context->cu);
  if (r == CUDA_SUCCESS) r = end_import(import);
  std::lock_guard lock(s.mutex);
  s.control.end_import(import.wire);
  return r;
}

}  // namespace sluice::worker
