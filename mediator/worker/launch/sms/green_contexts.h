// SPDX-License-Identifier: Apache-2.0
// Green contexts of a session's context, by sets of SMs: what confines launches to a part of the
// GPU in the hardware (docs/decisions/0008-green-contexts.md).
//
// One is made when a set was asked for that has none, by the session's job thread; launches wait
// for it, and where it takes long or cannot be, they do without (launch/sms/block_confinement.cc).
// Sets are unions of the smallest groups that the driver's split gives; SMs k * n to k * n + n - 1
// are names of the k-th group of n, which is the same in every process, whatever numbers its SMs
// have in %smid. Each context proves first, by a kernel that writes down where its blocks ran, that
// it keeps them to as many SMs as it has, and that streams on either side wait for events of the
// other. Whatever fails is said once in the log, and never the guest's failure.
//
// Owned by the ContextObject, only where its context is the device's primary one, whose functions
// and events work in streams of green contexts. State under the session lock; run() and close()
// without it, on the job thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/objects.h"
#include "mediator/worker/launch/sms/block_record.h"
#include "mediator/worker/launch/sms/bounded_wait.h"
#include "mediator/worker/launch/sms/sm_groups.h"

namespace sluice::worker {

// What all of a session's have done; session lock.
struct GreenCounters {
  uint64_t launches = 0;  // physical launches that the hardware confined, of ...
  uint64_t parts = 0;     // ... all under parts
  uint64_t made = 0;      // green contexts
};

struct GreenContext {
  SmSet sms;
  CUgreenCtx cu = nullptr;
  bool ready = false;        // it has proved where its blocks run
  CUstream spare = nullptr;  // of no special priority, that no lane has
  CUevent proved = nullptr;  // behind the kernel that writes that down
  size_t place = 0;          // of that in BlockRecord
  uint64_t used = 0;         // the larger, the later
  std::map<StreamId, Lane> lanes;
};

class GreenContexts {
 public:
  // Kept at once: on an H200 one takes 5.7 MB of the GPU's memory, which is charged to nobody, like
  // the rest of what a context takes. Of four vGPUs that always have work each changed its set 8 to
  // 15 times a second there, and with 8 kept every second or third time to one that was not there
  // any more. The one that was not used for longest goes.
  static constexpr size_t kMost = 16;
  // Streams of the guest that have one of their own in a green context; those beyond do without.
  static constexpr size_t kMostLanes = 32;
  // Making one takes 1 to 2 ms on an H200, of a thread that the guest's calls wait for too, and
  // stops its other work for some 20 us: at most half of the time.
  static constexpr uint64_t kPauses = 1;
  static constexpr uint64_t kAfterFailureNs = 1'000'000'000;
  // Launches wait this long at most, and then not until there has been one that was wanted: the
  // first has a driver's compiler before it, where the SMs are full of what no set binds none can
  // prove itself, and sets may change faster than contexts can be made.
  static constexpr uint64_t kMostWaitNs = 50'000'000;

  // `beside`: a stream of the primary context that is seldom busy. `sms`: of the GPU.
  GreenContexts(const gpu::DriverApi& api, CUdevice device, CUstream beside, uint32_t sms,
                GreenCounters& counters);
  ~GreenContexts();

  // --- session lock; the context current ---
  // The one for exactly this set, ready, or null: it is then asked for.
  GreenContext* find(const SmSet& sms, uint64_t now_ns);
  // A context is due, and this has not been reported yet: the caller has begin(), run() and
  // end() called by the job thread.
  bool due(uint64_t now_ns);
  // find() had none for this set, and it will be there soon.
  bool worth_waiting(const SmSet& sms, uint64_t now_ns);
  // Where the guest's stream goes on in `g`, or null.
  Lane* lane(GreenContext& g, StreamObject& s);
  // The guest's stream is no more.
  void remove(StreamId stream);
  // Launches do without from now on.
  void refuse(const std::string& why);

  struct Job {
    std::unique_ptr<GreenContext> make, drop;
    uint64_t took_ns = 0;
    SmGroups groups;
    bool odd = false;     // its set is no union of groups
    std::string failure;  // empty: none
    bool final = false;   // it would fail again
  };
  std::optional<Job> begin();
  void end(Job job, uint64_t now_ns);

  // --- no lock, the job thread, the context current ---
  void run(Job& job);
  // Destroys all. No stream of the guest is left that had lanes here, and nothing is asked of it
  // any more.
  void close();

 private:
  CUresult split(Job& job);
  CUresult make(GreenContext& g);
  CUresult prove(GreenContext& g);
  bool idle(const GreenContext& g) const;
  void destroy(Lane& lane) const;
  void destroy(GreenContext& g) const;

  const gpu::DriverApi& api_;
  CUdevice device_;
  CUstream beside_;
  uint32_t sms_;
  GreenCounters& counters_;
  // The job thread's:
  std::vector<CUdevResource> resources_;  // of each group
  // Where blocks of each ran; its places are under the session lock.
  BlockRecord ran_;
  // Session lock:
  SmGroups groups_;
  std::vector<std::unique_ptr<GreenContext>> made_;
  std::optional<SmSet> wanted_, making_;
  bool posted_ = false;  // a job is under way
  bool refused_ = false, said_odd_ = false, said_failed_ = false;
  uint64_t not_before_ns_ = 0, failed_until_ns_ = 0;
  BoundedWait wait_{kMostWaitNs};
  uint64_t uses_ = 0;
};

}  // namespace sluice::worker
