// SPDX-License-Identifier: Apache-2.0
// RecordPool: a session's launch records (abi/preempt.h), handed out first in, first out,
// so that sluiced can still read a finished launch's record for a while.
//
// Owned by the session, used under its lock. The records are shared with the GPU and with sluiced;
// what the GPU wrote is read as a hint only.
#pragma once

#include <cstdint>
#include <deque>

#include "abi/stub.h"

namespace sluice::worker {

class RecordPool {
 public:
  explicit RecordPool(sluice_launch_records* area) : area_(area) {
    for (int i = 0; i < SLUICE_REPORT_RECORDS; ++i) free_.push_back(i);
  }

  // Index of a record of a launch whose length can be predicted, set to PREP; -1 if all are in use.
  // `kernel`: the same for all launches of a kernel; its lowest bit is not kept. `early`: the
  // launch may wait for long; half of the records are kept for those that run.
  int take(uint64_t launch_id, uint32_t tasks_total, uint32_t kernel,
           const sluice_launch_shape& shape, uint64_t ready_ns, bool early) {
    if (free_.size() <= (early ? SLUICE_REPORT_RECORDS / 2 : 0)) return -1;
    const int index = free_.front();
    free_.pop_front();
    sluice_launch_record& r = area_->records[index];
    store32(r.state,
            SLUICE_LAUNCH_FREE);  // what follows belongs to another launch than what was there
    store32(r.generation, 0);
    store32(r.tasks_total, tasks_total);
    store32(r.tasks_done, 0);
    store64(r.launch_id, launch_id);
    store64(r.ready_ns, ready_ns);
    store64(r.left_ns, 0);
    store64(r.start_ns, 0);
    store32(r.evictions, 0);
    store32(r.opaque, kernel & ~1u);
    store32(r.tasks_fetched, 0);
    store32(r.sms_left, 0);
    sluice_launch_shape& s = area_->shapes[index];
    store32(s.block_threads, shape.block_threads);
    store32(s.shared_bytes, shape.shared_bytes);
    store64(s.input_bytes, shape.input_bytes);
    store32(r.state, SLUICE_LAUNCH_PREP);
    return index;
  }
  // One that is not done was given up: nobody is to wait for it.
  void give_back(int index) {
    if (load32(area_->records[index].state) != SLUICE_LAUNCH_DONE)
      set_state(index, SLUICE_LAUNCH_FREE);
    free_.push_back(index);
  }

  void set_state(int index, sluice_launch_state state) {
    store32(area_->records[index].state, state);
  }
  void set_evictions(int index, uint32_t n) { store32(area_->records[index].evictions, n); }

  // It runs as the program's own kernel.
  void set_opaque(int index) {
    store32(area_->records[index].opaque, load32(area_->records[index].opaque) | 1);
  }
  // Of an original that has ended: when it ran, by the host's clock. Its blocks write nothing.
  void set_ran(int index, uint64_t start_ns, uint64_t end_ns) {
    sluice_launch_record& r = area_->records[index];
    store64(r.start_ns, start_ns);
    store64(r.left_ns, end_ns);
    set_state(index, SLUICE_LAUNCH_DONE);
  }

  // Of a launch in windows: tasks up to the newest mark, or to the end of the newest window that
  // has ended.
  void set_fetched(int index, uint32_t tasks) {
    store32(area_->records[index].tasks_fetched, tasks);
  }
  uint32_t fetched(int index) const { return load32(area_->records[index].tasks_fetched); }

  // Of a launch in windows that has ended, in this physical launch: tasks that have run.
  void set_done(int index, uint32_t generation, uint32_t tasks) {
    store32(area_->records[index].generation, generation);
    store32(area_->records[index].tasks_fetched, tasks);
    store32(area_->records[index].tasks_done, tasks);
  }

  struct Snapshot {
    uint32_t state, generation, tasks_total, tasks_done;
    uint64_t left_ns, start_ns;
  };
  Snapshot read(int index) const {
    const sluice_launch_record& r = area_->records[index];
    return {load32(r.state),      load32(r.generation), load32(r.tasks_total),
            load32(r.tasks_done), load64(r.left_ns),    load64(r.start_ns)};
  }

 private:
  static void store32(uint32_t& to, uint32_t v) { __atomic_store_n(&to, v, __ATOMIC_RELEASE); }
  static void store64(uint64_t& to, uint64_t v) { __atomic_store_n(&to, v, __ATOMIC_RELAXED); }
  static uint32_t load32(const uint32_t& v) { return __atomic_load_n(&v, __ATOMIC_ACQUIRE); }
  static uint64_t load64(const uint64_t& v) { return __atomic_load_n(&v, __ATOMIC_ACQUIRE); }

  sluice_launch_records* area_;
  std::deque<int> free_;
};

}  // namespace sluice::worker
