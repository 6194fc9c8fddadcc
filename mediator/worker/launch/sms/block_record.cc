// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/sms/block_record.h"

#include <cstring>

#include "mediator/base/sm_set.h"

namespace sluice::worker {

namespace {
// Each block writes down where it runs.
constexpr char kWhere[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry sluice_where(.param .u64 p_seen)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p_seen];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd3, %rd1, %rd2;
  mov.u32 %r2, %smid;
  add.u32 %r2, %r2, 1;
  st.global.u32 [%rd3], %r2;
  ret;
}
)";
}  // namespace

BlockRecord::BlockRecord(uint32_t sms, size_t places) : sms_(sms), places_(places) {
  for (size_t place = places; place-- > 0;) free_.push_back(place);
}

size_t BlockRecord::take() {
  const size_t place = free_.back();
  free_.pop_back();
  return place;
}
void BlockRecord::give_back(size_t place) { free_.push_back(place); }

CUresult BlockRecord::load(const gpu::DriverApi& api) {
  CUresult r = CUDA_SUCCESS;
  if (!module_) r = api.cuModuleLoadDataEx(&module_, kWhere, 0, nullptr, nullptr);
  if (r == CUDA_SUCCESS && !where_) r = api.cuModuleGetFunction(&where_, module_, "sluice_where");
  if (r == CUDA_SUCCESS && !seen_) {
    void* memory = nullptr;
    r = api.cuMemHostAlloc(&memory, places_ * kBlocks * sms_ * sizeof(uint32_t),
                           CU_MEMHOSTALLOC_DEVICEMAP);
    seen_ = static_cast<uint32_t*>(memory);
  }
  return r;
}

CUresult BlockRecord::launch(const gpu::DriverApi& api, size_t place, uint32_t sms,
                             CUstream stream) const {
  const unsigned blocks = kBlocks * sms;
  std::memset(words(place), 0, blocks * sizeof(uint32_t));
  CUdeviceptr at = 0;
  CUresult r = api.cuMemHostGetDevicePointer(&at, words(place), 0);
  void* params[] = {&at};
  if (r == CUDA_SUCCESS)
    r = api.cuLaunchKernel(where_, blocks, 1, 1, 32, 1, 1, 0, stream, params, nullptr);
  return r;
}

void BlockRecord::release(const gpu::DriverApi& api) {
  if (seen_) (void)api.cuMemFreeHost(seen_);
  if (module_) (void)api.cuModuleUnload(module_);
  seen_ = nullptr, module_ = nullptr, where_ = nullptr;
}

bool BlockRecord::keeps_to(size_t place, uint32_t sms) const {
  SmSet ran;
  for (uint32_t i = 0; i < kBlocks * sms; ++i) {
    const uint32_t sm = __atomic_load_n(&words(place)[i], __ATOMIC_RELAXED);
    if (sm == 0 || sm > SmSet::kMax) return false;
    ran.add(sm - 1);
  }
  return ran.count() <= sms;
}

}  // namespace sluice::worker
