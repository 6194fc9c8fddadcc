// SPDX-License-Identifier: Apache-2.0
// One of several programs that have memory and events together; cases_ipc.py says what each does.
// Takes a command a line and answers a line: what a call answered, and what it is about.
//
//   alloc BYTES      memory of its own, from now on "the" memory       address
//   export           what others open the memory by                    handle
//   open HANDLE      another program's memory, from now on the memory  address
//   close, free, freeasync  the memory
//   allocasync BYTES in the order of the stream
//   fill VALUE       a kernel writes it to each word of the memory
//   read             the first and the last word
//   room             free memory
//   pool             a pool for several programs                       where its descriptor is
//   openpool PATH    the pool whose descriptor that is
//   allocpool BYTES  in the order of the stream, from the pool
//   exportpool, importpool HANDLE   the memory, as one of the pool     handle
//   event            an event of several programs                      handle
//   openevent HANDLE another program's
//   hold             what the stream gets from now on waits ...
//   release          ... until here
//   record, wait     the event, in the stream
//   query, synchronize  the event
//   queue VALUE      as fill, in the stream, without waiting
//   last             the last word, by a copy in the stream
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <type_traits>

#include "abi/cuda_graph.h"

namespace {

constexpr const char* kText = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 to, .param .u32 words, .param .u32 value) {
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd0, [to];
  ld.param.u32 %r0, [words];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r2, 128, %r3;
  setp.ge.u32 %p, %r4, %r0;
  @%p bra END;
  mul.wide.u32 %rd1, %r4, 4;
  add.u64 %rd2, %rd0, %rd1;
  st.global.u32 [%rd2], %r1;
END:
  ret;
}
)";

template <class T>
std::string in_hex(const T& handle) {
  std::string text;
  char digits[3];
  for (unsigned char byte : handle.reserved) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

template <class T>
T from_hex(const std::string& text) {
  T handle{};
  for (size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < text.size(); ++i)
    handle.reserved[i] = static_cast<std::remove_reference_t<decltype(handle.reserved[i])>>(
        std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  return handle;
}

class Program {
 public:
  CUresult start() {
    CUresult r = cuInit(0);
    CUcontext context = nullptr;
    if (r == CUDA_SUCCESS) r = cuDevicePrimaryCtxRetain(&context, 0);
    if (r == CUDA_SUCCESS) r = cuCtxSetCurrent(context);
    CUmodule module = nullptr;
    if (r == CUDA_SUCCESS) r = cuModuleLoadData(&module, kText);
    if (r == CUDA_SUCCESS) r = cuModuleGetFunction(&fill_, module, "fill");
    if (r == CUDA_SUCCESS) r = cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    if (r == CUDA_SUCCESS)
      r = cuMemHostAlloc(reinterpret_cast<void**>(&flag_), 64, CU_MEMHOSTALLOC_DEVICEMAP);
    if (r == CUDA_SUCCESS) *flag_ = 0;
    return r;
  }

  CUresult run(const std::string& command, const std::string& word, std::string* about) {
    if (command == "alloc") {
      bytes_ = std::strtoull(word.c_str(), nullptr, 10);
      const CUresult r = cuMemAlloc(&memory_, bytes_);
      *about = std::to_string(memory_);
      return r;
    }
    if (command == "export") {
      CUipcMemHandle handle{};
      const CUresult r = cuIpcGetMemHandle(&handle, memory_);
      *about = in_hex(handle);
      return r;
    }
    if (command == "open") {
      const CUresult r = cuIpcOpenMemHandle(&memory_, from_hex<CUipcMemHandle>(word),
                                            CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
      if (r == CUDA_SUCCESS) (void)cuMemGetAddressRange(nullptr, &bytes_, memory_);
      *about = std::to_string(memory_);
      return r;
    }
    if (command == "close") return cuIpcCloseMemHandle(memory_);
    if (command == "free") return cuMemFree(memory_);
    if (command == "freeasync") return cuMemFreeAsync(memory_, stream_);
    if (command == "allocasync") {
      bytes_ = std::strtoull(word.c_str(), nullptr, 10);
      return cuMemAllocAsync(&memory_, bytes_, stream_);
    }
    if (command == "fill") {
      const CUresult r = queue(word);
      return r == CUDA_SUCCESS ? cuStreamSynchronize(stream_) : r;
    }
    if (command == "queue") return queue(word);
    if (command == "read") return read(about);
    if (command == "room") {
      size_t free = 0, total = 0;
      const CUresult r = cuMemGetInfo(&free, &total);
      *about = std::to_string(free);
      return r;
    }
    if (command.ends_with("pool")) return run_pool(command, word, about);
    return run_event(command, word, about);
  }

 private:
  CUresult run_pool(const std::string& command, const std::string& word, std::string* about) {
    constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (command == "pool") {
      CUmemPoolProps props{};
      props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      props.handleTypes = kDescriptor;
      props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      CUresult r = cuMemPoolCreate(&pool_, &props);
      int descriptor = -1;
      if (r == CUDA_SUCCESS)
        r = cuMemPoolExportToShareableHandle(&descriptor, pool_, kDescriptor, 0);
      *about = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor);
      return r;
    }
    if (command == "openpool") {
      const int descriptor = ::open(word.c_str(), O_RDONLY | O_CLOEXEC);
      const CUresult r = cuMemPoolImportFromShareableHandle(
          &pool_, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)), kDescriptor, 0);
      ::close(descriptor);
      return r;
    }
    if (command == "allocpool") {
      bytes_ = std::strtoull(word.c_str(), nullptr, 10);
      return cuMemAllocFromPoolAsync(&memory_, bytes_, pool_, stream_);
    }
    if (command == "exportpool") {
      CUmemPoolPtrExportData data{};
      const CUresult r = cuMemPoolExportPointer(&data, memory_);
      *about = in_hex(data);
      return r;
    }
    if (command == "importpool") {
      auto data = from_hex<CUmemPoolPtrExportData>(word);
      const CUresult r = cuMemPoolImportPointer(&memory_, pool_, &data);
      if (r == CUDA_SUCCESS) (void)cuMemGetAddressRange(nullptr, &bytes_, memory_);
      return r;
    }
    return CUDA_ERROR_NOT_FOUND;
  }
  CUresult run_event(const std::string& command, const std::string& word, std::string* about) {
    if (command == "event") {
      CUresult r = cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
      CUipcEventHandle handle{};
      if (r == CUDA_SUCCESS) r = cuIpcGetEventHandle(&handle, event_);
      *about = in_hex(handle);
      return r;
    }
    if (command == "openevent")
      return cuIpcOpenEventHandle(&event_, from_hex<CUipcEventHandle>(word));
    if (command == "hold") {
      *flag_ = 0;
      return cuStreamWaitValue32(stream_, reinterpret_cast<CUdeviceptr>(flag_), 1,
                                 CU_STREAM_WAIT_VALUE_EQ);
    }
    if (command == "release") {
      __atomic_store_n(flag_, 1, __ATOMIC_RELEASE);
      return CUDA_SUCCESS;
    }
    if (command == "record") return cuEventRecord(event_, stream_);
    if (command == "wait") return cuStreamWaitEvent(stream_, event_, 0);
    if (command == "query") return cuEventQuery(event_);
    if (command == "synchronize") return cuEventSynchronize(event_);
    if (command == "endevent") return cuEventDestroy(event_);
    if (command == "last") {
      uint32_t last = 0;
      CUresult r = cuMemcpyDtoHAsync(&last, memory_ + bytes_ - 4, 4, stream_);
      if (r == CUDA_SUCCESS) r = cuStreamSynchronize(stream_);
      *about = std::to_string(last);
      return r;
    }
    return CUDA_ERROR_NOT_FOUND;
  }

  CUresult queue(const std::string& word) {
    uint32_t words = static_cast<uint32_t>(bytes_ / 4),
             value = static_cast<uint32_t>(std::strtoul(word.c_str(), nullptr, 10));
    void* parameters[] = {&memory_, &words, &value};
    return cuLaunchKernel(fill_, (words + 127) / 128, 1, 1, 128, 1, 1, 0, stream_, parameters,
                          nullptr);
  }
  CUresult read(std::string* about) {
    uint32_t first = 0, last = 0;
    CUresult r = cuMemcpyDtoH(&first, memory_, 4);
    if (r == CUDA_SUCCESS) r = cuMemcpyDtoH(&last, memory_ + bytes_ - 4, 4);
    *about = std::to_string(first) + " " + std::to_string(last);
    return r;
  }

  CUfunction fill_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  CUdeviceptr memory_ = 0;
  size_t bytes_ = 0;
  uint32_t* flag_ = nullptr;
};

}  // namespace

int main() {
  Program program;
  std::cout << program.start() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    const size_t space = line.find(' ');
    std::string about;
    const CUresult r = program.run(
        line.substr(0, space), space == std::string::npos ? "" : line.substr(space + 1), &about);
    std::cout << r << (about.empty() ? "" : " ") << about << std::endl;
  }
  return 0;
}
