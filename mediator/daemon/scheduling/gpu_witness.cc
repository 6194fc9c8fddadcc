// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/gpu_witness.h"

#include <algorithm>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/core/names.h"

namespace sluice {

namespace wp = worker_protocol;

GpuWitness::GpuWitness(boost::asio::io_context& io, io::SpawnerLink& spawner, Settings settings)
    : io_(io),
      spawner_(spawner),
      settings_(std::move(settings)),
      again_(io),
      silent_(io),
      again_ms_(settings_.again_ms) {
  start();
}

GpuWitness::~GpuWitness() = default;

uint32_t GpuWitness::process() const {
  return state_ == State::kNone || state_ == State::kStarting
             ? 0
             : static_cast<uint32_t>(process_->pid());
}

void GpuWitness::start() {
  if (std::string why = settings_.no_log(); !why.empty())
    return none("the context-switch log cannot be read: " + why);
  io::WorkerSpec spec;
  spec.is = wp::Type::kWitness;
  spec.start.nvidia = settings_.nvidia;
  copy_text(spec.start.library, sizeof spec.start.library, settings_.library);
  copy_text(spec.start.soft_gpu_file, sizeof spec.start.soft_gpu_file, settings_.soft_gpu_file);
  spec.peers = std::make_shared<io::PeerThread>(io_);
  auto soft_gpu = io::open_soft_gpu(settings_.soft_gpu_file);
  if (!soft_gpu) return none(soft_gpu.error().message);
  spec.soft_gpu = std::move(*soft_gpu);
  auto process = io::WorkerProcess::spawn(io_, spawner_, std::move(spec), *this);
  if (!process) return none(process.error().message);
  process_ = std::move(*process);
  why_ = "it starts";
  go(State::kStarting);
  wait_for_answer(kStartMs);
}

void GpuWitness::go(State state) {
  const bool was = process() != 0;
  state_ = state;
  if (was != (process() != 0)) settings_.hear(Say::kGone);
}

void GpuWitness::wait_for_answer(uint64_t ms) {
  silent_.after_ms(ms, [this] { end("it is silent"); });
}

void GpuWitness::ask(uint64_t now_ns) {
  if (state_ != State::kRests || now_ns < asked_ns_ + kAskMs * 1'000'000) return;
  asked_ns_ = now_ns;
  wp::Message m{};
  m.type = wp::Type::kTry;
  m.request = ++request_;
  // Before it can have launched anything.
  settings_.hear(Say::kAsked);
  if (auto sent = process_->send(m); !sent) return end(sent.error().message);
  go(State::kAsked);
  wait_for_answer(kSilentMs);
}

void GpuWitness::on_worker_message(const wp::Message& m) {
  if (state_ == State::kNone) return;  // it is being ended
  if (m.type == wp::Type::kReady && state_ == State::kStarting) {
    if (m.code != 0) return end(clean_text(m.text, sizeof m.text));
    silent_.cancel();
    ready_ns_ = monotonic_ns();
    logged_.clear();
    go(State::kRests);
    return log::info("the GPU has a witness (process {}): who keeps it beyond its slices is ended",
                     process_->pid());
  }
  const bool asked = state_ == State::kAsked || state_ == State::kWaits;
  if (m.type == wp::Type::kTried && asked && m.request == request_) {
    go(State::kWaits);
    wait_for_answer(kSilentMs);
    return settings_.hear(Say::kWaits);
  }
  if (m.type == wp::Type::kServed && state_ == State::kWaits && m.request == request_) {
    silent_.cancel();
    go(State::kRests);
    return settings_.hear(Say::kServed);
  }
  end("it said what it was not asked");
}

void GpuWitness::on_worker_xid(int number) { end("fault " + std::to_string(number)); }

void GpuWitness::end(const std::string& why) {
  if (state_ == State::kNone) return;
  why_ = why;
  go(State::kNone);
  silent_.cancel();
  process_->kill();  // on_worker_exit() follows
}

void GpuWitness::on_worker_exit(const io::WorkerExit& exit) {
  const std::string why = state_ == State::kNone ? why_ : exit.text();
  if (ready_ns_ != 0 && monotonic_ns() > ready_ns_ + kStableMs * 1'000'000)
    again_ms_ = settings_.again_ms;
  ready_ns_ = 0;
  go(State::kNone);
  silent_.cancel();
  process_.reset();
  none(why);
}

void GpuWitness::none(const std::string& why) {
  why_ = why;
  if (std::exchange(logged_, why) != why)
    log::warning(
        "the GPU has no witness, so nobody is ended for keeping it beyond its time slices: {}",
        why);
  again_.after_ms(again_ms_, [this] { start(); });
  again_ms_ = std::min(2 * again_ms_, kMostAgainMs);
}

}  // namespace sluice
