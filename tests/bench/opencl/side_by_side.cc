// SPDX-License-Identifier: Apache-2.0
// One case of the side-by-side benchmark on one engine: the software GPU (its PTX through the CUDA
// driver API) or an OpenCL device (its twin). Prints one JSON object: items per second and a digest
// of the output, by which run_side_by_side.py sees that the engines computed the same.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "mediator/gpu/driver_api.h"
#include "tests/bench/opencl/cases.h"

namespace {

using namespace sluice;
using namespace sluice::bench;

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A case made ready on an engine.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;
  virtual void run(unsigned launches) = 0;  // and waits for the last one
  virtual void reset_outputs() = 0;
  virtual std::vector<std::uint8_t> read(int buffer) = 0;
};

void require(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(what + (": " + gpu::describe(result)));
}

class SoftEngine final : public Engine {
 public:
  SoftEngine(const Case& c, const std::string& library, const std::string& root) : case_(c) {
    auto loaded = gpu::load_driver(library);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    cuda_ = *loaded;
    CUdevice device;
    CUcontext context;
    require(cuda_.cuInit(0), "cuInit");
    require(cuda_.cuDeviceGet(&device, 0), "cuDeviceGet");
    require(cuda_.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    require(cuda_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    CUmodule module;
    require(cuda_.cuModuleLoadData(&module, read_file(root + "/" + c.module).c_str()),
            "cuModuleLoadData");
    require(cuda_.cuModuleGetFunction(&function_, module, c.name.c_str()), "cuModuleGetFunction");
    for (const Buffer& b : c.buffers) {
      CUdeviceptr address;
      require(cuda_.cuMemAlloc(&address, b.bytes.size()), "cuMemAlloc");
      require(cuda_.cuMemcpyHtoD(address, b.bytes.data(), b.bytes.size()), "cuMemcpyHtoD");
      addresses_.push_back(address);
    }
    for (const Argument& a : c.arguments)
      values_.push_back(a.buffer < 0 ? a.value : addresses_.at(static_cast<size_t>(a.buffer)));
    for (std::uint64_t& value : values_) pointers_.push_back(&value);
  }
  void run(unsigned launches) override {
    for (unsigned i = 0; i < launches; ++i)
      require(cuda_.cuLaunchKernel(function_, case_.grid[0], case_.grid[1], 1, case_.block[0],
                                   case_.block[1], 1, 0, nullptr, pointers_.data(), nullptr),
              "cuLaunchKernel");
    require(cuda_.cuCtxSynchronize(), "cuCtxSynchronize");
  }
  void reset_outputs() override {
    for (size_t i = 0; i < case_.buffers.size(); ++i)
      if (case_.buffers[i].output)
        require(cuda_.cuMemcpyHtoD(addresses_[i], case_.buffers[i].bytes.data(),
                                   case_.buffers[i].bytes.size()),
                "cuMemcpyHtoD");
  }
  std::vector<std::uint8_t> read(int buffer) override {
    const auto i = static_cast<size_t>(buffer);
    std::vector<std::uint8_t> bytes(case_.buffers[i].bytes.size());
    require(cuda_.cuMemcpyDtoH(bytes.data(), addresses_[i], bytes.size()), "cuMemcpyDtoH");
    return bytes;
  }

 private:
  const Case& case_;
  gpu::DriverApi cuda_;
  CUfunction function_ = nullptr;
  std::vector<CUdeviceptr> addresses_;
  std::vector<std::uint64_t> values_;
  std::vector<void*> pointers_;
};

void require_cl(cl_int result, const char* what) {
  if (result != CL_SUCCESS)
    throw std::runtime_error(what + (": OpenCL error " + std::to_string(result)));
}

class OpenClEngine final : public Engine {
 public:
  OpenClEngine(const Case& c, const std::string& platform, const std::string& root) : case_(c) {
    cl_uint count = 0;
    require_cl(clGetPlatformIDs(0, nullptr, &count), "clGetPlatformIDs");
    std::vector<cl_platform_id> platforms(count);
    require_cl(clGetPlatformIDs(count, platforms.data(), nullptr), "clGetPlatformIDs");
    cl_device_id device = nullptr;
    for (cl_platform_id p : platforms) {
      char name[256] = {};
      require_cl(clGetPlatformInfo(p, CL_PLATFORM_NAME, sizeof(name) - 1, name, nullptr),
                 "clGetPlatformInfo");
      if (std::string(name).find(platform) == std::string::npos) continue;
      require_cl(clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), "clGetDeviceIDs");
    }
    if (device == nullptr) throw std::runtime_error("no OpenCL platform '" + platform + "'");
    cl_int status;
    context_ = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status);
    require_cl(status, "clCreateContext");
    queue_ = clCreateCommandQueue(context_, device, 0, &status);
    require_cl(status, "clCreateCommandQueue");
    const std::string text = read_file(root + "/tests/bench/opencl/twins.cl");
    const char* source = text.c_str();
    cl_program program = clCreateProgramWithSource(context_, 1, &source, nullptr, &status);
    require_cl(status, "clCreateProgramWithSource");
    if (clBuildProgram(program, 1, &device, "", nullptr, nullptr) != CL_SUCCESS) {
      std::vector<char> log(65536);
      clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, log.size() - 1, log.data(),
                            nullptr);
      throw std::runtime_error(log.data());
    }
    kernel_ = clCreateKernel(program, c.name.c_str(), &status);
    require_cl(status, "clCreateKernel");
    for (const Buffer& b : c.buffers) {
      buffers_.push_back(
          clCreateBuffer(context_, CL_MEM_READ_WRITE, b.bytes.size(), nullptr, &status));
      require_cl(status, "clCreateBuffer");
      write(buffers_.back(), b.bytes);
    }
    for (cl_uint i = 0; i < c.arguments.size(); ++i) {
      const Argument& a = c.arguments[i];
      if (a.buffer < 0)
        require_cl(clSetKernelArg(kernel_, i, a.bytes, &a.value), "clSetKernelArg");
      else
        require_cl(
            clSetKernelArg(kernel_, i, sizeof(cl_mem), &buffers_.at(static_cast<size_t>(a.buffer))),
            "clSetKernelArg");
    }
  }
  void run(unsigned launches) override {
    const size_t local[2] = {case_.block[0], case_.block[1]};
    const size_t global[2] = {size_t{case_.grid[0]} * local[0], size_t{case_.grid[1]} * local[1]};
    for (unsigned i = 0; i < launches; ++i)
      require_cl(
          clEnqueueNDRangeKernel(queue_, kernel_, 2, nullptr, global, local, 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
    require_cl(clFinish(queue_), "clFinish");
  }
  void reset_outputs() override {
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (case_.buffers[i].output) write(buffers_[i], case_.buffers[i].bytes);
  }
  std::vector<std::uint8_t> read(int buffer) override {
    const auto i = static_cast<size_t>(buffer);
    std::vector<std::uint8_t> bytes(case_.buffers[i].bytes.size());
    require_cl(clEnqueueReadBuffer(queue_, buffers_[i], CL_TRUE, 0, bytes.size(), bytes.data(), 0,
                                   nullptr, nullptr),
               "clEnqueueReadBuffer");
    return bytes;
  }

 private:
  void write(cl_mem buffer, const std::vector<std::uint8_t>& bytes) {
    require_cl(clEnqueueWriteBuffer(queue_, buffer, CL_TRUE, 0, bytes.size(), bytes.data(), 0,
                                    nullptr, nullptr),
               "clEnqueueWriteBuffer");
  }
  const Case& case_;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  cl_kernel kernel_ = nullptr;
  std::vector<cl_mem> buffers_;
};

// FNV-1a, 64 bits.
std::uint64_t digest(Engine& engine, const Case& c) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < c.buffers.size(); ++i) {
    if (!c.buffers[i].output) continue;
    for (const std::uint8_t byte : engine.read(static_cast<int>(i)))
      hash = (hash ^ byte) * 0x100000001b3u;
  }
  return hash;
}

int run(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const std::string& name : case_names()) std::printf("%s\n", name.c_str());
    return 0;
  }
  if (argc != 7) {
    std::fprintf(stderr,
                 "usage: side_by_side soft LIBRARY | opencl PLATFORM, then CASE LOG2_ITEMS SECONDS "
                 "SOURCE_ROOT\n"
                 "       side_by_side --list\n");
    return 2;
  }
  const std::string kind = argv[1], which = argv[2];
  const Case c = make_case(argv[3], static_cast<unsigned>(std::stoul(argv[4])));
  const double seconds = std::stod(argv[5]);
  std::unique_ptr<Engine> engine;
  if (kind == "soft")
    engine = std::make_unique<SoftEngine>(c, which, argv[6]);
  else
    engine = std::make_unique<OpenClEngine>(c, which, argv[6]);
  engine->run(1);  // compiles, touches the memory
  engine->reset_outputs();
  engine->run(1);
  const std::uint64_t hash = digest(*engine, c);
  // The best of several batches: what else runs on the machine only ever takes time away. Per
  // second of processor time as well, which leaves out most of that.
  using Clock = std::chrono::steady_clock;
  const auto cpu_s = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const auto begin = Clock::now();
  double best = 0, best_cpu = 0;
  unsigned launches = 1, batches = 0;
  do {
    const auto from = Clock::now();
    const double cpu_from = cpu_s();
    engine->run(launches);
    const double took = std::chrono::duration<double>(Clock::now() - from).count();
    const double items = static_cast<double>(c.items) * launches;
    best = std::max(best, items / took);
    best_cpu = std::max(best_cpu, items / std::max(cpu_s() - cpu_from, 1e-9));
    if (took < seconds / 20) launches *= 2;
    ++batches;
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds || batches < 3);
  std::printf(
      "{\"case\": \"%s\", \"items\": %llu, \"unit\": \"%s\", \"items_per_s\": %.6g, "
      "\"items_per_cpu_s\": %.6g, \"digest\": \"%016llx\"}\n",
      c.name.c_str(), static_cast<unsigned long long>(c.items), c.unit.c_str(), best, best_cpu,
      static_cast<unsigned long long>(hash));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int rc = run(argc, argv);
    std::fflush(stdout);
    std::_Exit(rc);  // OpenCL libraries differ in what they do at exit
  } catch (const std::exception& e) {
    std::fprintf(stderr, "side_by_side: %s\n", e.what());
    return 1;
  }
}
