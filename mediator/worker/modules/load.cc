// Modules and functions of a session. Job thread.
#include <algorithm>
#include <climits>
#include <cstring>

#include "mediator/worker/modules/size.h"
#include "mediator/worker/session/session.h"

namespace sluice::worker {

namespace {

// PTX is text. Anything else (a cubin, a fat binary) would have the driver read lengths out of the
// guest's bytes.
bool looks_like_text(const std::string& ptx) {
  if (ptx.empty() || ptx.find('\0') != std::string::npos) return false;
  const auto first = static_cast<unsigned char>(ptx[0]);
  return first == '\t' || first == '\n' || first == '\r' || (first >= 0x20 && first < 0x7f);
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

}  // namespace

// Charged before it is compiled. With clones it may be loaded twice at a time
// (launch/register_clamp.h): for that twice as much is charged meanwhile, or it is loaded once
// only.
void Session::load_module(const Call& call, std::string text, uint32_t log_bytes) {
  if (!call.context || call.context->closed) return answer(call, CUDA_ERROR_INVALID_CONTEXT);
  if (!looks_like_text(text)) return answer(call, CUDA_ERROR_INVALID_IMAGE);
  const std::optional<uint64_t> bytes = module_device_bytes(text);
  if (!bytes) {
    constexpr std::string_view kWhy = "a module variable's size cannot be told";
    return answer(call, CUDA_ERROR_INVALID_PTX,
                  std::as_bytes(std::span(kWhy.substr(0, log_bytes))));
  }
  const uint64_t once = QuotaLease::charge_for(*bytes), host = module_host_bytes(text);
  if (once == 0 || once > UINT64_MAX / 2) return answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  const bool clones = !find_clones(text).empty();
  with_host_memory(host,
                   [=, this, ptx = std::make_shared<std::string>(std::move(text))](bool kept) {
                     if (!kept) return answer(call, CUDA_ERROR_OUT_OF_MEMORY);
                     const auto load_once = [=, this](bool charged) {
                       load_charged(call, *ptx, log_bytes, charged ? once : 0, once, host);
                     };
                     if (!clones) return with_device_memory(once, ChargeKind::kModules, load_once);
                     with_device_memory(2 * once, ChargeKind::kModules, [=, this](bool charged) {
                       if (!charged)
                         return with_device_memory(once, ChargeKind::kModules, load_once);
                       load_charged(call, *ptx, log_bytes, 2 * once, once, host);
                     });
                   });
}

// `charged`: of device memory; 0: there is none. `once`: what one load of it takes.
void Session::load_charged(const Call& call, const std::string& ptx, uint32_t log_bytes,
                           uint64_t charged, uint64_t once, uint64_t host) {
  auto module = std::make_shared<ModuleObject>();
  module->context = call.context;
  module->charged = charged;
  module->charged_host = host;
  std::vector<char> log(std::max<uint32_t>(log_bytes, 1) + 1, 0);
  FittedModule fitted;
  CUresult r = charged == 0           ? CUDA_ERROR_OUT_OF_MEMORY
               : call.context->closed ? CUDA_ERROR_INVALID_CONTEXT
                                      : make_current(api_, call.context->cu);
  if (r == CUDA_SUCCESS) {
    if (ptx.find("vprintf") != std::string::npos) printed_.start();
    r = load_fitted(api_, call.context->device, ptx, std::span(log).first(log.size() - 1), &fitted,
                    charged > once);
  }
  module->cu = fitted.cu;
  module->clamped = std::move(fitted.clamped);
  {
    std::lock_guard lock(mutex_);
    if (r == CUDA_SUCCESS) module->handle = handles_.add(SLUICE_HANDLE_MODULE, module);
    if (module->handle == 0) {
      if (r != CUDA_SUCCESS) release_module(*module);
    } else if (charged > once && module->clamped.empty()) {
      return_lease(charged - once, ChargeKind::kModules);
      module->charged = once;
    }
  }
  if (r != CUDA_SUCCESS) {
    const size_t length = ::strnlen(log.data(), log_bytes);
    return answer(call, r, std::as_bytes(std::span(log.data(), length)));
  }
  if (module->handle == 0) {
    (void)api_.cuModuleUnload(module->cu);
    {
      std::lock_guard lock(mutex_);
      release_module(*module);
    }
    return answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  }
  const sluice_handle_reply reply{module->handle};
  answer(call, CUDA_SUCCESS, std::as_bytes(std::span(&reply, 1)));
}

void Session::get_function(const Call& call, uint64_t guest_module, const std::string& name,
                           uint32_t guest_flags, uint32_t state_bytes) {
  std::shared_ptr<ModuleObject> module;
  {
    std::lock_guard lock(mutex_);
    module = handles_.find<ModuleObject>(SLUICE_HANDLE_MODULE, guest_module);
    if (!module) return answer(call, CUDA_ERROR_INVALID_HANDLE);
    // The same name gives the same function.
    for (uint64_t h : module->functions) {
      auto f = handles_.find<FunctionObject>(SLUICE_HANDLE_FUNCTION, h);
      if (f && f->name == name) return answer(call, CUDA_SUCCESS, f->reply);
    }
  }
  if (CUresult r = make_current(api_, module->context->cu); r != CUDA_SUCCESS)
    return answer(call, r);
  auto f = std::make_shared<FunctionObject>();
  f->module = module;
  f->name = name;
  f->kernel = 2166136261u;  // FNV-1a: the same in every session
  for (char ch : name) f->kernel = (f->kernel ^ static_cast<unsigned char>(ch)) * 16777619u;
  CUresult r = api_.cuModuleGetFunction(&f->original, module->cu, name.c_str());
  if (r != CUDA_SUCCESS) return answer(call, r);

  for (size_t i = 0; i < kMaxParamCount; ++i) {
    size_t offset = 0, bytes = 0;
    r = api_.cuFuncGetParamInfo(f->original, i, &offset, &bytes);
    if (r != CUDA_SUCCESS) break;
    f->params.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    f->param_bytes = std::max(f->param_bytes, static_cast<uint32_t>(offset + bytes));
  }
  if (r != CUDA_ERROR_INVALID_VALUE)
    return answer(call, r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
  if (f->params.size() > SLUICE_MAX_PARAMS) return answer(call, CUDA_ERROR_NOT_SUPPORTED);

  if (guest_flags & SLUICE_FUNCTION_EVICTABLE) {
    CUfunction clone = nullptr;
    if (api_.cuModuleGetFunction(&clone, module->cu, (name + SLUICE_CLONE_SUFFIX).c_str()) ==
            CUDA_SUCCESS &&
        takes_block_too(api_, clone, f->params)) {
      f->clone = clone;
      f->clamped = clamped_form(api_, module->cu, module->clamped, name + SLUICE_CLONE_SUFFIX);
      if (f->clamped && !takes_block_too(api_, f->clamped, f->params)) f->clamped = nullptr;
      f->slot_dynamic = guest_flags & SLUICE_FUNCTION_SLOT_DYNAMIC;
      f->form.in_order = guest_flags & SLUICE_FUNCTION_IN_ORDER;
      f->one_row = guest_flags & SLUICE_FUNCTION_ONE_ROW;
      f->form.once = guest_flags & SLUICE_FUNCTION_ONCE;
      const auto takes_its_params = [&](CUfunction form) {
        return form && takes_block_too(api_, form, f->params) ? form : nullptr;
      };
      const auto beside = [&](const char* suffix) -> CUfunction {
        CUfunction form = nullptr;
        if (f->form.once ||
            api_.cuModuleGetFunction(&form, module->cu, (name + suffix).c_str()) != CUDA_SUCCESS)
          return nullptr;
        return takes_its_params(form);
      };
      f->one_task = beside(SLUICE_ONE_TASK_SUFFIX);
      if (f->one_task)
        f->one_task_clamped = takes_its_params(
            clamped_form(api_, module->cu, module->clamped, name + SLUICE_ONE_TASK_SUFFIX));
      f->window = f->form.in_order ? nullptr : beside(SLUICE_WINDOW_SUFFIX);
      if ((guest_flags & SLUICE_FUNCTION_RESUMABLE) && state_bytes <= SLUICE_RESUME_MAX_BYTES) {
        f->form.resumable = true;
        f->one_task = f->one_task_clamped = f->window = nullptr;
        f->form.state_bytes = state_bytes;
      } else if (guest_flags & SLUICE_FUNCTION_RESUMABLE) {
        f->clone = nullptr;  // its launches would write beyond what they are given
      }
    }
  }

  for (CUfunction form :
       {f->original, f->clone, f->clamped, f->one_task, f->one_task_clamped, f->window}) {
    int bytes = 0;
    if (form &&
        api_.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, form) == CUDA_SUCCESS)
      f->local_bytes =
          std::max<uint64_t>(f->local_bytes, static_cast<uint64_t>(std::max(bytes, 0)));
  }
  sluice_function_reply reply{};
  reply.param_count = static_cast<uint32_t>(f->params.size());
  reply.param_bytes = f->param_bytes;
  for (int i = 0; i < 16; ++i) {
    reply.attributes[i] = INT32_MIN;
    int value = 0;
    if (api_.cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(i), f->original) ==
        CUDA_SUCCESS) {
      reply.attributes[i] = value;
    }
  }
  std::lock_guard lock(mutex_);
  reply.handle = handles_.add(SLUICE_HANDLE_FUNCTION, f);
  if (reply.handle == 0) return answer(call, CUDA_ERROR_OUT_OF_MEMORY);
  module->functions.push_back(reply.handle);
  const std::span layout = std::as_bytes(std::span(f->params));
  f->reply.resize(sizeof reply);
  std::memcpy(f->reply.data(), &reply, sizeof reply);
  f->reply.insert(f->reply.end(), layout.begin(), layout.end());
  answer(call, CUDA_SUCCESS, f->reply);
}

}  // namespace sluice::worker
