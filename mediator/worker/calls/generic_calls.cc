// SPDX-License-Identifier: Apache-2.0
// What all generic calls share: the table of handles, charging, parking; and devices.
#include "mediator/worker/calls/generic_calls.h"

#include <algorithm>
#include <vector>

#include "mediator/worker/calls/decode.h"

namespace sluice::worker {

std::optional<void*> GenericCalls::Handles::driver_object(sluice_handle_kind kind,
                                                          uint64_t guest_handle) {
  std::lock_guard lock(s.mutex);
  auto object = s.handles.find(kind, guest_handle);
  if (!object) return std::nullopt;
  switch (kind) {
    case SLUICE_HANDLE_CONTEXT:
      return static_cast<ContextObject&>(*object).cu;
    case SLUICE_HANDLE_MODULE:
      return static_cast<ModuleObject&>(*object).cu;
    case SLUICE_HANDLE_FUNCTION:
      return static_cast<FunctionObject&>(*object).original;
    case SLUICE_HANDLE_STREAM:
      return static_cast<StreamObject&>(*object).cu;
    case SLUICE_HANDLE_EVENT:
      return static_cast<EventObject&>(*object).cu;
    default:
      return std::nullopt;
  }
}

bool GenericCalls::Handles::has_room(sluice_handle_kind) { return false; }
uint64_t GenericCalls::Handles::add(sluice_handle_kind, void*) {
  SLUICE_CHECK(!"a row that makes a handle has no method");
  return 0;
}
void GenericCalls::Handles::remove(uint64_t) {
  SLUICE_CHECK(!"a row that ends a handle has no method");
}

bool GenericCalls::owns_device_address(CUdeviceptr guest_address) {
  std::lock_guard lock(s.mutex);
  return s.memory.owns_range(guest_address, 0);
}

bool GenericCalls::charge_or_park(uint64_t charge, ChargeKind kind) {
  if (s.control.device().charge(charge, kind)) return true;
  park(worker_protocol::kDeviceMemory, s.control.device().lacking(charge));
  return false;
}

CUresult GenericCalls::as_job() {
  s.jobs.post(generic_job(s, call, body));
  return kParked;
}

void GenericCalls::park(worker_protocol::Resource resource, uint64_t lacking) {
  s.charges.ask_lease(
      lacking,
      [&session = s, again = call, job = generic_job(s, call, body)](bool granted) {
        if (!granted) return session.answer(again, CUDA_ERROR_OUT_OF_MEMORY);
        session.jobs.post(job);
      },
      resource);
}

// A program that goes by them sets nothing of the cache aside (cuCtxSetLimit).
CUresult GenericCalls::cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                            CUdevice dev) {
  int real = 0;
  const CUresult r = s.api.cuDeviceGetAttribute(&real, attribute, dev);
  const bool of_all_contexts = attribute == CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE ||
                               attribute == CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE;
  if (r == CUDA_SUCCESS && value) *value = of_all_contexts ? 0 : real;
  return value ? r : CUDA_ERROR_INVALID_VALUE;
}

CUresult GenericCalls::cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  size_t real = 0;
  CUresult r = s.api.cuDeviceTotalMem(&real, dev);
  if (r == CUDA_SUCCESS && bytes) *bytes = std::min<size_t>(real, s.setup.start.memory_limit_bytes);
  return bytes ? r : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace sluice::worker
