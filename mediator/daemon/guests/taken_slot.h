// SPDX-License-Identifier: Apache-2.0
// TakenSlot: a slot of a channel with its staging buffer, from take() to end(). Owned by a
// GuestSession; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "mediator/base/result.h"
#include "mediator/daemon/guests/channel.h"

namespace sluice {

class TakenSlot {
 public:
  explicit TakenSlot(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}

  // EBUSY: no slot is free. Whatever it fails with, end() gives back what was taken.
  Result<ExtentRange> take(uint64_t staging_bytes) {
    auto slot = channel_->take_slot();
    if (!slot)
      return Error{EBUSY, "all " + std::to_string(channel_->geometry().slots) +
                              " slots of the vGPU are in use"};
    number_ = *slot;
    taken_ = true;
    auto staging = channel_->allocate(number_, staging_bytes);
    if (!staging) return staging.error();
    auto epoch = channel_->prepare_slot(number_, *staging);
    if (!epoch) return epoch.error();
    epoch_ = *epoch;
    return *staging;
  }
  void open() { channel_->open_slot(number_); }
  // The program reads why. Does nothing if none is taken.
  void end(int cuda_error, const std::string& reason) {
    if (!std::exchange(taken_, false)) return;
    channel_->end_slot(number_, cuda_error, reason);
    // A program that sleeps finds the slot's state.
    channel_->guest_ringer(number_ + 1).ring();
  }

  bool taken() const { return taken_; }
  uint32_t number() const { return number_; }
  uint64_t epoch() const { return epoch_; }
  Channel& channel() const { return *channel_; }

 private:
  const std::shared_ptr<Channel> channel_;
  uint32_t number_ = 0;
  uint64_t epoch_ = 0;
  bool taken_ = false;
};

}  // namespace sluice
