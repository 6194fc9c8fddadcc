// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/modules/clones.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/wire.h"
#include "guest-agent/shim/modules/module_registry.h"
#include "guest-agent/shim/session/log.h"
#include "guest-agent/shim/state/api.h"
#include "kernels/passes/rewrite.h"

namespace sluice::guest {
namespace {

// What of a FunctionInfo is needed, which may go meanwhile.
struct FunctionName {
  uint64_t handle, module;
  std::string name;
};

// Those of a module's variables that a kernel reaches and the driver knows.
struct Elsewhere {
  std::vector<std::string> names;
  std::vector<uint64_t> addresses;
};

Elsewhere variables_of(const Entered& e, const FunctionName& function,
                       std::vector<std::string> names) {
  Elsewhere found;
  for (std::string& name : names) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    const CUresult r = SLUICE_CALL(cuModuleGetGlobal_v2, *e.link, e.context, &address, &bytes,
                                   reinterpret_cast<CUmodule>(function.module), name.c_str());
    if (r != CUDA_SUCCESS) continue;
    found.names.push_back(std::move(name));
    found.addresses.push_back(address);
  }
  return found;
}

CUresult give_clones(const Entered& e, sluice_function_clones body,
                     const std::vector<uint64_t>& addresses) {
  body.address_bytes = static_cast<uint32_t>(addresses.size() * sizeof addresses[0]);
  Pending pending;
  Traced traced(SLUICE_CALL_FUNCTION_CLONES, body);
  return traced.end(e.link->call(
      SLUICE_CALL_FUNCTION_CLONES, e.context, sizeof body + body.address_bytes,
      [&](std::byte* to) {
        std::memcpy(to, &body, sizeof body);
        if (!addresses.empty()) std::memcpy(to + sizeof body, addresses.data(), body.address_bytes);
      },
      pending));
}

// Empty: it has clones. Else why not. `more`: the worker may want other forms.
std::string try_to_make(const Entered& e, const FunctionName& function,
                        const ptx::SeparableModule& module, passes::Forms forms, bool* more) {
  const ptx::SeparableModule::Reached reached = module.reached_from(function.name);
  const Elsewhere variables = variables_of(e, function, module.variables_of(reached));
  auto text = module.kernel_text(reached, variables.names);
  if (!text) return text.error().message;
  passes::RewriteOptions options;
  options.forms = forms;
  options.alone = e.link->channel().forms_apart();
  auto rewritten = passes::rewrite_module(*std::move(text), options);
  if (!rewritten) return rewritten.error().message;
  for (const passes::KernelReport& kernel : rewritten->kernels) {
    if (kernel.name != function.name) continue;
    const bool others = forms == passes::Forms::kOthers;
    if (!others)
      log_line("kernel %s: %s%s%s", kernel.name.c_str(), passes::tier_name(kernel.tier),
               kernel.reason.empty() ? "" : ": ", kernel.reason.c_str());
    if (!kernel.evictable || (others && !kernel.one_task_too && !kernel.windows_too)) return "";
    const auto loaded = module.loadable(rewritten->text, variables.addresses.size());
    if (!loaded) return loaded.error().message;
    uint64_t handle = 0;
    std::string log;
    CUresult r = send_text(*e.link, e.context, *loaded, &handle, &log);
    if (r != CUDA_SUCCESS) return "they do not load (" + std::to_string(r) + "): " + log;
    const KernelFlags flags = flags_of(kernel);
    sluice_function_clones body{};
    body.function = function.handle;
    body.module = handle;
    body.flags = flags.flags | (others ? SLUICE_FUNCTION_OTHER_FORMS : 0);
    if (forms == passes::Forms::kFirst && kernel.may_have_others)
      body.flags |= SLUICE_FUNCTION_OTHERS_LATER;
    body.state_bytes = flags.state_bytes;
    r = give_clones(e, body, variables.addresses);
    *more = r == CUDA_SUCCESS && (body.flags & SLUICE_FUNCTION_OTHERS_LATER);
    if (r == CUDA_SUCCESS) return "";
    SLUICE_CALL(cuModuleUnload, *e.link, e.context, reinterpret_cast<CUmodule>(handle));
    return "the worker refuses them: " + std::to_string(r);
  }
  return "it is not in its module";
}

// The functions whose clones are asked for, and the thread that makes them. Never destroyed.
class Maker {
 public:
  // A launch's part.
  void wait_for(const Entered& e, FunctionInfo& function) {
    std::unique_lock lock(mutex_);
    if (function.clones.load(std::memory_order_relaxed) == ClonesState::kAbsent) {
      function.clones = ClonesState::kAsked;
      const Channel& channel = e.link->channel();
      ask(e, {function.handle, e.context,
              channel.forms_apart() && !channel.clones_on_request() ? passes::Forms::kFirst
                                                                    : passes::Forms::kAll});
    }
    const auto settled = [&] {
      return function.clones.load(std::memory_order_relaxed) != ClonesState::kAsked;
    };
    if (made_.wait_for(lock, patient_ ? kPatience : kPatience.zero(), settled)) return;
    function.clones = ClonesState::kLate;
    made_.notify_all();
    log_line("kernel %s: launched before its clones are there", function.name.c_str());
  }
  void ask_for_others(const Entered& e, FunctionInfo& function) {
    std::lock_guard lock(mutex_);
    // While a module is loaded, other calls that the worker makes one by one wait, too.
    if (!function.others_later.exchange(false) || !patient_) return;
    ask(e, {function.handle, e.context, passes::Forms::kOthers});
  }
  void lose_patience() { patient_ = false; }

 private:
  struct Asked {
    uint64_t function, context;
    passes::Forms forms;
  };
  // Longer: a program that writes what its own launch waits for only after cuLaunchKernel has
  // returned stands still for as long. Shorter: kernels that take long to assemble cannot be
  // evicted in their first launches.
  static constexpr std::chrono::seconds kPatience{2};

  // With the lock held.
  void ask(const Entered& e, const Asked& asked) {
    asked_.push_back(asked);
    if (!started_) start(*e.link);
    work_.notify_one();
  }

  void start(WorkerLink& link) {
    started_ = true;
    // The program's signals are for the program's threads.
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    std::thread([this, &link] { run(link); }).detach();
    ++WorkerLink::own_threads();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void run(WorkerLink& link) {
    pthread_setname_np(pthread_self(), "sluice-clones");
    for (;;) {
      Asked next;
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [&] { return !asked_.empty(); });
        next = asked_.front();
        asked_.pop_front();
      }
      make({&link, next.context, CUDA_SUCCESS}, next.function, next.forms);
    }
  }

  // Without a lock while the worker loads: the program may unload the module meanwhile, and then
  // the worker knows the function no more.
  void make(const Entered& e, uint64_t handle, passes::Forms forms) {
    std::shared_ptr<const ptx::SeparableModule> module;
    FunctionName function{handle, 0, ""};
    {
      std::lock_guard lock(all_modules().mutex);
      const FunctionInfo* info = state().functions.find(handle);
      if (info == nullptr) return;
      function.module = info->module;
      function.name = info->name;
      const auto found = all_modules().modules.find(info->module);
      if (found != all_modules().modules.end()) module = found->second.separable;
    }
    bool more = false;
    const std::string why =
        module ? try_to_make(e, function, *module, forms, &more) : "its module has gone";
    if (forms == passes::Forms::kOthers) {
      if (!why.empty()) log_line("other forms of %s: %s", function.name.c_str(), why.c_str());
      return;
    }
    std::scoped_lock lock(all_modules().mutex, mutex_);
    FunctionInfo* info = state().functions.find(handle);
    // Autotuners (XLA's) unload what they have timed; then the worker knows the function no more.
    if (!why.empty() && info == nullptr)
      log_line("kernel %s: unloaded before its clones are there", function.name.c_str());
    else if (!why.empty())
      log_line("kernel %s: no clones: %s", function.name.c_str(), why.c_str());
    if (info != nullptr) {
      info->others_later = more;
      info->clones = ClonesState::kSettled;
    }
    made_.notify_all();
  }

  std::atomic<bool> patient_{true};
  std::mutex mutex_;
  std::condition_variable work_, made_;
  std::deque<Asked> asked_;
  bool started_ = false;
};

Maker& maker() {
  static auto* it = new Maker;
  return *it;
}

}  // namespace

void wait_for_clones(const Entered& e, FunctionInfo& function) { maker().wait_for(e, function); }
void ask_for_other_forms(const Entered& e, FunctionInfo& function) {
  maker().ask_for_others(e, function);
}
void streams_wait_for_the_program() { maker().lose_patience(); }

}  // namespace sluice::guest
