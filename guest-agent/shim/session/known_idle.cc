// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/session/known_idle.h"

#include "abi/cuda_calls.h"

namespace sluice::guest {

Effect effect_of(uint16_t opcode) {
  if (!calls::is_custom(opcode)) {
    const bool queued = calls::call_status(opcode) == calls::Status::kQueued;
    return {queued ? Effect::kWork : Effect::kNothing, Effect::kAll};
  }
  switch (opcode) {
    case SLUICE_CALL_MODULE_LOAD:
    case SLUICE_CALL_FUNCTION_GET:
    case SLUICE_CALL_FUNCTION_CLONES:
    case SLUICE_CALL_EXTENT_ALLOC:
    case SLUICE_CALL_EXTENT_FREE:
    case SLUICE_CALL_HOST_FUNC_DONE:
    case SLUICE_CALL_CLUSTERS:
      return {Effect::kNothing, 0};
  }
  return {Effect::kWork, Effect::kAll};
}

}  // namespace sluice::guest
