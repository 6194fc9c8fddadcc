// SPDX-License-Identifier: Apache-2.0
// A host played by the test, and sluice-agent on a thread of its own. The device is ordinary memory
// in the layout of the real one.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <new>
#include <thread>

#include "guest-agent/agent/agent.h"
#include "guest-agent/transport/channel.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/wait.h"

namespace sluice::guest {

inline constexpr uint64_t kRegion = 16 << 20;
inline constexpr uint64_t kRegionOffset =
    1 << 16;  // as VFIO's offsets: registers first, then the region
inline constexpr uint32_t kSlots = 4;

class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sluice-agent-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    open_device();
    header().magic = SLUICE_CHANNEL_MAGIC;
    header().version = SLUICE_CHANNEL_VERSION;
    header().state = SLUICE_CHANNEL_READY;
    header().region_bytes = kRegion;
    header().slot_count = kSlots;
    header().slot_stride = SLUICE_SLOT_STRIDE;
    header().host_epoch = 1;
    from_agent_ = RingConsumer(control_to_host(region_), {});
    to_agent_ = RingProducer(control_to_agent(region_), bell_of_agent());
    ASSERT_TRUE(check_channel_header(device_).ok());
    auto listener = listen_unix(path(), SOCK_SEQPACKET, 0600);
    ASSERT_TRUE(listener.ok());
    agent_ = std::make_unique<Agent>(device_, std::move(*listener));
    stop_ = std::move(*make_eventfd());
    run_agent();
  }
  void run_agent() {
    stopping_ = false;
    thread_ = std::thread([this] {
      while (!stopping_) {
        auto ok = agent_->step(20, stop_.get());
        if (!ok) {
          end_ = ok.error().code;
          return;
        }
      }
    });
  }
  // Until run_agent() it does nothing.
  void pause_agent() {
    stopping_ = true;
    Bell::for_eventfd(stop_.get()).ring();
    thread_.join();
    drain_eventfd(stop_.get());
  }
  // As the agent has it by VFIO; and the host's mapping of its region.
  virtual void open_device() {
    memory_ = std::move(*make_memfd("device", kRegionOffset + kRegion));
    auto map = [&](uint64_t offset, size_t bytes) {
      void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(),
                        static_cast<off_t>(offset));
      EXPECT_NE(at, MAP_FAILED);
      return static_cast<std::byte*>(at);
    };
    device_.address = "test";
    device_.device = Fd(::dup(memory_.get()));
    device_.region_offset = kRegionOffset;
    device_.region_bytes = kRegion;
    device_.doorbell_offset = 0;
    device_.control_bytes = SLUICE_SLOT_OFFSET;
    device_.control = map(kRegionOffset, SLUICE_SLOT_OFFSET);
    device_.registers = map(0, 4096);
    for (uint32_t i = 0; i <= kSlots; ++i) device_.vectors.push_back(std::move(*make_eventfd()));
    region_ = map(kRegionOffset, kRegion);
  }
  virtual Bell bell_of_agent() { return Bell::for_eventfd(device_.vectors[0].get()); }
  void TearDown() override {
    stop_agent();
    ::munmap(region_, kRegion);
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  void stop_agent() {
    stopping_ = true;
    Bell::for_eventfd(stop_.get()).ring();
    if (thread_.joinable()) thread_.join();
    agent_.reset();
  }

  std::string path() const { return folder_ + "/agent.sock"; }
  sluice_channel_header& header() { return *reinterpret_cast<sluice_channel_header*>(region_); }
  uint32_t doorbell() { return *device_.doorbell(); }
  sluice_slot_header& slot(uint32_t i) {
    return *reinterpret_cast<sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET +
                                                  i * SLUICE_SLOT_STRIDE);
  }

  // Waits for something that must come; the limit only turns a hang into a failure.
  static bool eventually(const std::function<bool()>& ready) {
    for (int i = 0; i < 60000; ++i) {
      if (ready()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  sluice_control_message receive(uint16_t opcode) {
    RecordBuffer buffer;
    sluice_control_message m{};
    const bool came = eventually([&] {
      EXPECT_FALSE(from_agent_.broken()) << from_agent_.broken_reason();
      return from_agent_.pop(buffer) == Pop::kRecord;
    });
    EXPECT_TRUE(came) << "no message " << opcode;
    if (!came) return m;
    EXPECT_EQ(buffer.record().opcode, opcode);
    std::memcpy(&m, buffer.body().data(), sizeof m);
    return m;
  }
  bool silent() {
    RecordBuffer buffer;
    return from_agent_.pop(buffer) == Pop::kEmpty;
  }
  void send(uint16_t opcode, const sluice_control_message& m) {
    sluice_record record{};
    record.opcode = opcode;
    ASSERT_TRUE(to_agent_.push(record, std::as_bytes(std::span(&m, 1))));
    to_agent_.publish();
  }
  void opened(uint64_t request, uint32_t slot_number, uint64_t epoch) {
    slot(slot_number).epoch = epoch;
    slot(slot_number).state = SLUICE_SLOT_OPEN;
    sluice_control_message m{};
    m.request = request;
    m.slot = slot_number;
    m.epoch = epoch;
    send(SLUICE_CONTROL_OPENED, m);
  }

  // A program's join, on its own thread, since it waits for the host's answer.
  struct Joining {
    std::thread thread;
    std::unique_ptr<Channel> channel;
    std::string error;
    std::atomic<bool> done{false};
  };
  std::unique_ptr<Joining> join(const std::string& name) {
    auto j = std::make_unique<Joining>();
    j->thread = std::thread([this, name, it = j.get()] {
      auto channel = Channel::join(path(), name);
      if (channel)
        it->channel = std::move(*channel);
      else
        it->error = channel.error().message;
      it->done = true;
    });
    return j;
  }

  std::string folder_;
  Fd memory_, stop_;
  VgpuDevice device_;
  std::byte* region_ = nullptr;
  RingConsumer from_agent_;
  RingProducer to_agent_;
  std::unique_ptr<Agent> agent_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> end_{0};
};

}  // namespace sluice::guest
