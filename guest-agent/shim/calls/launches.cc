// SPDX-License-Identifier: Apache-2.0
// Launches. A launch is one record without an answer: its parameters are packed by the layout that
// came with the function, and what CUDA refuses at once is refused here.
#include <algorithm>
#include <climits>
#include <cstring>
#include <vector>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/graphs/in_context.h"
#include "guest-agent/shim/calls/in_function.h"
#include "guest-agent/shim/calls/launches.h"
#include "guest-agent/shim/modules/clones.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

struct Limits {
  int grid[3], block[3], threads, registers;
};

CUresult device_limits(WorkerLink& link, Limits* limits) {
  const CUdevice device = current_device();
  const struct {
    CUdevice_attribute attribute;
    int* to;
  } wanted[] = {{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &limits->grid[0]},
                {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &limits->grid[1]},
                {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &limits->grid[2]},
                {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &limits->block[0]},
                {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &limits->block[1]},
                {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &limits->block[2]},
                {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &limits->threads},
                {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &limits->registers}};
  for (const auto& one : wanted) {
    const CUresult r = device_attribute(link, device, one.attribute, one.to);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

// What CUDA answers at the call.
CUresult check_shape(WorkerLink& link, const FunctionInfo& info, const uint32_t grid[3],
                     const uint32_t block[3], uint32_t shared_bytes) {
  Limits limits;
  if (const CUresult r = device_limits(link, &limits); r != CUDA_SUCCESS) return r;
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (grid[i] == 0 || block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    if (grid[i] > static_cast<uint32_t>(limits.grid[i]) ||
        block[i] > static_cast<uint32_t>(limits.block[i]))
      return CUDA_ERROR_INVALID_VALUE;
    threads *= block[i];
  }
  if (info.required_block[0] != 0 && !std::equal(block, block + 3, info.required_block.begin()))
    return CUDA_ERROR_INVALID_VALUE;
  if (threads > static_cast<uint64_t>(limits.threads)) return CUDA_ERROR_INVALID_VALUE;
  const int most = info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  if (most != INT_MIN && threads > static_cast<uint64_t>(most)) {
    // More than the kernel says (.maxntid, __launch_bounds__), or than there are registers for.
    const auto registers = static_cast<uint64_t>(info.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS]);
    return registers * threads > static_cast<uint64_t>(limits.registers)
               ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
               : CUDA_ERROR_INVALID_VALUE;
  }
  const int most_shared = info.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  if (most_shared != INT_MIN && shared_bytes > static_cast<uint32_t>(std::max(most_shared, 0)))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

bool asks_for_cluster(uint64_t flags) { return SLUICE_LAUNCHED_CLUSTER_DIM(flags, 0) != 0; }
bool must_name_cluster(const FunctionInfo& info) {
  return info.attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] > 0;
}

// Whether the driver takes a launch in clusters: it knows the kernel's .maxclusterrank and
// .blocksareclusters, and what fits on the GPU. A kernel is launched alike again and again, so the
// answer is kept.
CUresult ask_driver(CUfunction function, FunctionInfo& info, const uint32_t grid[3],
                    const ClusterLaunch& launch, bool named) {
  {
    std::lock_guard lock(info.mutex);
    if (info.taken == launch) return CUDA_SUCCESS;
  }
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {launch.cluster[0], launch.cluster[1], launch.cluster[2]};
  CUlaunchConfig config{};
  config.gridDimX = grid[0];
  config.gridDimY = grid[1];
  config.gridDimZ = grid[2];
  config.blockDimX = launch.block[0];
  config.blockDimY = launch.block[1];
  config.blockDimZ = launch.block[2];
  config.sharedMemBytes = launch.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = named ? 1 : 0;
  int fit = 0;
  const CUresult r = cuOccupancyMaxActiveClusters(&fit, function, &config);
  if (r != CUDA_SUCCESS) return r;
  if (fit == 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  std::lock_guard lock(info.mutex);
  info.taken = launch;
  return CUDA_SUCCESS;
}

// The launch's clusters against what the kernel requires and the GPU holds.
CUresult check_cluster(CUfunction function, FunctionInfo& info, const uint32_t grid[3],
                       const uint32_t block[3], uint32_t shared_bytes, uint64_t flags) {
  constexpr uint64_t kPortable = 8, kLargest = 16;  // blocks (an H100's)
  ClusterLaunch launch{{}, {block[0], block[1], block[2]}, shared_bytes, true};
  uint32_t* size = launch.cluster;
  uint64_t blocks = 1;
  bool required = false;
  for (int i = 0; i < 3; ++i) {
    const int side = info.attributes[static_cast<size_t>(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) +
                                     static_cast<size_t>(i)];
    size[i] = side > 0 ? static_cast<uint32_t>(side) : 0;
    required = required || size[i] != 0;
  }
  if (!required && !asks_for_cluster(flags))
    return must_name_cluster(info) ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
  for (int i = 0; i < 3; ++i) {
    const uint32_t asked = SLUICE_LAUNCHED_CLUSTER_DIM(flags, i);
    if (!required) size[i] = asked;
    if (size[i] == 0 || (asked != 0 && asked != size[i])) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    launch.whole = launch.whole && grid[i] % size[i] == 0;
    blocks *= size[i];
  }
  // Only of a kernel that says so itself can the grid count clusters (.blocksareclusters).
  if (!launch.whole && !required) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const bool large = info.attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] > 0;
  if (blocks > (large ? kLargest : kPortable)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  return blocks == 1 ? CUDA_SUCCESS
                     : ask_driver(function, info, grid, launch, asks_for_cluster(flags));
}

// Blocks of such a launch that the GPU, or the stream's part of it, holds at once.
CUresult blocks_held(WorkerLink& link, CUfunction function, const uint32_t block[3],
                     uint32_t shared_bytes, CUstream stream, uint64_t* held) {
  int sms = 0, blocks = 0;
  CUresult r = sms_of(link, green_of(stream), &sms);
  if (r == CUDA_SUCCESS)
    r = cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, function, static_cast<int>(block[0] * block[1] * block[2]), shared_bytes);
  *held = static_cast<uint64_t>(blocks) * static_cast<uint64_t>(sms);
  return r;
}

bool has_more_blocks(const uint32_t grid[3], uint64_t than) {
  const uint64_t rows = uint64_t{grid[0]} * grid[1];
  return rows > than || rows * grid[2] > than;
}

// Every block of a cooperative launch has to be on the GPU at once.
CUresult check_cooperative(WorkerLink& link, CUfunction function, const uint32_t grid[3],
                           const uint32_t block[3], uint32_t shared_bytes, CUstream stream) {
  uint64_t held = 0;
  const CUresult r = blocks_held(link, function, block, shared_bytes, stream, &held);
  if (r != CUDA_SUCCESS) return r;
  return has_more_blocks(grid, held) ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

// The parameter block that cuLaunchKernel's `extra` describes.
CUresult read_extra(void** extra, const std::byte** block, size_t* bytes) {
  *block = nullptr;
  *bytes = 0;
  for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      *block = static_cast<const std::byte*>(extra[i + 1]);
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      if (extra[i + 1] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *bytes = *static_cast<const size_t*>(extra[i + 1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return *block != nullptr || *bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Parameters as a program hands them over: an array of pointers, or one block.
struct Given {
  void** params;
  const std::byte* block = nullptr;
  size_t block_bytes = 0;

  CUresult check(const FunctionInfo& info, void** extra) {
    if (params != nullptr) {
      if (extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
      for (size_t i = 0; i < info.params.size(); ++i)
        if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      return CUDA_SUCCESS;
    }
    if (extra == nullptr) return info.param_bytes != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (const CUresult r = read_extra(extra, &block, &block_bytes); r != CUDA_SUCCESS) return r;
    // Programs that pad the block's end are right; those that leave parameters out are not.
    return block_bytes < info.param_bytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  // Front to back, gaps zeroed: the ring's memory may be write-combined.
  void pack(const FunctionInfo& info, std::byte* to) const {
    if (block != nullptr) {
      std::memcpy(to, block, info.param_bytes);
      return;
    }
    uint32_t at = 0;
    for (size_t i = 0; i < info.params.size(); ++i) {
      const auto [offset, bytes] = info.params[i];
      if (offset > at) std::memset(to + at, 0, offset - at);
      std::memcpy(to + offset, params[i], bytes);
      at = offset + bytes;
    }
    if (at < info.param_bytes) std::memset(to + at, 0, info.param_bytes - at);
  }
};

// What CUDA refuses at once, for a launch now or later.
CUresult check_launch(const InFunction& f, CUfunction function, const uint32_t grid[3],
                      const uint32_t block[3], uint32_t shared_bytes, uint64_t flags,
                      CUstream stream = nullptr) {
  if (f.info->context != f.context) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = check_shape(*f.link, *f.info, grid, block, shared_bytes);
      r != CUDA_SUCCESS)
    return r;
  if (const CUresult r = check_cluster(function, *f.info, grid, block, shared_bytes, flags);
      r != CUDA_SUCCESS)
    return r;
  if ((flags & SLUICE_LAUNCHED_COOPERATIVE) == 0) return CUDA_SUCCESS;
  return check_cooperative(*f.link, function, grid, block, shared_bytes, stream);
}

// Whether a launch that may do without clones does. In a green context's stream the worker decides.
bool is_at_once(const InFunction& f, const uint32_t grid[3], const uint32_t block[3],
                uint32_t shared_bytes, CUstream stream) {
  FunctionInfo& info = *f.info;
  if (green_of(stream) != 0) return false;
  const uint32_t threads = block[0] * block[1] * block[2];
  {
    std::lock_guard lock(info.mutex);
    for (const HeldShape& shape : info.held)
      if (shape.threads == threads && shape.shared_bytes == shared_bytes)
        return !has_more_blocks(grid, shape.blocks);
    if (info.held.size() == kMostHeldShapes) return false;
  }
  uint64_t held = 0;
  if (blocks_held(*f.link, as_function(f.info), block, shared_bytes, stream, &held) != CUDA_SUCCESS)
    return false;
  std::lock_guard lock(info.mutex);
  info.held.push_back({threads, shared_bytes, held});
  return !has_more_blocks(grid, held);
}

template <class Write>
CUresult post_launch(const InFunction& f, const uint32_t grid[3], const uint32_t block[3],
                     uint32_t shared_bytes, CUstream stream, uint64_t flags, Write&& write) {
  // A cluster of one block is no reason to run the original, unless the kernel asks for it.
  constexpr uint64_t kOne = SLUICE_LAUNCHED_CLUSTER(1, 1, 1);
  if ((flags & ~uint64_t{SLUICE_LAUNCHED_COOPERATIVE}) == kOne && !must_name_cluster(*f.info))
    flags &= SLUICE_LAUNCHED_COOPERATIVE;
  if (flags == 0) {  // others run the original
    if (may_do_without_clones(*f.info) && is_at_once(f, grid, block, shared_bytes, stream))
      flags = SLUICE_LAUNCHED_AT_ONCE;
    else
      settle_clones(f, *f.info);
  }
  sluice_launch body{};
  body.function = f.info->handle;
  body.stream = wire(stream);
  std::copy_n(grid, 3, body.grid);
  std::copy_n(block, 3, body.block);
  body.dynamic_shared_bytes = shared_bytes;
  body.param_bytes = f.info->param_bytes;
  body.flags = flags;
  Traced traced(SLUICE_CALL_LAUNCH);
  traced.argument(f.info->name.c_str());
  for (const uint32_t side : body.grid) traced.argument(side);
  for (const uint32_t side : body.block) traced.argument(side);
  return traced.end(f.link->post(
                        SLUICE_CALL_LAUNCH, f.context, sizeof body + body.param_bytes,
                        [&](std::byte* to) {
                          std::memcpy(to, &body, sizeof body);
                          write(to + sizeof body);
                        },
                        effect_of(SLUICE_CALL_LAUNCH, body)),
                    true);
}

// `flags`: of sluice_launch, from `attributes` where there are any.
CUresult launch(CUfunction function, const uint32_t grid[3], const uint32_t block[3],
                uint32_t shared_bytes, CUstream stream, void** params, void** extra,
                uint64_t flags = 0, const CUlaunchConfig* config = nullptr) {
  const InFunction f(function);
  if (!f) return f.status;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  CUresult r = check_launch(f, function, grid, block, shared_bytes, flags, stream);
  Given given{params};
  if (r == CUDA_SUCCESS) r = given.check(*f.info, extra);
  if (r != CUDA_SUCCESS) return r;
  if (const auto captured = graphs::capture_node(stream, [&] {
        graphs::KernelLaunch kept{function,
                                  {grid[0], grid[1], grid[2]},
                                  {block[0], block[1], block[2]},
                                  shared_bytes,
                                  flags,
                                  f.context,
                                  std::vector<std::byte>(f.info->param_bytes),
                                  {}};
        given.pack(*f.info, kept.params.data());
        if (config != nullptr)
          kept.attributes.assign(config->attrs, config->attrs + config->numAttrs);
        return graphs::kernel_work(std::move(kept));
      })) {
    return *captured;
  }
  return post_launch(f, grid, block, shared_bytes, stream, flags,
                     [&](std::byte* to) { given.pack(*f.info, to); });
}

}  // namespace

namespace sluice::guest {

CUresult keep_launch(graphs::KernelLaunch* to, void** params, void** extra) {
  const InFunction f(to->function);
  if (!f) return f.status;
  CUresult r = check_launch(f, to->function, to->grid, to->block, to->shared_bytes, to->flags);
  Given given{params};
  if (r == CUDA_SUCCESS) r = given.check(*f.info, extra);
  if (r != CUDA_SUCCESS) return r;
  if (given.block_bytes > f.info->param_bytes)
    return CUDA_ERROR_INVALID_VALUE;  // padding is for launches
  to->context = f.context;
  to->params.resize(f.info->param_bytes);
  given.pack(*f.info, to->params.data());
  return CUDA_SUCCESS;
}

std::vector<void*> parameter_pointers(const graphs::KernelLaunch& launch) {
  std::vector<void*> pointers;
  const graphs::InContext here(launch.context);
  if (here.status != CUDA_SUCCESS) return pointers;
  const InFunction f(launch.function);
  if (!f || f.info->param_bytes != launch.params.size()) return pointers;
  for (const auto& [offset, bytes] : f.info->params)
    pointers.push_back(const_cast<std::byte*>(launch.params.data()) + offset);
  return pointers;
}

CUresult check_kept(const graphs::KernelLaunch& kept) {
  const graphs::InContext here(kept.context);
  if (here.status != CUDA_SUCCESS) return here.status;
  const InFunction f(kept.function);
  return f ? check_launch(f, kept.function, kept.grid, kept.block, kept.shared_bytes, kept.flags)
           : f.status;
}

CUresult run_launch(const graphs::KernelLaunch& kept, CUstream stream) {
  const InFunction f(kept.function);
  if (!f) return f.status;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (f.info->param_bytes != kept.params.size())
    return CUDA_ERROR_INVALID_HANDLE;  // the handle's kernel is another
  return post_launch(f, kept.grid, kept.block, kept.shared_bytes, stream, kept.flags,
                     [&](std::byte* to) { std::copy(kept.params.begin(), kept.params.end(), to); });
}

// What becomes of each attribute: docs/internals/life-of-a-launch.md.
CUresult flags_of_attributes(const CUlaunchAttribute* attributes, size_t count, uint64_t* flags,
                             std::vector<CUevent>* events) {
  uint64_t cluster = 0, cooperative = 0;
  for (size_t i = 0; i < count; ++i) {
    const CUlaunchAttribute& attribute = attributes[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:  // hints: without them it runs as well
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:  // full order is stricter
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        // CUDA only promises that they do not come before the blocks have triggered or begun;
        // recorded behind the launch they come when it is done, evicted or not.
        if (events == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (state().events.find(wire(attribute.value.programmaticEvent.event)) == nullptr)
          return CUDA_ERROR_INVALID_HANDLE;
        events->push_back(attribute.value.programmaticEvent.event);
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        cooperative = attribute.value.cooperative != 0 ? SLUICE_LAUNCHED_COOPERATIVE : 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const auto& c = attribute.value.clusterDim;
        if (c.x == 0 || c.y == 0 || c.z == 0 || c.x > UINT16_MAX || c.y > UINT16_MAX ||
            c.z > UINT16_MAX)
          return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        cluster = SLUICE_LAUNCHED_CLUSTER(c.x, c.y, c.z);
        break;
      }
      default:
        if (attribute.id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
          return CUDA_ERROR_INVALID_VALUE;  // no attribute
        return static_cast<CUresult>(not_supported("cuLaunchKernelEx", "a launch attribute"));
    }
  }
  *flags = cluster | cooperative;
  return CUDA_SUCCESS;
}

}  // namespace sluice::guest

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                        unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y,
                        unsigned int block_dim_z, unsigned int shared_mem_bytes, CUstream stream,
                        void** kernel_params, void** extra) {
  const uint32_t grid[3] = {grid_dim_x, grid_dim_y, grid_dim_z};
  const uint32_t block[3] = {block_dim_x, block_dim_y, block_dim_z};
  return launch(f, grid, block, shared_mem_bytes, stream, kernel_params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                                   unsigned int grid_dim_z, unsigned int block_dim_x,
                                   unsigned int block_dim_y, unsigned int block_dim_z,
                                   unsigned int shared_mem_bytes, CUstream stream,
                                   void** kernel_params) {
  const uint32_t grid[3] = {grid_dim_x, grid_dim_y, grid_dim_z};
  const uint32_t block[3] = {block_dim_x, block_dim_y, block_dim_z};
  return launch(f, grid, block, shared_mem_bytes, stream, kernel_params, nullptr,
                SLUICE_LAUNCHED_COOPERATIVE);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernel_params,
                          void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const uint32_t block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  uint64_t flags = 0;
  std::vector<CUevent> events;  // to be recorded behind the launch
  CUresult r = flags_of_attributes(config->attrs, config->numAttrs, &flags, &events);
  if (r != CUDA_SUCCESS) return r;
  r = launch(f, grid, block, config->sharedMemBytes, config->hStream, kernel_params, extra, flags,
             config);
  for (size_t i = 0; i < events.size() && r == CUDA_SUCCESS; ++i)
    r = cuEventRecord(events[i], config->hStream);
  return r;
}
