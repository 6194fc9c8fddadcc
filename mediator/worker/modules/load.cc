// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/modules/load.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "kernels/cubin/cubin.h"
#include "mediator/base/find_text.h"
#include "mediator/worker/launch/plan/register_clamp.h"
#include "mediator/worker/modules/size.h"

namespace sluice::worker {

namespace {

// PTX is text. Anything else but a cubin that was checked (a fat binary) would have the driver read
// lengths out of the guest's bytes.
bool looks_like_text(const std::string& ptx) {
  if (ptx.empty() || ptx.find('\0') != std::string::npos) return false;
  const auto first = static_cast<unsigned char>(ptx[0]);
  return first == '\t' || first == '\n' || first == '\r' || (first >= 0x20 && first < 0x7f);
}

// What a module takes of memory, or why it is none.
struct Needs {
  uint64_t device, host;
};
Result<Needs> needs_of_ptx(const std::string& ptx) {
  if (!looks_like_text(ptx)) return Error{CUDA_ERROR_INVALID_IMAGE, "neither PTX nor a cubin"};
  const ModuleBytes bytes = module_bytes(ptx);
  if (bytes.device) return Needs{*bytes.device, bytes.host};
  return Error{CUDA_ERROR_INVALID_PTX, "a module variable's size is not known"};
}

Result<Needs> needs_of_cubin(const std::string& image) {
  auto read = cubin::read(image);
  if (!read) return std::move(read).error();
  return Needs{read->device_bytes, cubin_host_bytes(image)};
}

constexpr uint32_t kMaxParamCount = 4096;

// Whether a clone takes the original's parameters, then the loop's block, and no more. The driver
// reads a parameter's bytes where its pointer points, so what a clone of the guest's says decides
// how much is read.
bool takes_block_too(const gpu::DriverApi& api, CUfunction clone,
                     std::span<const ParamPlace> original) {
  size_t offset = 0, bytes = 0;
  for (size_t i = 0; i <= original.size(); ++i) {
    const size_t wanted = i < original.size() ? original[i].bytes : SLUICE_PREEMPT_PARAMS_BYTES;
    if (api.cuFuncGetParamInfo(clone, i, &offset, &bytes) != CUDA_SUCCESS || bytes != wanted)
      return false;
  }
  return api.cuFuncGetParamInfo(clone, original.size() + 1, &offset, &bytes) ==
         CUDA_ERROR_INVALID_VALUE;
}

// The forms of a kernel that its module may have beside the original, each behind those it needs.
struct Form {
  const char* suffix;  // of the kernel's name
  bool clamped;        // the copy with fewer registers
  CUfunction FunctionObject::*to;
  CUfunction FunctionObject::*needs;  // the form that has to be there
  // Which kernels have none, beside those that lack what it needs.
  bool once, resumable, in_order;
};
constexpr Form kKernelForms[] = {
    {SLUICE_CLONE_SUFFIX, false, &FunctionObject::clone, nullptr, false, false, false},
    {SLUICE_CLONE_SUFFIX, true, &FunctionObject::clamped, &FunctionObject::clone, false, false,
     false},
    {SLUICE_ONE_TASK_SUFFIX, false, &FunctionObject::one_task, &FunctionObject::clone, true, true,
     false},
    {SLUICE_ONE_TASK_SUFFIX, true, &FunctionObject::one_task_clamped, &FunctionObject::one_task,
     true, true, false},
    {SLUICE_WINDOW_SUFFIX, false, &FunctionObject::window, &FunctionObject::clone, true, true,
     true},
};

// Finds a kernel's forms in `module`, where they are. None for one whose launches would write
// beyond the state they are given.
// With SLUICE_FUNCTION_OTHER_FORMS those that are there stay.
void find_forms(const gpu::DriverApi& api, const ModuleObject& module, uint32_t guest_flags,
                uint32_t state_bytes, FunctionObject* f) {
  const bool others = guest_flags & SLUICE_FUNCTION_OTHER_FORMS;
  const bool resumable = guest_flags & SLUICE_FUNCTION_RESUMABLE;
  if (resumable && state_bytes > SLUICE_RESUME_MAX_BYTES) return;
  CloneForm clone;
  clone.in_order = guest_flags & SLUICE_FUNCTION_IN_ORDER;
  clone.once = guest_flags & SLUICE_FUNCTION_ONCE;
  clone.resumable = resumable;
  clone.state_bytes = resumable ? state_bytes : clone.state_bytes;
  if (others) clone = f->form;
  for (const Form& form : kKernelForms) {
    if (others && (form.needs == nullptr || form.to == &FunctionObject::clamped)) continue;
    if (form.needs != nullptr && f->*form.needs == nullptr) continue;
    if ((form.once && clone.once) || (form.resumable && clone.resumable) ||
        (form.in_order && clone.in_order))
      continue;
    const std::string name = f->name + form.suffix;
    CUfunction found = nullptr;
    if (form.clamped)
      found = clamped_form(api, module.clamped_in, module.clamped, name);
    else if (api.cuModuleGetFunction(&found, module.cu, name.c_str()) != CUDA_SUCCESS)
      found = nullptr;
    if (found != nullptr && takes_block_too(api, found, f->params)) f->*form.to = found;
  }
  if (f->clone == nullptr || others) return;
  f->form = clone;
  f->slot_dynamic = guest_flags & SLUICE_FUNCTION_SLOT_DYNAMIC;
  f->one_row = guest_flags & SLUICE_FUNCTION_ONE_ROW;
}

uint64_t local_bytes_of(const gpu::DriverApi& api, CUfunction function) {
  int bytes = 0;
  if (function == nullptr ||
      api.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) != CUDA_SUCCESS)
    return 0;
  return static_cast<uint64_t>(std::max(bytes, 0));
}

uint64_t most_local_bytes(const gpu::DriverApi& api, const FunctionObject& f) {
  uint64_t most = local_bytes_of(api, f.original);
  for (const Form& form : kKernelForms) most = std::max(most, local_bytes_of(api, f.*form.to));
  return most;
}

// Fills a module's array of addresses. In a stream of its own: whatever else is queued may wait for
// the program.
CUresult fill_addresses(const gpu::DriverApi& api, CUmodule module,
                        std::span<const std::byte> addresses) {
  CUdeviceptr array = 0;
  size_t bytes = 0;
  CUstream stream = nullptr;
  if (addresses.empty()) return CUDA_SUCCESS;
  CUresult r = api.cuModuleGetGlobal(&array, &bytes, module, SLUICE_ADDRESS_ARRAY);
  if (r == CUDA_SUCCESS && bytes != addresses.size()) r = CUDA_ERROR_INVALID_VALUE;
  if (r == CUDA_SUCCESS) r = api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (r != CUDA_SUCCESS) return r;
  r = api.cuMemcpyHtoDAsync(array, addresses.data(), bytes, stream);
  if (r == CUDA_SUCCESS) r = api.cuStreamSynchronize(stream);
  (void)api.cuStreamDestroy(stream);
  return r;
}

// `charged`: of device memory; 0: there is none. `once`: what one load of it takes.
void load_charged(WorkerSession& s, const Call& call, const std::string& ptx, uint32_t log_bytes,
                  uint64_t charged, uint64_t once, uint64_t host,
                  std::shared_ptr<const ClonesText> alone) {
  auto module = std::make_shared<ModuleObject>();
  module->context = call.context;
  module->charged = charged;
  module->charged_once = std::min(charged, once);
  module->charged_host = host;
  module->machine_code = cubin::is_cubin(std::string_view(ptx));
  std::vector<char> log(std::max<uint32_t>(log_bytes, 1) + 1, 0);
  FittedModule fitted;
  const bool variables = declares_variables(ptx);
  CUresult r = charged == 0           ? CUDA_ERROR_OUT_OF_MEMORY
               : call.context->closed ? CUDA_ERROR_INVALID_CONTEXT
                                      : make_current(s.api, call.context->cu);
  if (r == CUDA_SUCCESS) {
    if (find_text(ptx, "vprintf") != std::string::npos) s.answers.printed.start();
    r = load_fitted(s.api, call.context->device, ptx, std::span(log).first(log.size() - 1), &fitted,
                    charged <= once ? Second::kNone
                    : variables     ? Second::kWhole
                                    : Second::kAlone);
  }
  // Unloading waits for all that the context has queued, and that may wait for the program. So what
  // has no variables, as a kernel's clones of its own have none, stays with its module.
  if (fitted.other != nullptr && variables) {
    (void)s.api.cuModuleUnload(fitted.other);
    fitted.other = nullptr;
  }
  module->cu = fitted.cu;
  module->other = fitted.other;
  module->clamped_in = fitted.clamped_in;
  module->clamped = std::move(fitted.clamped);
  module->clones_alone = std::move(alone);
  {
    std::lock_guard lock(s.mutex);
    if (r == CUDA_SUCCESS) module->handle = s.handles.add(SLUICE_HANDLE_MODULE, module);
    if (module->handle == 0) {
      if (r != CUDA_SUCCESS) s.charges.release_module(*module);
    } else if (charged > once && module->clamped.empty()) {
      s.charges.release_device(charged - once, ChargeKind::kModules);
      module->charged = once;
    }
  }
  if (r != CUDA_SUCCESS) {
    const size_t length = ::strnlen(log.data(), log_bytes);
    return s.answer(call, r, std::as_bytes(std::span(log.data(), length)));
  }
  if (module->handle == 0) {
    (void)s.api.cuModuleUnload(module->cu);
    if (module->other != nullptr) (void)s.api.cuModuleUnload(module->other);
    {
      std::lock_guard lock(s.mutex);
      s.charges.release_module(*module);
    }
    return s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  }
  const sluice_handle_reply reply{module->handle};
  s.answer(call, CUDA_SUCCESS, std::as_bytes(std::span(&reply, 1)));
}

}  // namespace

// Charged before it is compiled. With clones and their originals it may be loaded twice at a time
// (launch/plan/register_clamp.h): for that twice as much is charged meanwhile, or it is loaded once
// only.
void load_module(WorkerSession& s, const Call& call, std::string text, uint32_t log_bytes) {
  if (!call.context || call.context->closed) return s.answer(call, CUDA_ERROR_INVALID_CONTEXT);
  const bool machine = cubin::is_cubin(std::string_view(text));
  const Result<Needs> needs = machine ? needs_of_cubin(text) : needs_of_ptx(text);
  if (!needs) {
    const std::string_view why = needs.error().message;
    return s.answer(call, static_cast<CUresult>(needs.error().code),
                    std::as_bytes(std::span(why.substr(0, log_bytes))));
  }
  const uint64_t once = QuotaLease::charge_for(needs->device), host = needs->host;
  if (once == 0 || once > UINT64_MAX / 2) return s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  const bool clones = !machine && may_have_clones(text);
  const auto ptx = std::make_shared<const std::string>(std::move(text));
  const auto alone = clones ? ClonesText::of(ptx) : nullptr;
  const auto load = [=, &s](bool given) {
    if (!given) {
      std::unique_lock lock(s.mutex);
      s.control.release_host(host);
      lock.unlock();
      return s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
    }
    const auto load_once = [=, &s](bool charged) {
      load_charged(s, call, *ptx, log_bytes, charged ? once : 0, once, host, alone);
    };
    if (!clones || alone != nullptr)
      return s.charges.with_device_memory(once, ChargeKind::kModules, load_once);
    s.charges.with_device_memory(2 * once, ChargeKind::kModules, [=, &s](bool charged) {
      if (!charged) return s.charges.with_device_memory(once, ChargeKind::kModules, load_once);
      load_charged(s, call, *ptx, log_bytes, 2 * once, once, host, nullptr);
    });
  };
  // In this order: what waits for leave, for as long as its vGPU's pace says, holds its text.
  s.charges.with_host_memory(host, [=, &s](bool kept) {
    if (!kept) return s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
    s.charges.with_leave_to_load(load);
  });
}

namespace {

// The original's parameters, and what its kernel is called in the tables of what was learnt.
CUresult describe_original(const gpu::DriverApi& api, FunctionObject& f) {
  f.kernel = 2166136261u;  // FNV-1a: the same in every session
  for (char ch : f.name) f.kernel = (f.kernel ^ static_cast<unsigned char>(ch)) * 16777619u;
  CUresult r = api.cuModuleGetFunction(&f.original, f.module->cu, f.name.c_str());
  if (r != CUDA_SUCCESS) return r;
  for (size_t i = 0; i < kMaxParamCount; ++i) {
    size_t offset = 0, bytes = 0;
    r = api.cuFuncGetParamInfo(f.original, i, &offset, &bytes);
    if (r != CUDA_SUCCESS) break;
    f.params.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    f.param_bytes = std::max(f.param_bytes, static_cast<uint32_t>(offset + bytes));
  }
  if (r != CUDA_ERROR_INVALID_VALUE) return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r;
  return f.params.size() > SLUICE_MAX_PARAMS ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

sluice_function_reply reply_of(const gpu::DriverApi& api, const FunctionObject& f) {
  sluice_function_reply reply{};
  reply.param_count = static_cast<uint32_t>(f.params.size());
  reply.param_bytes = f.param_bytes;
  for (int i = 0; i < 16; ++i) {
    reply.attributes[i] = INT32_MIN;
    int value = 0;
    if (api.cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(i), f.original) ==
        CUDA_SUCCESS) {
      reply.attributes[i] = value;
    }
  }
  return reply;
}

}  // namespace

void get_function(WorkerSession& s, const Call& call, uint64_t guest_module,
                  const std::string& name, uint32_t guest_flags, uint32_t state_bytes) {
  std::shared_ptr<ModuleObject> module;
  {
    std::lock_guard lock(s.mutex);
    module = s.handles.find<ModuleObject>(SLUICE_HANDLE_MODULE, guest_module);
    if (!module) return s.answer(call, CUDA_ERROR_INVALID_HANDLE);
    // The same name gives the same function.
    if (const auto there = module->functions.find(name); there != module->functions.end())
      if (auto f = s.handles.find<FunctionObject>(SLUICE_HANDLE_FUNCTION, there->second))
        return s.answer(call, CUDA_SUCCESS, f->reply);
  }
  if (CUresult r = make_current(s.api, module->context->cu); r != CUDA_SUCCESS)
    return s.answer(call, r);
  auto f = std::make_shared<FunctionObject>();
  f->module = module;
  f->name = name;
  if (CUresult r = describe_original(s.api, *f); r != CUDA_SUCCESS) return s.answer(call, r);
  if ((guest_flags & SLUICE_FUNCTION_EVICTABLE) && !module->machine_code)
    find_forms(s.api, *module, guest_flags, state_bytes, f.get());

  f->local_bytes = most_local_bytes(s.api, *f);
  sluice_function_reply reply = reply_of(s.api, *f);
  std::lock_guard lock(s.mutex);
  reply.handle = s.handles.add(SLUICE_HANDLE_FUNCTION, f);
  if (reply.handle == 0) return s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  module->functions[name] = reply.handle;
  const std::span layout = std::as_bytes(std::span(f->params));
  f->reply.resize(sizeof reply);
  std::memcpy(f->reply.data(), &reply, sizeof reply);
  f->reply.insert(f->reply.end(), layout.begin(), layout.end());
  s.answer(call, CUDA_SUCCESS, f->reply);
}

namespace {

// What can be checked before anything is done.
CUresult check_clones(const FunctionObject& f, const ModuleObject& module, uint32_t flags) {
  const bool others = flags & SLUICE_FUNCTION_OTHER_FORMS;
  // Functions and variables that have been found in it have names of their own.
  if ((f.clone != nullptr) != others || (others && !f.others_later) || &module == f.module.get() ||
      module.context != f.module->context || module.machine_code || !module.functions.empty() ||
      !module.of_clones.empty() || !(flags & SLUICE_FUNCTION_EVICTABLE))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// Takes the forms in `module`, which has all that it will have. An answer to the call.
CUresult take_clones(WorkerSession& s, const sluice_function_clones& clones,
                     std::span<const std::byte> addresses, const std::shared_ptr<FunctionObject>& f,
                     std::shared_ptr<ModuleObject> module) {
  const bool others = clones.flags & SLUICE_FUNCTION_OTHER_FORMS;
  FunctionObject found;
  found.name = f->name;
  found.params = f->params;
  found.original = f->original;
  if (others) {
    found.clone = f->clone;
    found.form = f->form;
  }
  find_forms(s.api, *module, clones.flags, clones.state_bytes, &found);
  if (others ? !found.one_task && !found.window : !found.clone) return CUDA_ERROR_NOT_FOUND;
  if (const CUresult r = fill_addresses(s.api, module->cu, addresses); r != CUDA_SUCCESS) return r;
  const uint64_t local_bytes = std::max(f->local_bytes, most_local_bytes(s.api, found));
  std::lock_guard lock(s.mutex);
  // Jobs run one after the other, but calls that the decoder answers itself do not wait for them.
  if (!s.handles.find<FunctionObject>(SLUICE_HANDLE_FUNCTION, clones.function) ||
      !s.handles.remove(SLUICE_HANDLE_MODULE, clones.module))
    return CUDA_ERROR_INVALID_HANDLE;
  s.memory.allocations.remove_owner(clones.module);
  for (const Form& form : kKernelForms) {
    CUfunction& place = f.get()->*form.to;
    if (place != nullptr) continue;
    CUfunction clone = place = found.*form.to;
    if (clone == nullptr) continue;
    for (const auto& [attribute, value] : f->attributes)
      (void)s.api.cuFuncSetAttribute(clone, attribute, value);
    if (f->cache_config) (void)s.api.cuFuncSetCacheConfig(clone, *f->cache_config);
  }
  f->local_bytes = local_bytes;
  f->others_later = clones.flags & SLUICE_FUNCTION_OTHERS_LATER;
  if (others) {
    s.work.streams.planner().take_other_forms(*f);
  } else {
    f->form = found.form;
    f->slot_dynamic = found.slot_dynamic;
    f->one_row = found.one_row;
    f->variants.clear();
  }
  f->module->of_clones.push_back(std::move(module));
  return CUDA_SUCCESS;
}

// A text of clones alone, loaded once more where one loses a place. `paid`: there is memory for it.
void clamp_clones(WorkerSession& s, ModuleObject& module, std::span<const Clamp> clamps,
                  bool paid) {
  if (!paid) return;
  const std::string& text = *module.clones_alone->text;
  const bool variables = declares_variables(text);
  FittedModule fitted;
  fitted.cu = module.cu;
  load_clamped(s.api, text, clamps, &fitted, variables ? Second::kWhole : Second::kAlone);
  if (fitted.other != nullptr && variables) {
    (void)s.api.cuModuleUnload(fitted.other);
    fitted.other = nullptr;
  }
  std::lock_guard lock(s.mutex);
  if (module.cu != fitted.cu) s.memory.allocations.remove_owner(module.handle);
  module.cu = fitted.cu;
  module.other = fitted.other;
  module.clamped_in = fitted.clamped_in;
  module.clamped = std::move(fitted.clamped);
  if (module.clamped.empty())
    s.charges.release_device(module.charged_once, ChargeKind::kModules);
  else
    module.charged += module.charged_once;
}

}  // namespace

void add_clones(WorkerSession& s, const Call& call, const sluice_function_clones& clones,
                std::vector<std::byte> addresses) {
  std::shared_ptr<FunctionObject> f;
  std::shared_ptr<ModuleObject> module;
  {
    std::lock_guard lock(s.mutex);
    f = s.handles.find<FunctionObject>(SLUICE_HANDLE_FUNCTION, clones.function);
    module = s.handles.find<ModuleObject>(SLUICE_HANDLE_MODULE, clones.module);
    if (!f || !module) return s.answer(call, CUDA_ERROR_INVALID_HANDLE);
    if (const CUresult r = check_clones(*f, *module, clones.flags); r != CUDA_SUCCESS)
      return s.answer(call, r);
  }
  if (const CUresult r = make_current(s.api, module->context->cu); r != CUDA_SUCCESS)
    return s.answer(call, r);
  const auto clamps = std::make_shared<const std::vector<Clamp>>(
      module->clones_alone == nullptr
          ? std::vector<Clamp>()
          : clamps_of(s.api, module->context->device, module->clones_alone->clones, module->cu,
                      f->original));
  if (clamps->empty()) {
    module->clones_alone = nullptr;
    return s.answer(call, take_clones(s, clones, addresses, f, std::move(module)));
  }
  // The clamps point into the text.
  s.charges.with_device_memory(
      module->charged_once, ChargeKind::kModules,
      [=, &s, addresses = std::move(addresses)](bool paid) {
        CUresult r = CUDA_SUCCESS;
        {
          // Other jobs may have run meanwhile.
          std::lock_guard lock(s.mutex);
          const bool there =
              s.handles.find<FunctionObject>(SLUICE_HANDLE_FUNCTION, clones.function) == f &&
              s.handles.find<ModuleObject>(SLUICE_HANDLE_MODULE, clones.module) == module;
          r = there ? check_clones(*f, *module, clones.flags) : CUDA_ERROR_INVALID_HANDLE;
          if (r == CUDA_SUCCESS && module->clones_alone == nullptr) r = CUDA_ERROR_INVALID_VALUE;
          if (r != CUDA_SUCCESS && paid)
            s.charges.release_device(module->charged_once, ChargeKind::kModules);
        }
        if (r == CUDA_SUCCESS) r = make_current(s.api, module->context->cu);
        if (r != CUDA_SUCCESS) return s.answer(call, r);
        clamp_clones(s, *module, *clamps, paid);
        module->clones_alone = nullptr;
        s.answer(call, take_clones(s, clones, addresses, f, module));
      });
}

}  // namespace sluice::worker
