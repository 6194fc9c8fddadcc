// SPDX-License-Identifier: Apache-2.0
// What a vGPU does not have, and a driver may lack: external memory and semaphores, graphics
// resources, sharing between processes, logs. Wrong arguments are errors with every driver; where
// the call is offered, it is used.
#include <cstdio>
#include <string>

#include "tests/cudart/gate/cases/cases.h"

using namespace sluice::cudart;

namespace {

class AbsentCases : public Cases {};

TEST_F(AbsentCases, ExternalMemoryAndSemaphores) {
  cudaExternalMemory_t memory = nullptr;
  cudaExternalSemaphore_t semaphore = nullptr;
  void* p = nullptr;
  Stream stream;
  REFUSED(cudaImportExternalMemory(&memory, nullptr));
  REFUSED(cudaImportExternalSemaphore(&semaphore, nullptr));
  REFUSED(cudaExternalMemoryGetMappedBuffer(&p, nullptr, nullptr));
  REFUSED(cudaDestroyExternalMemory(nullptr));
  REFUSED(cudaDestroyExternalSemaphore(nullptr));
  REFUSED(cudaSignalExternalSemaphoresAsync(nullptr, nullptr, 1, stream));
  REFUSED(cudaWaitExternalSemaphoresAsync(nullptr, nullptr, 1, stream));
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(semaphore, nullptr);
  EXPECT_EQ(p, nullptr);
}

TEST_F(AbsentCases, GraphicsResources) {
  cudaGraphicsResource_t none[] = {nullptr};
  void* p = nullptr;
  size_t size = 0;
  cudaArray_t array = nullptr;
  cudaMipmappedArray_t mipmap = nullptr;
  Stream stream;
  REFUSED(cudaGraphicsMapResources(1, none, stream));
  REFUSED(cudaGraphicsUnmapResources(1, none, stream));
  REFUSED(cudaGraphicsUnregisterResource(nullptr));
  REFUSED(cudaGraphicsResourceSetMapFlags(nullptr, 0));
  REFUSED(cudaGraphicsResourceGetMappedPointer(&p, &size, nullptr));
  REFUSED(cudaGraphicsResourceGetMappedMipmappedArray(&mipmap, nullptr));
  REFUSED(cudaGraphicsSubResourceGetMappedArray(&array, nullptr, 0, 0));
  EXPECT_EQ(p, nullptr);
}

TEST_F(AbsentCases, SharingBetweenProcesses) {
  Memory<int> memory(1024);
  int here = 0;
  cudaIpcMemHandle_t memory_handle = {};
  cudaIpcEventHandle_t event_handle = {};
  cudaEvent_t event = nullptr, opened = nullptr;
  void* p = nullptr;
  OFFERED(cudaIpcGetMemHandle(&memory_handle, memory.at()));
  REFUSED(cudaIpcGetMemHandle(&memory_handle, &here));
  REFUSED(cudaIpcOpenMemHandle(&p, memory_handle, 77));
  REFUSED(cudaIpcCloseMemHandle(&here));
  EXPECT_EQ(p, nullptr);
  OK(cudaEventCreate(&event));  // made for this process alone
  REFUSED(cudaIpcGetEventHandle(&event_handle, event));
  REFUSED(cudaIpcOpenEventHandle(&opened, event_handle));
  EXPECT_EQ(opened, nullptr);
  OK(cudaEventDestroy(event));
}

TEST_F(AbsentCases, Logs) {
  cudaLogIterator position = 0;
  cudaLogsCallbackHandle callback = nullptr;
  const auto nothing = [](void*, int, char*, size_t) {};
  char text[4096];
  size_t size = sizeof text;
  if (OFFERED(cudaLogsCurrent(&position, 0))) {
    OK(cudaLogsDumpToMemory(&position, text, &size, 0));
    const std::string path = testing::TempDir() + "sluice_cases_log";
    OK(cudaLogsDumpToFile(&position, path.c_str(), 0));
    std::remove(path.c_str());
  }
  if (OFFERED(cudaLogsRegisterCallback(nothing, nullptr, &callback)))
    OK(cudaLogsUnregisterCallback(callback));
  REFUSED(cudaLogsCurrent(nullptr, 77));
  REFUSED(cudaLogsDumpToMemory(&position, nullptr, nullptr, 0));
  REFUSED(cudaLogsDumpToFile(&position, nullptr, 0));
  REFUSED(cudaLogsRegisterCallback(nullptr, nullptr, nullptr));
  REFUSED(cudaLogsUnregisterCallback(nullptr));
}

}  // namespace
