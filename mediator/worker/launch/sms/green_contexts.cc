// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/sms/green_contexts.h"

#include <algorithm>
#include <cstring>

#include "mediator/base/check.h"
#include "mediator/base/clock.h"
#include "mediator/base/log.h"

namespace sluice::worker {

GreenContexts::GreenContexts(const gpu::DriverApi& api, CUdevice device, CUstream beside,
                             uint32_t sms, GreenCounters& counters)
    : api_(api),
      device_(device),
      beside_(beside),
      sms_(sms),
      counters_(counters),
      ran_(sms, kMost) {}
// What is left of a session that ends goes with its process.
GreenContexts::~GreenContexts() = default;

GreenContext* GreenContexts::find(const SmSet& sms, uint64_t now_ns) {
  if (refused_) return nullptr;
  const auto at =
      std::find_if(made_.begin(), made_.end(), [&](const auto& g) { return g->sms == sms; });
  if (at == made_.end()) {
    if (groups_.known() && !groups_.is_union(sms)) {
      if (!said_odd_)
        log::info(
            "{} SMs that are no union of groups of {}: launches are not confined by the hardware "
            "there",
            sms.count(), groups_.size);
      said_odd_ = true;
    } else if (now_ns >= failed_until_ns_ && !(making_ == sms)) {
      wanted_ = sms;
    }
    return nullptr;
  }
  GreenContext& g = **at;
  g.used = ++uses_;
  if (!g.ready) {
    if (api_.cuEventQuery(g.proved) != CUDA_SUCCESS) return nullptr;
    if (!ran_.keeps_to(g.place, g.sms.count())) {
      refuse("blocks were on more SMs than one has");
      return nullptr;
    }
    // It has been passed, so that nothing waits.
    if (const CUresult r = api_.cuStreamWaitEvent(beside_, g.proved, 0); r != CUDA_SUCCESS) {
      refuse("waiting for one: " + gpu::describe(r));
      return nullptr;
    }
    g.ready = true;
  }
  wait_.over();
  return &g;
}

bool GreenContexts::due(uint64_t now_ns) {
  if (!wanted_ || posted_ || refused_ || now_ns < not_before_ns_) return false;
  posted_ = true;
  return true;
}

bool GreenContexts::worth_waiting(const SmSet& sms, uint64_t now_ns) {
  if (refused_) return false;
  if (!(wanted_ == sms) && !(making_ == sms) &&
      std::none_of(made_.begin(), made_.end(), [&](const auto& g) { return g->sms == sms; }))
    return false;
  return wait_.asked(now_ns);
}

Lane* GreenContexts::lane(GreenContext& g, StreamObject& s) {
  if (const auto at = g.lanes.find(s.id); at != g.lanes.end()) return &at->second;
  if (g.lanes.size() >= kMostLanes) return nullptr;
  Lane lane;
  lane.green = g.cu;
  lane.stream = &s;
  lane.priority = s.priority;
  if (s.priority == 0 && g.spare) {
    lane.cu = std::exchange(g.spare, nullptr);
  } else if (const CUresult r =
                 api_.cuGreenCtxStreamCreate(&lane.cu, g.cu, CU_STREAM_NON_BLOCKING, s.priority);
             r != CUDA_SUCCESS) {
    refuse("a stream: " + gpu::describe(r));
    return nullptr;
  }
  if (!s.passed_on) {
    if (const CUresult r = api_.cuEventCreate(&s.passed_on, CU_EVENT_DISABLE_TIMING);
        r != CUDA_SUCCESS) {
      destroy(lane);
      refuse("an event: " + gpu::describe(r));
      return nullptr;
    }
  }
  return &g.lanes.emplace(s.id, lane).first->second;
}

void GreenContexts::remove(StreamId stream) {
  for (const auto& g : made_) {
    const auto at = g->lanes.find(stream);
    if (at == g->lanes.end()) continue;
    destroy(at->second);
    g->lanes.erase(at);
  }
}

void GreenContexts::refuse(const std::string& why) {
  if (!refused_) log::info("green contexts are not used: {}", why);
  refused_ = true;
}

std::optional<GreenContexts::Job> GreenContexts::begin() {
  const std::optional<SmSet> wanted = std::exchange(wanted_, std::nullopt);
  const auto stop = [this]() -> std::optional<Job> {
    posted_ = false;
    return std::nullopt;
  };
  if (!wanted || refused_) return stop();
  if (std::any_of(made_.begin(), made_.end(), [&](const auto& g) { return g->sms == *wanted; }))
    return stop();
  Job job;
  if (made_.size() >= kMost) {
    auto oldest = made_.end();
    for (auto at = made_.begin(); at != made_.end(); ++at)
      if ((oldest == made_.end() || (*at)->used < (*oldest)->used) && idle(**at)) oldest = at;
    if (oldest == made_.end()) return stop();
    for (auto& [id, lane] : (*oldest)->lanes)
      if (lane.stream->tail == &lane) lane.stream->tail = lane.stream;  // all of it has run
    ran_.give_back((*oldest)->place);
    job.drop = std::move(*oldest);
    made_.erase(oldest);
  }
  job.make = std::make_unique<GreenContext>();
  job.make->sms = *wanted;
  job.make->place = ran_.take();
  making_ = *wanted;
  return job;
}

void GreenContexts::run(Job& job) {
  const char* what = "the split";
  uint64_t from = monotonic_ns();
  CUresult r = split(job);
  if (r == CUDA_SUCCESS && !job.odd) {
    what = "the kernel that writes down where it runs";
    if ((r = ran_.load(api_)) == CUDA_SUCCESS) {
      what = "making one";
      from = monotonic_ns();  // what comes before is done once
      if (job.drop) destroy(*job.drop);
      r = make(*job.make);
    }
    if (r == CUDA_SUCCESS) {
      what = "asking where its blocks run";
      r = prove(*job.make);
    }
  }
  if (r != CUDA_SUCCESS) {
    job.failure = std::string(what) + ": " + gpu::describe(r);
    // Memory may come free; nothing else changes by itself.
    job.final = r != CUDA_ERROR_OUT_OF_MEMORY;
    destroy(*job.make);
  }
  if (job.drop) destroy(*job.drop);
  job.took_ns = monotonic_ns() - from;
}

void GreenContexts::end(Job job, uint64_t now_ns) {
  posted_ = false;
  making_.reset();
  groups_ = job.groups;
  if (job.failure.empty() && !job.odd) {
    not_before_ns_ = now_ns + kPauses * job.took_ns;
    job.make->used = ++uses_;
    made_.push_back(std::move(job.make));
    ++counters_.made;
    return;
  }
  ran_.give_back(job.make->place);
  if (job.odd) return;  // find() says so
  if (job.final) return refuse(job.failure);
  failed_until_ns_ = now_ns + kAfterFailureNs;
  if (!said_failed_)
    log::info("a green context could not be made; launches do without: {}", job.failure);
  said_failed_ = true;
}

// Once; then only whether the set of this job is a union of groups.
CUresult GreenContexts::split(Job& job) {
  if (resources_.empty()) {
    CUdevResource all;
    std::memset(&all, 0, sizeof all);
    CUresult r = api_.cuDeviceGetDevResource(device_, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (r != CUDA_SUCCESS) return r;
    // An MPS client that is kept to some of them would see them numbered anew.
    if (all.sm.smCount != sms_) return CUDA_ERROR_NOT_SUPPORTED;
    unsigned n = 0;
    r = api_.cuDevSmResourceSplitByCount(nullptr, &n, &all, nullptr,
                                         CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 1);
    if (r != CUDA_SUCCESS) return r;
    if (n == 0 || n > sms_) return CUDA_ERROR_NOT_SUPPORTED;
    resources_.resize(n);
    r = api_.cuDevSmResourceSplitByCount(resources_.data(), &n, &all, nullptr,
                                         CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 1);
    if (r == CUDA_SUCCESS && (n == 0 || resources_[0].sm.smCount == 0))
      r = CUDA_ERROR_NOT_SUPPORTED;
    if (r != CUDA_SUCCESS) {
      resources_.clear();
      return r;
    }
    resources_.resize(n);
    for (const CUdevResource& g : resources_)
      if (g.sm.smCount != resources_[0].sm.smCount) return CUDA_ERROR_NOT_SUPPORTED;
  }
  job.groups =
      SmGroups::of(resources_[0].sm.smCount, static_cast<uint32_t>(resources_.size()), sms_);
  job.odd = !job.groups.is_union(job.make->sms);
  return CUDA_SUCCESS;
}

CUresult GreenContexts::make(GreenContext& g) {
  std::vector<CUdevResource> of;
  for (size_t i = 0; i < resources_.size(); ++i)
    if (g.sms.contains(static_cast<uint32_t>(i) * resources_[0].sm.smCount))
      of.push_back(resources_[i]);
  CUdevResourceDesc desc = nullptr;
  CUresult r = api_.cuDevResourceGenerateDesc(&desc, of.data(), static_cast<unsigned>(of.size()));
  if (r == CUDA_SUCCESS)
    r = api_.cuGreenCtxCreate(&g.cu, desc, device_, CU_GREEN_CTX_DEFAULT_STREAM);
  if (r == CUDA_SUCCESS) r = api_.cuGreenCtxStreamCreate(&g.spare, g.cu, CU_STREAM_NON_BLOCKING, 0);
  if (r == CUDA_SUCCESS) r = api_.cuEventCreate(&g.proved, CU_EVENT_DISABLE_TIMING);
  return r;
}

// All that launches will ask of it, so that none of them is the first to fail. Nobody waits for the
// kernel here: its blocks may not find room for long.
CUresult GreenContexts::prove(GreenContext& g) {
  CUresult r = api_.cuEventRecord(g.proved, beside_);
  if (r == CUDA_SUCCESS) r = api_.cuStreamWaitEvent(g.spare, g.proved, 0);
  if (r == CUDA_SUCCESS) r = ran_.launch(api_, g.place, g.sms.count(), g.spare);
  if (r == CUDA_SUCCESS) r = api_.cuEventRecord(g.proved, g.spare);
  return r;
}

bool GreenContexts::idle(const GreenContext& g) const {
  const auto runs = [this](CUstream stream) {
    return stream && api_.cuStreamQuery(stream) != CUDA_SUCCESS;
  };
  if (runs(g.spare)) return false;
  return std::none_of(g.lanes.begin(), g.lanes.end(), [&](const auto& of) {
    const Lane& lane = of.second;
    return lane.open || runs(lane.cu) || runs(lane.second);
  });
}

void GreenContexts::destroy(Lane& lane) const {
  for (CUstream stream : {lane.cu, lane.second})
    if (stream) (void)api_.cuStreamDestroy(stream);
  for (CUevent event :
       {lane.joined, lane.forked, lane.ended[0], lane.ended[1], lane.began, lane.over})
    if (event) (void)api_.cuEventDestroy(event);
}

// Streams first: the driver does not destroy them with their green context.
void GreenContexts::destroy(GreenContext& g) const {
  for (auto& [id, lane] : g.lanes) destroy(lane);
  g.lanes.clear();
  if (g.spare) (void)api_.cuStreamDestroy(g.spare);
  if (g.proved) (void)api_.cuEventDestroy(g.proved);
  if (g.cu) (void)api_.cuGreenCtxDestroy(g.cu);
  g.spare = nullptr, g.proved = nullptr, g.cu = nullptr;
}

void GreenContexts::close() {
  for (const auto& g : made_) destroy(*g);
  made_.clear();
  ran_.release(api_);
  refused_ = true;
}

}  // namespace sluice::worker
