// SPDX-License-Identifier: Apache-2.0
// Pools whose memory goes to other programs of the VM (cuMemPoolExport*, cuMemPoolImport*).
//
//   pool     a descriptor of a sealed file in which the pool's number lies. Whoever has it may make
//            a pool of that number; it opens no memory
//   pointer  a handle as of cuIpcGetMemHandle, whose token is sluiced's, with half of the number
//
// So nothing here keeps programs from one another that the guest's kernel does not keep apart; what
// keeps VMs apart is the token. Charges, limits and ends are those of cuIpcGetMemHandle.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/shim/memory/pools.h"
#include "guest-agent/shim/memory/shared_memory.h"
#include "guest-agent/shim/state/api.h"
#include "mediator/base/fd.h"

namespace sluice::guest {
namespace {

constexpr uint64_t kPoolMagic = 0x4c4f4f50'43554c53;

struct PoolFile {
  uint64_t magic = kPoolMagic;
  PoolNumber number{};
  int32_t device = 0, reserved = 0;
};
static_assert(sizeof(PoolFile) == 32);

Fd make_file(const PoolFile& of) {
  Fd file(::memfd_create("sluice-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::write(file.get(), &of, sizeof of) != sizeof of ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
    return Fd();
  return file;
}

// A descriptor of the program's may be anything: only a file of the right length is read.
bool read_file(int descriptor, PoolFile* to) {
  struct stat s {};
  return ::fstat(descriptor, &s) == 0 && S_ISREG(s.st_mode) && s.st_size == sizeof *to &&
         ::pread(descriptor, to, sizeof *to, 0) == sizeof *to && to->magic == kPoolMagic;
}

CUresult check_kind(CUmemAllocationHandleType type, unsigned long long flags) {
  return flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

std::optional<CUresult> free_imported(CUdeviceptr address) {
  const auto range = state().pointers.find(address);
  if (!range || range->imports == 0 || range->pool == nullptr || range->base != address)
    return std::nullopt;
  const Entered e = enter_context();
  return e ? close_shared_memory(e, *range) : e.status;
}

}  // namespace sluice::guest

using namespace sluice::guest;

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  const Entered e = enter();
  if (!e) return e.status;
  const auto shared = shared_pool(pool);
  if (handle_out == nullptr || !shared || shared->imported) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_kind(type, flags); r != CUDA_SUCCESS) return r;
  PoolFile inside;
  inside.number = shared->number;
  inside.device = shared->device;
  sluice::Fd file = make_file(inside);
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle_out) = file.release();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  const Entered e = enter();
  if (!e) return e.status;
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_kind(type, flags); r != CUDA_SUCCESS) return r;
  PoolFile inside;
  if (!read_file(static_cast<int>(reinterpret_cast<intptr_t>(handle)), &inside) ||
      inside.number == PoolNumber{} || !is_device(*e.link, inside.device))
    return CUDA_ERROR_INVALID_VALUE;
  *pool = add_imported_pool({inside.number, inside.device, true});
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr ptr) {
  const Entered e = enter_context();
  if (!e) return e.status;
  const auto range = state().pointers.find(ptr);
  if (data == nullptr || !range || range->base != ptr || range->imports != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const auto shared = shared_pool(range->pool);
  if (!shared) return CUDA_ERROR_INVALID_VALUE;
  CUipcMemHandle handle{};
  const CUresult r = SLUICE_CALL(cuIpcGetMemHandle, *e.link, range->context, &handle, ptr);
  if (r != CUDA_SUCCESS) return r;
  sluice_ipc_handle inside;
  std::memcpy(&inside, &handle, sizeof inside);
  inside.reserved = shared->number[0];
  static_assert(sizeof inside == sizeof *data);
  std::memcpy(data, &inside, sizeof inside);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr, CUmemoryPool pool, CUmemPoolPtrExportData* data) {
  const Entered e = enter_context();
  if (!e) return e.status;
  const auto shared = shared_pool(pool);
  if (ptr == nullptr || data == nullptr || !shared || !shared->imported)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = sluice::graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  sluice_ipc_handle inside;
  std::memcpy(&inside, data, sizeof inside);
  if (inside.magic != SLUICE_IPC_MAGIC || inside.reserved != shared->number[0])
    return CUDA_ERROR_INVALID_VALUE;
  inside.reserved = 0;
  CUipcMemHandle handle;
  std::memcpy(&handle, &inside, sizeof handle);
  return open_shared_memory(e, handle, pool, ptr);
}
