// SPDX-License-Identifier: Apache-2.0
#include "mediator/softgpu/state/state.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "mediator/base/clock.h"
#include "mediator/softgpu/grid/child_grids.h"

namespace sluice::softgpu {
namespace {

std::atomic<State*> g_state{nullptr};
// The state after exit: still reachable, so that leak checkers see that it is kept, not lost.
std::atomic<State*> g_stopped{nullptr};
std::atomic<int> g_gone{0};  // a CUresult: why there is no state any more
std::atomic<exec::Checker*> g_checker{nullptr};
std::once_flag g_once;
CUresult g_init_result = CUDA_ERROR_NOT_INITIALIZED;

void say(const std::string& line) {
  const std::string text = "softgpu: " + line + "\n";
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

// A child has none of our threads, and locks in whatever state they were.
void forget_in_child() {
  g_gone.store(CUDA_ERROR_NOT_INITIALIZED);
  g_state.store(nullptr);
}

void stop_at_exit() {
  g_gone.store(CUDA_ERROR_DEINITIALIZED);
  State* s = g_state.exchange(nullptr);
  if (s == nullptr) return;
  s->scheduler.stop();
  s->runner.stop();
  if (s->checker != nullptr) {
    s->checker->report_leaks();
    const std::string summary = s->checker->summary();
    say("check: " + (summary.empty() ? "nothing found" : summary));
  }
  // Never deleted: another thread of the program may still be inside a call.
  g_stopped.store(s);
}

CUresult initialise_once() {
  Result<Config> config = config_from_environment();
  if (!config) {
    say(config.error().message);
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  auto check = exec::CheckOptions::parse(config->check);
  if (!check) {
    say("SLUICE_SOFT_CHECK: " + check.error().message);
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  auto gpu = SharedGpu::open(*config);
  if (!gpu) {
    say(gpu.error().message);
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  auto s = std::make_unique<State>(*config, *std::move(gpu));
  s->resource_key = monotonic_ns() ^ static_cast<uint64_t>(config->pid) << 40;
  if (auto made = Arena::make(s->gpu->memory_bytes(), s->arena); !made) {
    say(made.error().message);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!config->log.empty() && config->log != "stderr") {
    s->log_file.reset(::open(config->log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  }
  if (check->any()) {
    auto tell = exec::make_finding_output(config->check_log);
    if (!tell) {
      say("SLUICE_SOFT_CHECK_LOG: " + tell.error().message);
      return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    s->checker = std::make_unique<exec::Checker>(*check, *std::move(tell));
    s->runner.check_with(s->checker.get());
    g_checker.store(s->checker.get());
  }
  ::pthread_atfork(nullptr, nullptr, forget_in_child);
  std::atexit(stop_at_exit);
  g_state.store(s.release());
  return CUDA_SUCCESS;
}

}  // namespace

CUresult initialise() {
  std::call_once(g_once, [] { g_init_result = initialise_once(); });
  if (const int gone = g_gone.load(); gone != 0) return static_cast<CUresult>(gone);
  return g_init_result;
}

exec::Checker* checker() { return g_checker.load(std::memory_order_acquire); }

State* state(CUresult& status) {
  State* s = g_state.load(std::memory_order_acquire);
  if (s == nullptr) {
    const int gone = g_gone.load();
    status = gone != 0 ? static_cast<CUresult>(gone) : CUDA_ERROR_NOT_INITIALIZED;
  }
  return s;
}

void State::log(const std::string& line) {
  if (config.log.empty()) return;
  if (config.log == "stderr") return say(line);
  const std::string text = line + "\n";
  if (!log_file || ::write(log_file.get(), text.data(), text.size()) < 0) say(line);
}

// The destructors of a program's own objects may call us after the thread's stack is gone: then
// nothing is current, and what they make current is kept apart and never destroyed.
std::vector<Current>& context_stack() {
  thread_local bool ended = false;
  struct Stack {
    std::vector<Current> contexts;
    ~Stack() { ended = true; }
  };
  if (ended) {
    thread_local std::vector<Current>* late = nullptr;
    if (late == nullptr) late = new std::vector<Current>;
    return *late;
  }
  thread_local Stack stack;
  return stack.contexts;
}

Current current() {
  const std::vector<Current>& stack = context_stack();
  return stack.empty() ? Current{} : stack.back();
}

Current find_context(State& s, CUcontext handle) {
  if (std::shared_ptr<GreenContext> green = s.tables.green_views.find(handle))
    return {green->context, green};
  return {s.tables.contexts.find(handle), nullptr};
}

void Context::fail(CUresult result, const std::string& why) {
  {
    std::lock_guard lock(mutex);
    int none = 0;
    if (!error.compare_exchange_strong(none, result)) return;
    fault = why;
  }
  CUresult ignored;
  if (State* s = state(ignored)) s->log(why);
}

Result<std::shared_ptr<Context>> make_context(State& s, unsigned flags, bool primary) {
  Result<unsigned> slot = s.gpu->join();
  if (!slot) return std::move(slot).error();
  if (!s.gpu->reserve_memory(*slot, SLUICE_SOFT_CONTEXT_BYTES)) {
    s.gpu->leave(*slot);
    return Error{ENOMEM, "no device memory for a context"};
  }
  s.gpu->stand_still(uint64_t{s.config.context_stall_us} * 1000);
  auto context = std::make_shared<Context>();
  context->flags = flags;
  context->primary = primary;
  context->slot = *slot;
  context->limits = {{CU_LIMIT_STACK_SIZE, exec::kDefaultStackBytes},
                     {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                     {CU_LIMIT_MALLOC_HEAP_SIZE, exec::kDefaultHeapBytes},
                     {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, kMostWaitingChildren},
                     {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
                     {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
  context->legacy = std::make_shared<Stream>();
  context->legacy->context = context;
  context->legacy->legacy = true;
  context->legacy->id = 1;
  s.scheduler.add_stream(*context, context->legacy);
  // NVIDIA's driver gives a device's primary context the same handle each time; a thread that had
  // the former one current gets "destroyed" until it sets the new one.
  context->handle = primary ? s.tables.contexts.add_again(context) : s.tables.contexts.add(context);
  std::lock_guard lock(s.mutex);
  context->id = s.next_context_id++;
  for (const auto& [base, range] : s.host_ranges) {
    (void)context->map.add(base, range.bytes, range.writable).ok();
  }
  for (const auto& [base, bytes] : s.virtual_memory.ranges.reservations())
    context->map.replace(base, bytes, s.virtual_memory.runs(base));
  std::erase_if(s.live_contexts, [](const auto& weak) { return weak.expired(); });
  s.live_contexts.push_back(context);
  return context;
}

std::shared_ptr<Context> retain_primary(State& s) {
  std::unique_lock lock(s.mutex);
  while (s.primary == nullptr) {
    const unsigned flags = s.primary_flags;
    lock.unlock();
    auto context = make_context(s, flags, true);
    if (!context) return nullptr;
    lock.lock();
    if (s.primary == nullptr) {
      s.primary = *context;
    } else {  // another thread was faster
      lock.unlock();
      destroy_context(s, *context);
      lock.lock();
    }
  }
  ++s.primary_uses;
  return s.primary;
}

CUresult release_primary(State& s, const Context* which, bool all) {
  std::shared_ptr<Context> last;
  {
    std::lock_guard lock(s.mutex);
    if (which != nullptr && s.primary.get() != which) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (all) {
      // As NVIDIA's driver (580).
      if (s.primary != nullptr && s.green_contexts != 0) return CUDA_ERROR_NOT_PERMITTED;
      s.primary_uses = 0;
    } else if (s.primary_uses == 0) {
      return CUDA_ERROR_INVALID_CONTEXT;
    } else if (--s.primary_uses != 0) {
      return CUDA_SUCCESS;
    }
    last = std::move(s.primary);
    s.primary = nullptr;
  }
  if (last) destroy_context(s, last);
  return CUDA_SUCCESS;
}

void destroy_context(State& s, const std::shared_ptr<Context>& context) {
  if (context->destroyed.exchange(true)) return;
  (void)(context->primary ? s.tables.contexts.vacate(context->handle)
                          : s.tables.contexts.remove(context->handle));
  s.scheduler.wait(*context);
  s.gpu->stand_still(uint64_t{s.config.context_stall_us} * 1000);
  std::unordered_map<CUmodule, std::shared_ptr<Module>> modules;
  {
    std::lock_guard lock(context->mutex);
    modules.swap(context->modules);
  }
  for (const auto& [handle, module] : modules) drop_module(s, module);
  if (s.checker != nullptr) {
    std::map<uint64_t, uint64_t> left;
    {
      std::lock_guard lock(context->mutex);
      left = context->allocations;
    }
    s.checker->report_leaks([&left](uint64_t base) { return left.count(base) != 0; });
  }
  const auto is_its = [&](const auto& object) { return object.context.lock() == context; };
  s.tables.streams.remove_if(is_its);
  s.tables.events.remove_if(is_its);
  s.tables.arrays.remove_if(is_its);
  s.tables.mipmaps.remove_if(is_its);
  for (;;) {
    uint64_t base;
    {
      std::lock_guard lock(context->mutex);
      if (context->allocations.empty()) break;
      base = context->allocations.begin()->first;
    }
    free_device(s, *context, base);
  }
  while (!context->imports.empty()) close_import(*context, context->imports.begin()->first);
  {
    std::lock_guard lock(s.mutex);
    std::erase_if(s.textures, [&](const auto& t) { return t.second.context.lock() == context; });
    std::erase_if(s.live_contexts,
                  [&](const auto& weak) { return weak.expired() || weak.lock() == context; });
  }
  s.gpu->leave(context->slot);
}

std::shared_ptr<Stream> find_stream(State& s, CUstream handle) {
  if (handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD)
    return s.tables.streams.find(handle);
  const Current top = current();
  if (handle != CU_STREAM_PER_THREAD)
    return top.green ? top.green->default_stream : top.context->legacy;
  if (top.green) return nullptr;
  Context& context = *top.context;
  std::shared_ptr<Stream> stream;
  {
    std::lock_guard lock(context.mutex);
    std::shared_ptr<Stream>& mine = context.per_thread[std::this_thread::get_id()];
    if (mine) return mine;
    mine = std::make_shared<Stream>();
    mine->context = top.context;
    mine->id = 2;
    stream = mine;
  }
  s.scheduler.add_stream(context, stream);
  return stream;
}

std::shared_ptr<Stream> make_stream(State& s, const std::shared_ptr<Context>& context,
                                    const std::shared_ptr<GreenContext>& green, unsigned flags,
                                    int priority) {
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->green = green;
  stream->green_id = green ? green->id : 0;
  // Measured on an H200: a green context's default stream does not wait for streams made without
  // the flag while the context was current.
  stream->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0 && !green;
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  {
    std::lock_guard lock(s.mutex);
    stream->id = s.next_stream_id++;
  }
  s.scheduler.add_stream(*context, stream);
  return stream;
}

uint64_t allocate_device(State& s, Context& context, uint64_t bytes) {
  if (!s.gpu->reserve_memory(context.slot, bytes)) return 0;
  const uint64_t base = s.arena.allocate(bytes);
  if (base == 0) {
    s.gpu->release_memory(context.slot, bytes);
    return 0;
  }
  {
    std::lock_guard lock(context.mutex);
    if (!context.destroyed.load()) {
      context.allocations.emplace(base, bytes);
      const uint64_t room = s.checker != nullptr ? 0 : Arena::room_behind(bytes);
      (void)context.map.add(base, bytes, true, room).ok();
      if (s.checker != nullptr) s.checker->on_allocate(base, bytes, s.calls.load());
      return base;
    }
  }
  s.arena.free(base);
  s.gpu->release_memory(context.slot, bytes);
  return 0;
}

bool free_device(State& s, Context& context, uint64_t base) {
  uint64_t bytes;
  {
    std::lock_guard lock(context.mutex);
    const auto it = context.allocations.find(base);
    if (it == context.allocations.end()) return false;
    bytes = it->second;
    context.allocations.erase(it);
    context.managed.erase(base);
    context.variables.erase(base);
    context.map.remove(base);
    if (s.checker != nullptr) s.checker->on_free(base, s.calls.load());
  }
  s.arena.free(base);
  s.gpu->release_memory(context.slot, bytes);
  return true;
}

}  // namespace sluice::softgpu
