// SPDX-License-Identifier: Apache-2.0
// Memory that several processes have (cuIpcGetMemHandle and kin; sluice_softgpu_share and kin for
// workers, who get the files from sluiced). It lies in a file that each of them maps. A handle says
// where the file is: a descriptor of the process whose memory it is, found in /proc.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "mediator/base/unix_socket.h"
#include "mediator/softgpu/softgpu.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

constexpr uint64_t kMagic = 0x43504953'54464f53;

struct MemoryHandle {
  uint64_t magic = kMagic;
  int32_t pid = 0, descriptor = 0;
  uint64_t file = 0;    // its number, so that another one in its place is not taken for it
  uint64_t offset = 0;  // of the allocation
};
static_assert(sizeof(MemoryHandle) <= sizeof(CUipcMemHandle));

uint64_t number_of(int file, uint64_t* bytes) {
  struct stat s {};
  if (::fstat(file, &s) != 0 || s.st_size <= 0) return 0;
  *bytes = static_cast<uint64_t>(s.st_size);
  return s.st_ino;
}

// The program's own allocation in which the address lies; one that may leave the process.
bool find_own(Context& context, uint64_t address, uint64_t* base, uint64_t* bytes) {
  std::lock_guard lock(context.mutex);
  auto it = context.allocations.upper_bound(address);
  if (it == context.allocations.begin()) return false;
  --it;
  if (address - it->first >= it->second || context.managed.count(it->first) != 0 ||
      context.variables.count(it->first) != 0)
    return false;
  *base = it->first;
  *bytes = it->second;
  return true;
}

CUresult open_file(Context& context, int file, CUdeviceptr* base) {
  Import import;
  import.file = number_of(file, &import.bytes);
  if (import.file == 0) return CUDA_ERROR_INVALID_VALUE;
  void* const p = ::mmap(nullptr, import.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  *base = reinterpret_cast<uint64_t>(p);
  std::lock_guard lock(context.mutex);
  context.imports[*base] = import;
  (void)context.map.add(*base, import.bytes).ok();
  return CUDA_SUCCESS;
}

// The import in which the address lies, with the context's lock held.
std::map<uint64_t, Import>::iterator find_import(Context& context, uint64_t address) {
  auto it = context.imports.upper_bound(address);
  if (it == context.imports.begin()) return context.imports.end();
  --it;
  return address - it->first < it->second.bytes ? it : context.imports.end();
}

}  // namespace

bool softgpu::close_import(Context& context, uint64_t base) {
  uint64_t bytes;
  {
    std::lock_guard lock(context.mutex);
    const auto it = context.imports.find(base);
    if (it == context.imports.end()) return false;
    bytes = it->second.bytes;
    context.imports.erase(it);
    context.map.remove(base);
  }
  ::munmap(reinterpret_cast<void*>(base), bytes);
  return true;
}

CUresult sluice_softgpu_share(CUdeviceptr base, int descriptor) {
  Fd file(descriptor);
  return with_context([&](State& s, Context& context) {
    uint64_t begin, bytes, length;
    if (!find_own(context, base, &begin, &bytes) || number_of(file.get(), &length) == 0 ||
        length != Arena::pages_of(begin, bytes).second)
      return CUDA_ERROR_INVALID_VALUE;
    const auto shared = s.arena.share(begin, bytes, std::move(file));
    if (shared) return CUDA_SUCCESS;
    s.log(shared.error().message);
    return CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult sluice_softgpu_open(CUdeviceptr* base, int descriptor) {
  const Fd file(descriptor);
  return with_context(
      [&](State&, Context& context) { return open_file(context, file.get(), base); });
}

CUresult sluice_softgpu_close(CUdeviceptr base) {
  return with_context([&](State&, Context& context) {
    return close_import(context, base) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return with_context([&](State& s, Context& context) {
    uint64_t base, bytes, length;
    if (handle == nullptr || !find_own(context, address, &base, &bytes))
      return CUDA_ERROR_INVALID_VALUE;
    const auto [first, page_bytes] = Arena::pages_of(base, bytes);
    if (s.arena.file_of(first) < 0) {
      auto file = make_memfd("sluice-ipc", page_bytes);
      if (!file || !s.arena.share(base, bytes, std::move(*file))) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    MemoryHandle own;
    own.pid = ::getpid();
    own.descriptor = s.arena.file_of(first);
    own.file = number_of(own.descriptor, &length);
    own.offset = base - first;
    *handle = {};
    std::memcpy(handle, &own, sizeof own);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  return with_context([&](State&, Context& context) {
    MemoryHandle from;
    std::memcpy(static_cast<void*>(&from), &handle, sizeof from);
    if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || from.magic != kMagic)
      return CUDA_ERROR_INVALID_VALUE;
    if (from.pid == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    {
      std::lock_guard lock(context.mutex);
      for (auto& [base, import] : context.imports) {
        if (import.file != from.file || from.offset >= import.bytes) continue;
        ++import.uses;
        *out = base + from.offset;
        return CUDA_SUCCESS;
      }
    }
    const std::string path =
        "/proc/" + std::to_string(from.pid) + "/fd/" + std::to_string(from.descriptor);
    const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    uint64_t bytes = 0;
    // Sealed against getting shorter, which would end whoever reads it.
    if (!file || number_of(file.get(), &bytes) != from.file || from.offset >= bytes ||
        (::fcntl(file.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0)
      return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr base = 0;
    const CUresult r = open_file(context, file.get(), &base);
    if (r == CUDA_SUCCESS) *out = base + from.offset;
    return r;
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return with_context([&](State& s, Context& context) {
    {
      std::lock_guard lock(context.mutex);
      const auto it = find_import(context, address);
      if (it == context.imports.end()) return CUDA_ERROR_INVALID_VALUE;
      if (it->second.uses > 1) {
        --it->second.uses;
        return CUDA_SUCCESS;
      }
    }
    s.scheduler.wait(context);
    uint64_t base = 0;
    {
      std::lock_guard lock(context.mutex);
      const auto it = find_import(context, address);
      if (it != context.imports.end()) base = it->first;
    }
    return close_import(context, base) ? outcome(context) : CUDA_ERROR_INVALID_VALUE;
  });
}

// Events do not leave their process; the guest's library has them by memory that does.
CUresult cuIpcGetEventHandle(CUipcEventHandle*, CUevent) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuIpcOpenEventHandle(CUevent*, CUipcEventHandle) { return CUDA_ERROR_NOT_SUPPORTED; }
