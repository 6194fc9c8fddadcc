// SPDX-License-Identifier: Apache-2.0
// A worker that a guest has taken over, and that keeps the GPU: the real program, with a proxy
// between it and sluiced.
//
//   sluiced ◀──▶ proxy (child) ◀──▶ sluice-worker (this process, which sluiced knows)
//
//   its gate     its host page is the proxy's, where the gate is always open, in the generation
//                that sluiced gave last
//   its slices   what sluiced sends is replaced (overstay), or sent again and again (reset)
#pragma once

#include <cstdint>
#include <string>

namespace sluice::adversary {

// Before anything was received. Returns only if it fails, with why.
struct Overstay {
  uint64_t slice_ns = 0;  // in place of each that sluiced sends; 0: those
  uint64_t again_us = 0;  // the last one is sent again so often; 0: never
};
std::string overstay(const Overstay& how);

}  // namespace sluice::adversary
