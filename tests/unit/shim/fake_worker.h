// SPDX-License-Identifier: Apache-2.0
// A worker for tests of the guest's libcuda: serves one slot over the local transport from a thread
// of the test, with host memory for a GPU. Everything is done in order and at once, except what a
// test asks to be held back. Not a model of the real worker, only of what the wire promises.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/cuda_calls.h"
#include "mediator/base/fd.h"
#include "mediator/ring/ring.h"
#include "mediator/worker/calls/dispatch.h"

namespace sluice::testing {

class FakeWorker {
 public:
  struct Options {
    std::string refuse;  // not empty: programs are refused with this reason
    uint64_t staging_bytes = 1 << 20;
    bool accept_rewritten = true;   // false: modules with clones do not load
    const char* printed = nullptr;  // by kernels: comes before each synchronisation's answer
    sluice_printed_to printed_to = SLUICE_PRINTED_OUTPUT;
    size_t hold_syncs = 0;            // answer synchronisations only when so many wait, last first
    uint32_t joined_flags = 0;        // SLUICE_JOINED_*
    bool answer_extent_frees = true;  // false: work is queued that does not end
  };
  FakeWorker() : FakeWorker(Options{}) {}
  explicit FakeWorker(Options options);
  ~FakeWorker();

  const std::string& socket_path() const { return path_; }
  // The session ends as sluiced would end it.
  void end_session(int error, const std::string& reason);
  void give_slot_away();    // the slot is open again, for another program
  void hang_up();           // the connection closes, nothing else
  void pause(bool paused);  // stops taking records (the submit ring fills)
  void hold(bool held);     // asks the program to stop (sluice_slot_header.hold)
  void fail_next_launch(CUresult status) { fail_launch_ = status; }
  void set_hold_syncs(size_t n) { hold_syncs_ = n; }
  // Synchronisations: the GPU's word comes at once; what the answers say.
  void set_writes_end_words(bool writes) { writes_end_words_ = writes; }
  void set_sync_status(CUresult status) { sync_status_ = status; }
  void set_clusters_that_fit(int32_t n) { clusters_that_fit_ = n; }
  uint64_t answered_syncs() const { return answered_syncs_; }
  uint64_t waited_fills() const { return waited_fills_; }  // that the program waited for
  void put_end_word(uint32_t value);

  uint64_t records() const { return records_; }
  uint64_t last_launch_flags() const { return last_launch_flags_; }
  uint64_t host_funcs_done() const { return host_funcs_done_; }
  uint64_t live_allocations() const { return live_allocations_; }
  uint64_t live_extents() const { return live_extents_; }
  uint64_t modules_with_clones() const { return modules_with_clones_; }
  std::string clones_text();  // of the last of them
  uint32_t clones_flags() const {
    return clones_flags_;
  }  // of the last SLUICE_CALL_FUNCTION_CLONES
  void want_clones(CUfunction function);
  bool region_is_mapped_twice();        // by the program, that is, besides the worker itself
  std::vector<std::string> problems();  // what a worker would have ended the session for

  // Used by dispatch_call.
  FakeWorker& handles() { return *this; }
  std::optional<void*> driver_object(sluice_handle_kind kind, uint64_t handle);
  bool has_room(sluice_handle_kind) { return true; }
  uint64_t add(sluice_handle_kind kind, void* object);
  void remove(uint64_t handle);
  bool owns_device_address(CUdeviceptr p) { return owns(p, 1); }
  CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
  CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device);
  CUresult cuDevicePrimaryCtxRetain(calls::WireHandle<SLUICE_HANDLE_CONTEXT>* context, CUdevice);
  CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
  // What was allocated is gone; the next allocations have its addresses again.
  CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
  CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes);
  CUresult cuMemFree_v2(CUdeviceptr p);
  CUresult cuModuleGetGlobal_v2(CUdeviceptr* p, size_t* bytes,
                                calls::WireHandle<SLUICE_HANDLE_MODULE> module, const char* name);
  CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
      int* blocks, calls::WireHandle<SLUICE_HANDLE_FUNCTION> function, int threads, size_t shared);

 private:
  void run();
  void serve(const RecordBuffer& record);
  void answer(const sluice_record& record, CUresult status, std::span<const std::byte> body = {});
  template <class T>
  void answer_with(const sluice_record& record, const T& body) {
    answer(record, CUDA_SUCCESS, std::as_bytes(std::span(&body, 1)));
  }
  void problem(const std::string& text);
  bool owns(CUdeviceptr p, uint64_t bytes);
  std::byte* copy_end(uint32_t kind, uint64_t address, uint64_t bytes);
  void module_load(const sluice_record& record, std::span<const std::byte> body);
  void function_get(const sluice_record& record, std::span<const std::byte> body);
  void launch(const sluice_record& record, std::span<const std::byte> body);
  void copy(const sluice_record& record, std::span<const std::byte> body);
  void fill(const sluice_record& record, std::span<const std::byte> body);

  Options options_;
  std::string path_;
  Fd listener_, region_fd_, bell_, wake_, stop_, connection_;
  std::byte* region_ = nullptr;
  RingConsumer submit_;
  RingProducer complete_;
  std::thread thread_;
  std::mutex mutex_;  // state that tests look at
  std::vector<std::string> problems_;
  std::string clones_text_;
  std::atomic<uint32_t> clones_flags_{0};
  std::atomic<bool> paused_{false};
  std::atomic<CUresult> fail_launch_{CUDA_SUCCESS};
  std::atomic<size_t> hold_syncs_{0};
  std::atomic<bool> writes_end_words_{false};
  std::atomic<CUresult> sync_status_{CUDA_SUCCESS};
  std::atomic<uint64_t> answered_syncs_{0}, host_funcs_done_{0}, waited_fills_{0};
  std::atomic<int32_t> clusters_that_fit_{1};
  std::atomic<uint64_t> records_{0}, live_allocations_{0}, live_extents_{0},
      modules_with_clones_{0}, last_launch_flags_{0};

  uint64_t next_index_ = 1;
  std::map<uint64_t, void*> handles_;
  std::map<CUdeviceptr, std::vector<std::byte>> allocations_, before_reset_;
  std::map<uint64_t, uint64_t> extents_;
  uint64_t next_extent_ = 0;
  std::map<uint64_t, std::string> functions_;
  std::vector<sluice_record> held_;
  std::vector<std::byte> global_ = std::vector<std::byte>(256);
  uint64_t waiting_host_func_ = 0;
  std::deque<RecordBuffer> after_host_func_;
};

}  // namespace sluice::testing
