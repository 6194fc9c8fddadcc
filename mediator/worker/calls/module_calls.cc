// SPDX-License-Identifier: Apache-2.0
// Custom calls that load modules, find functions, and borrow extents of the region.
#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/worker/calls/custom_calls.h"
#include "mediator/worker/modules/load.h"

namespace sluice::worker {

namespace {
constexpr uint32_t kMaxLogBytes = 4096;
}  // namespace

void handle_module_load(WorkerSession& s, const Call& call, const sluice_module_load& m,
                        std::span<const std::byte> text) {
  if (m.log_bytes > kMaxLogBytes) s.violation("module_load: log");
  if (m.bulk.bytes == 0) {
    return s.jobs.post(
        [&s, call, log = m.log_bytes,
         ptx = std::string(reinterpret_cast<const char*>(text.data()), text.size())]() mutable {
          load_module(s, call, std::move(ptx), log);
        });
  }
  if (m.bulk.bytes > s.setup.limits.module_bytes) return s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  {
    std::lock_guard lock(s.mutex);
    if (!s.memory.owns_region(m.bulk.offset, m.bulk.bytes)) s.violation("module_load: bulk range");
  }
  // Copied in the job: while it is not answered the program keeps the range; if it does not, only
  // its own text is spoilt, and only before the copy.
  s.jobs.post([&s, call, log = m.log_bytes, bulk = m.bulk] {
    std::string ptx;
    {
      std::lock_guard lock(s.mutex);
      if (!s.memory.owns_region(bulk.offset, bulk.bytes))
        return s.answer(call, CUDA_ERROR_INVALID_VALUE);
    }
    ptx.assign(reinterpret_cast<const char*>(s.setup.region + bulk.offset), bulk.bytes);
    load_module(s, call, std::move(ptx), log);
  });
}

void handle_function_get(WorkerSession& s, const Call& call, const sluice_function_get& g,
                         std::span<const std::byte> text) {
  std::string name(reinterpret_cast<const char*>(text.data()), text.size());
  if (name.empty() || name.find('\0') != std::string::npos)
    return s.answer(call, CUDA_ERROR_NOT_FOUND);
  s.jobs.post([&s, call, g, name = std::move(name)] {
    get_function(s, call, g.module, name, g.flags, g.state_bytes);
  });
}

void handle_function_clones(WorkerSession& s, const Call& call, const sluice_function_clones& c,
                            std::span<const std::byte> tail) {
  if (tail.size() % sizeof(uint64_t) != 0) s.violation("function_clones: addresses");
  s.jobs.post([&s, call, c, addresses = std::vector(tail.begin(), tail.end())]() mutable {
    add_clones(s, call, c, std::move(addresses));
  });
}

void handle_extent_alloc(WorkerSession& s, const Call& call, const sluice_extent& e,
                         std::span<const std::byte> tail) {
  if (e.bytes == 0) return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  if (e.bytes > s.setup.start.region_bytes || s.control.lost())
    return s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  std::lock_guard lock(s.mutex);
  if (s.control.extents_waiting() >= s.setup.limits.parked_calls)
    s.violation("extent_alloc: too many");
  const uint64_t bytes =
      (e.bytes + SLUICE_EXTENT_BYTES - 1) / SLUICE_EXTENT_BYTES * SLUICE_EXTENT_BYTES;
  s.control.ask_extent(bytes, [&s, call](std::optional<sluice_bulk> range) {
    if (!range) return s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
    {
      std::lock_guard relock(s.mutex);
      s.memory.add_extent(range->offset, range->bytes);
    }
    s.jobs.post([&s, call, lent = *range] {
      s.pin_extent(lent.offset, lent.bytes);
      s.answer(call, CUDA_SUCCESS, std::as_bytes(std::span(&lent, 1)));
    });
  });
}

void handle_extent_free(WorkerSession& s, const Call& call, const sluice_bulk& b,
                        std::span<const std::byte> tail) {
  std::lock_guard lock(s.mutex);
  // The staging extents are the session's as long as it lives. From here on no copy may name it.
  if (b.offset == s.setup.start.staging_offset || !s.memory.remove_extent(b.offset, b.bytes))
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  s.post_after_sync_all([&s, call, b] {
    std::shared_ptr<ContextObject> context;
    {
      std::lock_guard relock(s.mutex);
      context = s.any_context();
    }
    if (s.pinned.forget_extent(b.offset) && context &&
        make_current(s.api, context->cu) == CUDA_SUCCESS)
      s.pinned.unpin_extent(b.offset);
    worker_protocol::Message m{};
    m.type = worker_protocol::Type::kExtentReturn;
    m.offset = b.offset;
    m.bytes = b.bytes;
    s.control.send(m);
    s.answer(call, CUDA_SUCCESS);
  });
  s.after_engine();
}

}  // namespace sluice::worker
