// SPDX-License-Identifier: Apache-2.0
// What the guest's libcuda tells people. SLUICE_LOG names a file, or "stderr", for everything;
// without it only complaints appear, on stderr. Any thread; never fails, never throws.
#pragma once

namespace sluice::guest {

// Worth a person's attention in any case: each text at most once per process.
void complain_once(const char* text);

// Detail, only where SLUICE_LOG asks for it. printf's format.
bool logging();
[[gnu::format(printf, 1, 2)]] void log_line(const char* format, ...);

// A line of SLUICE_TRACE: to the same place, without SLUICE_LOG to stderr.
[[gnu::format(printf, 1, 2)]] void trace_line(const char* format, ...);

// Says by name, once, that a call is not offered; returns CUDA_ERROR_NOT_SUPPORTED as a number.
int not_supported(const char* function, const char* detail = nullptr);

}  // namespace sluice::guest
