// SPDX-License-Identifier: Apache-2.0
// The driver API's launches, host functions and occupancy.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "mediator/softgpu/grid/child_grids.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

constexpr uint32_t kMaxBlockThreads = exec::kMaxBlockThreads;
constexpr uint32_t kMaxGridY = 65535, kMaxGridZ = 65535;
constexpr uint32_t kMaxGridX = 0x7fff'ffff;
// Blocks of a cluster without CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED.
constexpr uint32_t kPortableCluster = 8;

// The parameter block from cuLaunchKernel's two ways to pass it.
CUresult gather_params(const exec::EntryInfo& entry, void** pointers, void** extra,
                       std::vector<std::byte>& block) {
  block.resize(entry.param_bytes);
  if (pointers != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra == nullptr) {
    if (pointers == nullptr) return entry.params.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < entry.params.size(); ++i) {
      const exec::ParamInfo& param = entry.params[i];
      if (param.bytes == 0) continue;
      if (pointers[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(block.data() + param.offset, pointers[i], param.bytes);
    }
    return CUDA_SUCCESS;
  }
  const std::vector<uint32_t> layout = buffer_layout(entry);
  const size_t whole = layout.back();
  const void* buffer = nullptr;
  const size_t* bytes = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  // The driver counts in words of 4 bytes: what is longer needs more than the kernel has, what is
  // shorter is wrong (H200, driver 580).
  const auto words = [](size_t n) { return n / 4 + (n % 4 != 0); };
  if (bytes == nullptr || (buffer == nullptr && *bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
  if (words(*bytes) > words(whole)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (words(*bytes) < words(whole)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < entry.params.size(); ++i) {
    const exec::ParamInfo& param = entry.params[i];
    if (layout[i] >= *bytes) break;  // what the last word lacks
    std::memcpy(block.data() + param.offset, static_cast<const std::byte*>(buffer) + layout[i],
                std::min<size_t>(param.bytes, *bytes - layout[i]));
  }
  return CUDA_SUCCESS;
}

CUresult check_shape(const SmLimits& limits, const Function& function,
                     const exec::LaunchShape& shape) {
  const exec::EntryInfo& entry = *function.entry;
  const exec::Dim3 &grid = shape.grid, &block = shape.block;
  if (!entry.refused.empty()) return CUDA_ERROR_NOT_SUPPORTED;
  if (grid.count() == 0 || block.count() == 0 || grid.x > kMaxGridX || grid.y > kMaxGridY ||
      grid.z > kMaxGridZ || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      block.count() > kMaxBlockThreads) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (entry.max_threads != 0 && block.count() > entry.max_threads) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t* required = entry.required_block;
  if (required[0] != 0 && (block.x != required[0] || block.y != std::max(required[1], 1u) ||
                           block.z != std::max(required[2], 1u))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Up to 48 KiB static and dynamic together without being asked; beyond, as much dynamic as the
  // function's attribute allows.
  const uint64_t shared = uint64_t{entry.static_shared_bytes} + shape.dynamic_shared_bytes;
  if (shared > limits.shared_per_block_optin) return CUDA_ERROR_INVALID_VALUE;
  if (shared > 48 * 1024 &&
      shape.dynamic_shared_bytes > static_cast<uint32_t>(function.max_dynamic_shared.load())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

uint32_t largest_cluster(const Function& function) {
  return function.large_clusters ? exec::kMaxClusterBlocks : kPortableCluster;
}

// The launch's clusters, by what it asks for and what the kernel requires, and its grid in blocks;
// each answer as an H100's. The cluster of a launch without clusters is one of one block.
CUresult choose_cluster(const State& s, const Function& function,
                        const std::optional<exec::Dim3>& asked, exec::LaunchShape& shape) {
  const exec::EntryInfo& entry = *function.entry;
  exec::Dim3& cluster = shape.cluster;
  const exec::Dim3 required{static_cast<uint32_t>(function.cluster[0].load()),
                            static_cast<uint32_t>(function.cluster[1].load()),
                            static_cast<uint32_t>(function.cluster[2].load())};
  const bool has_required = required.x != 0 || required.y != 0 || required.z != 0;
  if (!asked && !has_required)
    return entry.explicit_cluster ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
  cluster = has_required ? required : *asked;
  if (asked && (asked->x != cluster.x || asked->y != cluster.y || asked->z != cluster.z))
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const uint32_t most = entry.max_cluster_blocks == 0
                            ? largest_cluster(function)
                            : std::min(largest_cluster(function), entry.max_cluster_blocks);
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 || cluster.x > most || cluster.y > most ||
      cluster.z > most || cluster.count() > most)
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  exec::Dim3& grid = shape.grid;
  if (entry.blocks_are_clusters) {
    if (grid.x > kMaxGridX / cluster.x || grid.y > kMaxGridY / cluster.y ||
        grid.z > kMaxGridZ / cluster.z)
      return CUDA_ERROR_INVALID_VALUE;
    grid = {grid.x * cluster.x, grid.y * cluster.y, grid.z * cluster.z};
  } else if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  if (cluster.count() > 1 && s.gpu->model().major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  shape.explicit_cluster = true;
  return CUDA_SUCCESS;
}

// The cluster that a configuration asks for.
std::optional<exec::Dim3> asked_cluster(const CUlaunchConfig& config) {
  std::optional<exec::Dim3> asked;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& size = config.attrs[i].value.clusterDim;
    asked = exec::Dim3{size.x, size.y, size.z};
  }
  return asked;
}

// What cooperative groups find of a grid: this size, a counter
// (cooperative_groups/details/driver_abi.h, a public header of the CUDA Toolkit).
struct GridWorkspace {
  uint32_t bytes, barrier;
};

// What a launch asks for besides its shape.
struct LaunchOptions {
  std::optional<int> priority;  // the stream's, if not given
  bool cooperative = false;     // all blocks resident at the same time
  std::optional<exec::Dim3> cluster;
};

// Whether the function can have such a launch; makes `shape` what it will have.
CUresult check_launch(State& s, const Function& function, const LaunchOptions& options,
                      exec::LaunchShape& shape) {
  if (!function.entry->refused.empty())
    s.log(function.entry->name + " cannot run here: " + function.entry->refused);
  // <<<clusters>>> alone: such a kernel knows how large its blocks are (seen on an H100).
  const uint32_t* required = function.entry->required_block;
  if (function.entry->blocks_are_clusters && shape.block.count() == 1)
    shape.block = {required[0], required[1], required[2]};
  if (const CUresult r = check_shape(s.runner.limits(), function, shape); r != CUDA_SUCCESS)
    return r;
  return choose_cluster(s, function, options.cluster, shape);
}

std::shared_ptr<ChildGrids> children_of(State& s, Context& context, const Function& function,
                                        const std::shared_ptr<GreenContext>& green, int priority);

// All of a grid but its parameters, and what a cooperative one has besides. `shape` is checked.
CUresult set_up_grid(State& s, Context& context, const Function& function,
                     const LaunchOptions& options, const exec::LaunchShape& shape,
                     const std::shared_ptr<GreenContext>& green, int priority, Grid& grid) {
  const auto threads = static_cast<uint32_t>(shape.block.count());
  grid.needs = block_needs(s.runner.limits(), threads, function.registers,
                           function.entry->static_shared_bytes + shape.dynamic_shared_bytes);
  if (grid.needs.per_sm == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (!reserve_local(s, context, function.entry->local_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (green) grid.confine(green->sms, green->id, s.config.virtual_smid);
  SmSet sms = s.runner.sms_of(context.slot);
  if (green) sms = GridRunner::within(sms, green->sms);
  const uint64_t together = uint64_t{grid.needs.per_sm} * sms.count();
  if (options.cooperative && shape.grid.count() > together)
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  if (shape.cluster.count() > 1 && shape.cluster.count() > together)
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  grid.priority = priority;
  grid.image = function.image;
  grid.entry = function.entry->name;
  grid.shape = shape;
  grid.shape.stack_bytes = context.stack_bytes;
  grid.shape.heap = &context.heap;
  if (const auto children = children_of(s, context, function, green, priority)) {
    grid.shape.launches = children.get();
    grid.run_children = [children](const exec::Fault& fault, const Grid::Done& done) {
      children->run_after(fault, done);
    };
  }
  grid.shape.grid_id = s.next_grid_id.fetch_add(1, std::memory_order_relaxed);
  grid.map = &context.map;
  grid.slot = context.slot;
  return CUDA_SUCCESS;
}

uint32_t occupancy(const State& s, const Function& function, uint32_t threads,
                   size_t dynamic_shared);

// Of a grid of a function's module.
std::shared_ptr<ChildGrids> children_of(State& s, Context& context, const Function& function,
                                        const std::shared_ptr<GreenContext>& green, int priority) {
  if (!function.image->program().launches_kernels()) return nullptr;
  const auto find = [&s, module = function.module](const exec::EntryInfo& entry) {
    const auto of = module.lock();
    return of ? s.tables.functions.find(function_of(s, of, entry.name)) : nullptr;
  };
  const auto make = [&s, &context, green, priority, find](
                        const exec::EntryInfo& entry, const exec::LaunchShape& wanted,
                        uint32_t& error) -> std::shared_ptr<Grid> {
    constexpr uint32_t kInvalidConfiguration = 9;  // cudaError_t
    const auto child = find(entry);
    if (child == nullptr) return nullptr;
    exec::LaunchShape shape = wanted;
    auto grid = std::make_shared<Grid>();
    CUresult r = check_launch(s, *child, {}, shape);
    if (r == CUDA_SUCCESS) r = set_up_grid(s, context, *child, {}, shape, green, priority, *grid);
    error = r == CUDA_ERROR_INVALID_VALUE ? kInvalidConfiguration : static_cast<uint32_t>(r);
    return r == CUDA_SUCCESS ? grid : nullptr;
  };
  ChildGrids::Answers answers;
  answers.device = [&s](int which) {
    return device_attribute(s, static_cast<CUdevice_attribute>(which));
  };
  answers.kernel = [&s, find](const exec::EntryInfo& entry, int which) -> std::optional<int> {
    const auto child = find(entry);
    if (child == nullptr) return std::nullopt;
    return function_attribute(s, *child, static_cast<CUfunction_attribute>(which));
  };
  answers.blocks_per_sm = [&s, find](const exec::EntryInfo& entry, uint32_t block_threads,
                                     uint64_t shared_bytes) -> std::optional<uint32_t> {
    const auto child = find(entry);
    if (child == nullptr) return std::nullopt;
    return occupancy(s, *child, block_threads, shared_bytes);
  };
  answers.limit = [&context](int which) -> std::optional<uint64_t> {
    std::lock_guard lock(context.mutex);
    const auto it = context.limits.find(static_cast<CUlimit>(which));
    if (it == context.limits.end()) return std::nullopt;
    return it->second;
  };
  return std::make_shared<ChildGrids>(s.runner, function.image, context.map, context.heap, make,
                                      std::move(answers));
}

CUresult launch(CUfunction handle, const exec::LaunchShape& wanted, CUstream stream_handle,
                void** pointers, void** extra, const LaunchOptions& options = {}) {
  return with_stream(stream_handle, [&](State& s, Context& context, Stream& stream) -> CUresult {
    CUresult error;
    const std::shared_ptr<Function> function = find_function(s, context, handle, error);
    if (!function) return error;
    if (function->context.lock().get() != &context) return CUDA_ERROR_INVALID_HANDLE;
    exec::LaunchShape shape = wanted;
    if (const CUresult r = check_launch(s, *function, options, shape); r != CUDA_SUCCESS) return r;
    auto grid = std::make_shared<Grid>();
    if (const CUresult r = gather_params(*function->entry, pointers, extra, grid->params);
        r != CUDA_SUCCESS)
      return r;
    const int priority = std::clamp(options.priority.value_or(stream.priority.load()),
                                    kGreatestPriority, kLeastPriority);
    if (const CUresult r = set_up_grid(s, context, *function, options, shape, stream.green.lock(),
                                       priority, *grid);
        r != CUDA_SUCCESS)
      return r;
    uint64_t workspace = 0;
    if (options.cooperative) {
      workspace = allocate_device(s, context, sizeof(GridWorkspace));
      if (workspace == 0) return CUDA_ERROR_OUT_OF_MEMORY;
      *reinterpret_cast<GridWorkspace*>(workspace) = {sizeof(GridWorkspace), 0};
      if (s.checker != nullptr)
        s.checker->on_variable(workspace);  // written, and no leak of the program's
      grid->shape.grid_workspace = workspace;
      grid->together = true;
    }
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::kKernel;
    operation->grid = std::move(grid);
    s.scheduler.enqueue(stream, operation);
    if (workspace != 0) {  // behind the kernel; after an error it goes with the context
      auto end = std::make_shared<Operation>();
      end->kind = Operation::Kind::kTransfer;
      end->run = [&s, &context, workspace] { free_device(s, context, workspace); };
      s.scheduler.enqueue(stream, end);
    }
    return CUDA_SUCCESS;
  });
}

CUresult add_host_function(CUstream handle, bool even_after_error,
                           std::function<void(Context&)> call) {
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::kHostFunction;
    operation->even_after_error = even_after_error;
    operation->run = [call = std::move(call), &context] { call(context); };
    s.scheduler.enqueue(stream, operation);
    return CUDA_SUCCESS;
  });
}

template <class F>
CUresult with_occupancy(CUfunction handle, F f) {
  return with_context([&](State& s, Context& context) -> CUresult {
    CUresult error;
    const std::shared_ptr<Function> function = find_function(s, context, handle, error);
    return function ? f(s, *function) : error;
  });
}

// What the function's attribute and its static shared memory leave.
uint32_t max_dynamic_shared(const SmLimits& limits, const Function& function) {
  const uint32_t fixed =
      std::min(function.entry->static_shared_bytes, limits.shared_per_block_optin);
  return std::min(static_cast<uint32_t>(function.max_dynamic_shared.load()),
                  limits.shared_per_block_optin - fixed);
}

// Resident blocks per SM of such a launch; 0 if it cannot run.
uint32_t occupancy(const State& s, const Function& function, uint32_t threads,
                   size_t dynamic_shared) {
  const exec::EntryInfo& entry = *function.entry;
  if (threads == 0 || threads > kMaxBlockThreads ||
      (entry.max_threads != 0 && threads > entry.max_threads))
    return 0;
  if (dynamic_shared > max_dynamic_shared(s.runner.limits(), function)) return 0;
  return block_needs(s.runner.limits(), threads, function.registers,
                     entry.static_shared_bytes + static_cast<uint32_t>(dynamic_shared))
      .per_sm;
}

}  // namespace

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void** params, void** extra) {
  return launch(f, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, stream,
                params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  LaunchOptions options;
  std::vector<CUevent> events;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttributeValue& value = config->attrs[i].value;
    switch (config->attrs[i].id) {
      // These only tune, or ask for what is so anyway.
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        options.cooperative = value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        options.priority = value.priority;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        break;  // asked_cluster
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        // They may not come before the blocks have triggered or begun, but as late as the grid's
        // end.
        if (cuEventQuery(value.programmaticEvent.event) == CUDA_ERROR_INVALID_HANDLE)
          return CUDA_ERROR_INVALID_HANDLE;
        events.push_back(value.programmaticEvent.event);
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  options.cluster = asked_cluster(*config);
  CUresult r = launch(f,
                      {{config->gridDimX, config->gridDimY, config->gridDimZ},
                       {config->blockDimX, config->blockDimY, config->blockDimZ},
                       config->sharedMemBytes},
                      config->hStream, params, extra, options);
  for (CUevent event : events)
    if (r == CUDA_SUCCESS) r = cuEventRecord(event, config->hStream);
  return r;
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** params) {
  LaunchOptions options;
  options.cooperative = true;
  return launch(f, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, stream,
                params, nullptr, options);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* user_data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_host_function(stream, false, [function, user_data](Context&) { function(user_data); });
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* user_data,
                             unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return add_host_function(stream, true, [callback, stream, user_data](Context& context) {
    callback(stream, outcome(context), user_data);
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction f,
                                                              int block_size, size_t dynamic_shared,
                                                              unsigned int) {
  return with_occupancy(f, [&](State& s, const Function& function) {
    if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
    *blocks =
        static_cast<int>(occupancy(s, function, static_cast<uint32_t>(block_size), dynamic_shared));
    return CUDA_SUCCESS;
  });
}

// Any SMs can hold a cluster's blocks.
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction f, const CUlaunchConfig* config) {
  if (f == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_occupancy(f, [&](State& s, const Function& function) {
    if (clusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    exec::LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ}, {}};
    if (const CUresult r = choose_cluster(s, function, asked_cluster(*config), shape);
        r != CUDA_SUCCESS)
      return r;
    const uint32_t threads = config->blockDimX * config->blockDimY * config->blockDimZ;
    if (threads == 0 || threads > kMaxBlockThreads) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t blocks =
        uint64_t{occupancy(s, function, threads, config->sharedMemBytes)} * s.runner.sms();
    *clusters = static_cast<int>(blocks / shape.cluster.count());
    return CUDA_SUCCESS;
  });
}
// Like an H100, says nothing of .maxclusterrank.
CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction f, const CUlaunchConfig* config) {
  if (f == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_occupancy(f, [&](State& s, const Function& function) {
    if (size == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    exec::LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ}, {}};
    if (const CUresult r = choose_cluster(s, function, asked_cluster(*config), shape);
        r != CUDA_SUCCESS)
      return r;
    const uint32_t threads = config->blockDimX * config->blockDimY * config->blockDimZ;
    const uint64_t blocks =
        uint64_t{occupancy(s, function, threads, config->sharedMemBytes)} * s.runner.sms();
    uint32_t largest = s.gpu->model().major < 9 ? 1 : largest_cluster(function);
    while (largest > std::max<uint64_t>(blocks, 1)) largest /= 2;
    *size = static_cast<int>(largest);
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction f, int block_size,
                                                     size_t dynamic_shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, block_size, dynamic_shared,
                                                              0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* block_size, CUfunction f,
                                                   CUoccupancyB2DSize shared_of,
                                                   size_t dynamic_shared, int limit, unsigned int) {
  return with_occupancy(f, [&](State& s, const Function& function) {
    if (min_grid == nullptr || block_size == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
    uint32_t most = kMaxBlockThreads;
    if (limit != 0) most = std::min(most, static_cast<uint32_t>(limit));
    if (function.entry->max_threads != 0) most = std::min(most, function.entry->max_threads);
    uint32_t best_size = 0, best_blocks = 0;
    // The largest block among those with the most resident threads: whole warps, or the largest
    // that there may be.
    for (uint32_t size = most; size > 0; size = (size - 1) / 32 * 32) {
      const size_t shared =
          shared_of != nullptr ? shared_of(static_cast<int>(size)) : dynamic_shared;
      const uint32_t blocks = occupancy(s, function, size, shared);
      if (blocks * size > best_blocks * best_size) {
        best_size = size;
        best_blocks = blocks;
      }
    }
    if (best_size == 0) return CUDA_ERROR_INVALID_VALUE;
    *block_size = static_cast<int>(best_size);
    const Current top = current();  // of a green context its SMs (measured on an H200)
    *min_grid = static_cast<int>(
        best_blocks * (top.green ? static_cast<uint32_t>(top.green->sms.count()) : s.runner.sms()));
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block_size, CUfunction f,
                                          CUoccupancyB2DSize shared_of, size_t dynamic_shared,
                                          int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid, block_size, f, shared_of,
                                                   dynamic_shared, limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction f, int blocks,
                                                 int block_size) {
  return with_occupancy(f, [&](State& s, const Function& function) {
    if (bytes == nullptr || blocks <= 0 || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
    const auto wanted = static_cast<uint32_t>(blocks);
    if (occupancy(s, function, static_cast<uint32_t>(block_size), 0) < wanted)
      return CUDA_ERROR_INVALID_VALUE;
    const SmLimits& limits = s.runner.limits();
    const uint32_t share = limits.shared_bytes / wanted / limits.shared_unit * limits.shared_unit;
    const uint32_t taken = limits.shared_reserved + function.entry->static_shared_bytes;
    *bytes = std::min(share - std::min(share, taken), max_dynamic_shared(limits, function));
    return CUDA_SUCCESS;
  });
}
