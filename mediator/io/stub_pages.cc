// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/stub_pages.h"

#include <fcntl.h>

#include <atomic>

#include "mediator/base/unix_socket.h"

namespace sluice::io {
namespace {

Result<void> make_area(const char* name, size_t bytes, bool writable, int seals, Fd& fd,
                       Mapping& map) {
  auto memory = make_memfd(name, bytes);
  if (!memory) return memory.error();
  auto mapping = Mapping::map(memory->get(), bytes, writable);
  if (!mapping) return mapping.error();
  // After our own mapping: F_SEAL_FUTURE_WRITE leaves it writable and refuses every later one.
  if (auto sealed = seal(memory->get(), seals); !sealed) return sealed.error();
  fd = std::move(*memory);
  map = std::move(*mapping);
  return {};
}

}  // namespace

Result<StubPages> StubPages::make() {
  StubPages p;
  static_assert(sizeof(sluice_host_page) <= SLUICE_STUB_PAGE_BYTES);
  static_assert(sizeof(sluice_signal_page) <= SLUICE_STUB_PAGE_BYTES);
  static_assert(sizeof(sluice_report_header) <= SLUICE_REPORT_BYTES);
  static_assert(sizeof(sluice_launch_records) <= SLUICE_RECORDS_BYTES);
  if (auto r = make_area("sluice-host", SLUICE_STUB_PAGE_BYTES, true, F_SEAL_FUTURE_WRITE,
                         p.host_fd_, p.host_);
      !r)
    return r.error();
  if (auto r = make_area("sluice-signal", SLUICE_STUB_PAGE_BYTES, true, 0, p.signal_fd_, p.signal_);
      !r)
    return r.error();
  if (auto r = make_area("sluice-report", SLUICE_REPORT_BYTES, false, 0, p.report_fd_, p.report_);
      !r)
    return r.error();
  if (auto r =
          make_area("sluice-records", SLUICE_RECORDS_BYTES, false, 0, p.records_fd_, p.records_);
      !r)
    return r.error();
  return p;
}

void StubPages::set_grant(uint64_t word) {
  std::atomic_ref<uint64_t>(host().grant).store(word, std::memory_order_seq_cst);
}
void StubPages::set_evict(uint64_t word) {
  std::atomic_ref<uint64_t>(signal().evict).store(word, std::memory_order_seq_cst);
}
void StubPages::set_sms(uint32_t generation, const SmSet& sms) {
  for (uint32_t i = 0; i < SmSet::kWords; ++i)
    std::atomic_ref<uint64_t>(host().sms[generation & 1][i])
        .store(sms.word(i), std::memory_order_seq_cst);
}
void StubPages::beat(uint64_t now_ns) {
  std::atomic_ref<uint64_t>(host().heartbeat_ns).store(now_ns, std::memory_order_relaxed);
}

}  // namespace sluice::io
