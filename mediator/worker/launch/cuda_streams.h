// SPDX-License-Identifier: Apache-2.0
// CudaStreams: the stream engine's driver, on the CUDA driver API. It finds the driver's objects of
// a stream and passes each operation to the part that makes it (launch_services.h has the list).
//
// Owned by the session, used under its lock by whichever thread drives the engine; each thread that
// does makes the right context current first (make_current).
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/driver_calls.h"
#include "mediator/worker/launch/filler.h"
#include "mediator/worker/launch/launcher.h"
#include "mediator/worker/launch/markers.h"
#include "mediator/worker/launch/objects.h"
#include "mediator/worker/streams/engine.h"

namespace sluice::worker {

class CudaStreams : public EngineDriver {
 public:
  struct Callbacks {
    std::function<void(uint64_t token, CUresult)> complete;
    std::function<void(uint64_t token)> reached_host_func;
    std::function<void(CUresult)> async_error;
  };
  // `proxy`: block 0 of a clone polls the signal page for the others (worker_protocol::Signal).
  CudaStreams(const gpu::DriverApi& api, bool proxy, LoopSettings settings,
              const sluice_signal_page* signal, sluice_launch_records* records,
              Callbacks callbacks);

  LaunchPlanner& planner() { return launcher_.planner; }
  SmConfinement& confinement() { return launcher_.confinement; }

  // The driver's stream of a new stream of the guest's.
  CUresult make_lane(StreamObject& stream) { return lanes_.make_stream(stream, &stream.cu); }
  // The engine's stream `id` is this stream object from now on, until drained().
  void add(StreamId id, std::shared_ptr<StreamObject> stream);
  // The context goes, and all that was made in it. No stream of it is left.
  void forget(const ContextObject& context) {
    markers_.forget(context);
    filler_.forget(context);
  }
  // After each poll of the engine: `queued` launches are not done; `open`: the gate is.
  bool follows_chain() const { return filler_.follows(); }
  void follow_chain(uint32_t queued, bool open) { filler_.follow(queued, open); }

  // EngineDriver
  Confinement confine(StreamId stream, OpKind kind, Work& work, const Grant& grant,
                      uint64_t now_ns) override;
  bool wait_for_hardware(StreamId stream, const Grant& grant, uint64_t now_ns) override;
  CUresult launch(StreamId stream, Work& work, const Grant& grant, const Work* pred, bool again,
                  uint64_t now_ns) override;
  bool comes_in_pieces(const Work& work) const override;
  CUresult more(StreamId stream, Work& work, bool stop, uint64_t now_ns, bool* whole) override;
  CUresult narrow(std::span<const Running> running, const SmSet& lost, bool* left) override;
  CUresult grow(StreamId stream, Work& work, const Grant& grant, uint64_t now_ns) override;
  CUresult issue(StreamId stream, OpKind kind, Work& work, uint64_t now_ns) override;
  bool write_end_word(StreamId stream, uint64_t address, uint32_t value) override;
  CUresult mark(StreamId stream, uint64_t* marker) override;
  CUresult query(uint64_t marker) override { return markers_.query(marker); }
  CUresult idle(StreamId stream) override;
  LaunchEnd launch_end(Work& work) override;
  void complete(uint64_t token, CUresult status) override { callbacks_.complete(token, status); }
  bool stays_on_sms(const Work& work) const override;
  uint64_t expected_ns(const Work& work) const override;
  uint64_t issued_ns(const Work& work) const override;
  void opaque_ended(StreamId stream, std::span<Work* const> works, bool contended,
                    uint64_t now_ns) override;
  void reached_host_func(uint64_t token) override { callbacks_.reached_host_func(token); }
  void async_error(CUresult status) override { callbacks_.async_error(status); }
  void drained(StreamId stream) override;

 private:
  static Lane& lane_for(StreamObject& s, const StreamCall& work);
  CUresult submitted(StreamObject& s, const LaunchWork& w, CUresult status);
  StreamObject& at(StreamId id) const { return *streams_.at(id); }

  LaunchServices services_;
  Callbacks callbacks_;
  std::unordered_map<StreamId, std::shared_ptr<StreamObject>> streams_;
  Lanes lanes_;
  Launcher launcher_;
  bool end_words_ = true;  // the driver has not refused one
  Markers markers_;
  Filler filler_;
  std::vector<double> ended_parts_;  // opaque_ended()'s
};

}  // namespace sluice::worker
