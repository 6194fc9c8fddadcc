// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/agent/driver_check.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "abi/cuda_driver.h"

namespace sluice::guest {
namespace {

constexpr const char* kHostMend =
    "on the host: sluicectl show and sluicectl events say who has the GPU, and why";
constexpr uint32_t kWords = 1024, kBlock = 128;

// out[i] = 3 * i + 1
constexpr const char* kKernel = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry check(.param .u64 out)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2;
  mad.lo.u32 %r4, %r1, 3, 1;
  st.global.u32 [%rd1], %r4;
  ret;
}
)";

class Checks {
 public:
  Checks(const std::string& library, int to) : name_(library), to_(to) {}

  bool load() {
    library_ = ::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr)
      return wrong("libcuda", ::dlerror(), "install sluice-guest-agent; ldconfig");
    Dl_info where{};
    void* init = ::dlsym(library_, "cuInit");
    const bool known = init != nullptr && ::dladdr(init, &where) != 0;
    const std::string path = known ? where.dli_fname : name_;
    if (::dlsym(library_, "sluice_guest_shim") == nullptr)
      return wrong("libcuda", path + " is another driver",
                   "ldconfig; check /etc/ld.so.conf.d/00-sluice-guest.conf and LD_LIBRARY_PATH");
    return right("libcuda", path);
  }

  bool start() {
    int version = 0, count = 0;
    char gpu[128] = "";
    if (!call<decltype(cuInit)>("driver", "cuInit", 0u) ||
        !call<decltype(cuDriverGetVersion)>("driver", "cuDriverGetVersion", &version) ||
        !call<decltype(cuDeviceGetCount)>("driver", "cuDeviceGetCount", &count))
      return false;
    if (count < 1) return wrong("driver", "no GPU", kHostMend);
    if (!call<decltype(cuDeviceGet)>("driver", "cuDeviceGet", &device_, 0) ||
        !call<decltype(cuDeviceGetName)>("driver", "cuDeviceGetName", gpu,
                                         static_cast<int>(sizeof gpu), device_))
      return false;
    return right("driver", "CUDA " + std::to_string(version / 1000) + "." +
                               std::to_string(version % 1000 / 10) + ", " + gpu);
  }

  bool reach() {
    CUcontext context = nullptr;
    size_t free = 0, all = 0;
    if (!call<decltype(cuDevicePrimaryCtxRetain)>("channel", "cuDevicePrimaryCtxRetain", &context,
                                                  device_) ||
        !call<decltype(cuCtxSetCurrent)>("channel", "cuCtxSetCurrent", context) ||
        !call<decltype(cuMemGetInfo_v2)>("channel", "cuMemGetInfo_v2", &free, &all))
      return false;
    return right("channel", std::to_string(free >> 20) + " of " + std::to_string(all >> 20) +
                                " MiB of GPU memory free");
  }

  // NVIDIA's own asks the driver for private tables, which ours refuses: it finds no GPU.
  bool find_runtime() {
    std::string found, refused;
    for (const char* name : {"libcudart.so.13", "libcudart.so.12"}) {
      void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) continue;
      auto* count_of = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cudaGetDeviceCount"));
      int count = 0;
      const int r = count_of != nullptr ? count_of(&count) : -1;
      std::string& list = r == 0 && count > 0 ? found : refused;
      list += (list.empty() ? "" : ", ") + std::string(name);
    }
    if (refused.empty() && !found.empty()) return right("runtime", found);
    const std::string build =
        "; build programs with -cudart shared (NVCC_APPEND_FLAGS=\"-cudart shared\"): a static "
        "runtime does not run here";
    if (refused.empty())
      return wrong("runtime", "no libcudart.so.13 or .12",
                   "install sluice-guest-agent; ldconfig" + build);
    return wrong(
        "runtime", refused + " finds no GPU: it is NVIDIA's",
        "ldconfig; take NVIDIA's out of LD_LIBRARY_PATH, or run programs by sluice-run" + build);
  }

  bool run() {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr out = 0;
    std::vector<uint32_t> words(kWords);
    void* arguments[] = {&out};
    if (!call<decltype(cuModuleLoadData)>("launch", "cuModuleLoadData", &module, kKernel) ||
        !call<decltype(cuModuleGetFunction)>("launch", "cuModuleGetFunction", &function, module,
                                             "check") ||
        !call<decltype(cuMemAlloc_v2)>("launch", "cuMemAlloc_v2", &out, words.size() * 4) ||
        !call<decltype(cuLaunchKernel)>("launch", "cuLaunchKernel", function, kWords / kBlock, 1, 1,
                                        kBlock, 1, 1, 0, nullptr, arguments, nullptr) ||
        !call<decltype(cuMemcpyDtoH_v2)>("launch", "cuMemcpyDtoH_v2", words.data(), out,
                                         words.size() * 4))
      return false;
    for (uint32_t i = 0; i < kWords; ++i)
      if (words[i] != 3 * i + 1)
        return wrong("launch",
                     "word " + std::to_string(i) + " is " + std::to_string(words[i]) + ", not " +
                         std::to_string(3 * i + 1),
                     "the GPU computes wrong results: take it out of use, and report this");
    return right("launch", "a kernel of " + std::to_string(kWords) + " threads is right");
  }

 private:
  template <class F, class... A>
  bool call(const char* check, const char* name, A... arguments) {
    auto* f = reinterpret_cast<F*>(::dlsym(library_, name));
    if (f == nullptr)
      return wrong(check, std::string("no ") + name, "install sluice-guest-agent again; ldconfig");
    const CUresult r = f(arguments...);
    if (r == CUDA_SUCCESS) return true;
    const char* error = "?";
    auto* say = reinterpret_cast<decltype(cuGetErrorName)*>(::dlsym(library_, "cuGetErrorName"));
    if (say != nullptr) say(r, &error);
    return wrong(check, std::string(name) + ": " + error, kHostMend);
  }

  bool right(const char* check, const std::string& fact) { return write(check, "right", fact, ""); }
  bool wrong(const char* check, const std::string& fact, const std::string& mend) {
    write(check, "wrong", fact, mend);
    return false;
  }
  bool write(const char* check, const char* state, std::string fact, const std::string& mend) {
    std::replace_if(
        fact.begin(), fact.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
    const std::string line =
        std::string(check) + "\t" + state + "\t" + fact.substr(0, 1000) + "\t" + mend + "\n";
    return ::write(to_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  }

  std::string name_;
  int to_;
  void* library_ = nullptr;
  CUdevice device_ = 0;
};

}  // namespace

void check_driver(const std::string& library, bool launch, int to) {
  Checks checks(library, to);
  if (!checks.load() || !checks.start() || !checks.reach()) return;
  checks.find_runtime();
  if (launch) checks.run();
}

}  // namespace sluice::guest
