// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/jit/nvrtc.h"

#include <cstring>

#include "guest-agent/jit/carried_ptx.h"

namespace sluice::jit {
namespace {

template <class F>
void find(const CompilerLibrary& library, const char* name, F** to) {
  *to = reinterpret_cast<F*>(real_dlsym(library.handle, name));
}

}  // namespace

Nvrtc::Nvrtc(const CompilerLibrary& library) {
  find(library, "nvrtcCompileProgram", &compile_);
  find(library, "nvrtcGetCUBINSize", &cubin_size_);
  find(library, "nvrtcGetCUBIN", &cubin_);
  find(library, "nvrtcGetPTXSize", &ptx_size_);
  find(library, "nvrtcGetPTX", &ptx_);
  find(library, "nvrtcDestroyProgram", &destroy_);
}

void Nvrtc::forget(void* program) {
  std::lock_guard lock(mutex_);
  carried_.erase(program);
}

int Nvrtc::compile(void* program, int count, const char* const* options) {
  if (compile_ == nullptr) return kInternalError;
  forget(program);
  return compile_(program, count, options);
}

std::string Nvrtc::attach(void* program, size_t bytes) const {
  size_t ptx_bytes = 0;
  if (ptx_size_ == nullptr || ptx_ == nullptr || cubin_ == nullptr ||
      ptx_size_(program, &ptx_bytes) != 0 || ptx_bytes <= 1)
    return "";
  std::string code(bytes, '\0'), ptx(ptx_bytes, '\0');
  if (cubin_(program, code.data()) != 0 || ptx_(program, ptx.data()) != 0) return "";
  return with_ptx(code, ptx, "NVRTC");
}

int Nvrtc::cubin_size(void* program, size_t* bytes) {
  if (cubin_size_ == nullptr) return kInternalError;
  const int r = cubin_size_(program, bytes);
  if (r != 0 || bytes == nullptr || *bytes == 0 || !attaching()) return r;
  {
    std::lock_guard lock(mutex_);
    if (const auto known = carried_.find(program); known != carried_.end()) {
      if (!known->second.empty()) *bytes = known->second.size();
      return r;
    }
  }
  std::string carried = attach(program, *bytes);
  if (!carried.empty()) *bytes = carried.size();
  std::lock_guard lock(mutex_);
  carried_[program] = std::move(carried);
  return r;
}

int Nvrtc::cubin(void* program, char* to) {
  if (cubin_ == nullptr) return kInternalError;
  if (to != nullptr) {
    std::lock_guard lock(mutex_);
    const auto known = carried_.find(program);
    if (known != carried_.end() && !known->second.empty()) {
      std::memcpy(to, known->second.data(), known->second.size());
      return 0;
    }
  }
  return cubin_(program, to);
}

int Nvrtc::destroy(void** program) {
  if (destroy_ == nullptr) return kInternalError;
  if (program != nullptr) forget(*program);
  return destroy_(program);
}

}  // namespace sluice::jit
