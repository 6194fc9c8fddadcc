// SPDX-License-Identifier: Apache-2.0
// Moving memory to a file while this process goes on using it.
#pragma once

#include <cstdint>
#include <span>

#include "mediator/base/result.h"

namespace sluice::softgpu {

// Puts the first `bytes` of `file` in the place of as many bytes at `pages`, with what is in them.
// Threads that write there meanwhile wait, in the handler of SIGSEGV; system calls that do fail
// with EFAULT. `within`: memory that holds the pages and is never read-only but for this; the same
// in each call. One call at a time.
Result<void> move_pages(void* pages, uint64_t bytes, int file, std::span<char> within);

}  // namespace sluice::softgpu
