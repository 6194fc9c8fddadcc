// SPDX-License-Identifier: Apache-2.0
// A virtual machine as sluiced sees it: QEMU's end of the ivshmem connection, and the agent's end
// of the control rings. Test code only; one thread.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/test_daemon.h"

namespace sluice::test {

// The client side of the protocol, reading as QEMU does: 8 bytes and at most one descriptor each.
class FakeQemu {
 public:
  explicit FakeQemu(const std::string& path) {
    auto s = connect_unix(path, SOCK_STREAM);
    EXPECT_TRUE(s.ok()) << s.error().message;
    socket_ = std::move(*s);
  }
  // Takes what has come; true once the server has nothing more to say or hung up.
  void read() {
    for (;;) {
      int64_t value;
      auto r = receive_with_fds(socket_.get(), &value, sizeof value, MSG_DONTWAIT);
      if (!r) return;
      if (r->bytes == 0) {
        closed_ = true;
        return;
      }
      EXPECT_EQ(r->bytes, sizeof value);
      EXPECT_LE(r->fds.size(), 1u);
      messages_.emplace_back(value, r->fds.empty() ? Fd() : std::move(r->fds[0]));
    }
  }
  bool set_up() {  // version, id, memory
    read();
    return messages_.size() >= 3;
  }
  bool complete(uint32_t vectors) {
    read();
    return messages_.size() >= 3 + 2 * vectors;
  }
  int64_t value(size_t i) const { return messages_[i].first; }
  int fd(size_t i) const { return messages_[i].second.get(); }
  size_t count() const { return messages_.size(); }
  bool closed() const { return closed_; }
  io::Mapping memory() const {
    const off_t bytes = ::lseek(fd(2), 0, SEEK_END);
    auto m = io::Mapping::map(fd(2), static_cast<size_t>(bytes), true);
    EXPECT_TRUE(m.ok());
    return std::move(*m);
  }
  int host_bell(uint32_t vector) const { return fd(3 + vector); }
  int guest_bell(uint32_t vector, uint32_t vectors) const { return fd(3 + vectors + vector); }
  int socket() const { return socket_.get(); }
  void send_bytes(const void* bytes, size_t n) {
    EXPECT_EQ(::send(socket_.get(), bytes, n, MSG_NOSIGNAL), static_cast<ssize_t>(n));
  }
  // What a QEMU with our patches says of its guest.
  void notify(int64_t value) { send_bytes(&value, sizeof value); }
  void close() { socket_.reset(); }

 private:
  Fd socket_;
  std::vector<std::pair<int64_t, Fd>> messages_;
  bool closed_ = false;
};

// sluice-agent's end of the control rings, over a FakeQemu's memory.
class FakeAgent {
 public:
  FakeAgent(const FakeQemu& q, uint64_t epoch)
      : memory_(q.memory()),
        bell_(Bell::for_eventfd(q.host_bell(0))),
        producer_(control_to_host(memory_.data()), bell_, false),
        consumer_(control_to_agent(memory_.data()), bell_, false) {
    store_shared(header().agent_epoch, epoch, std::memory_order_release);
    bell_.ring();
  }
  sluice_channel_header& header() { return *memory_.as<sluice_channel_header>(); }
  void send(uint16_t opcode, uint64_t request, uint32_t slot = 0, uint64_t epoch = 0) {
    EXPECT_TRUE(try_send(opcode, request, slot, epoch));
  }
  // False: the ring is full.
  bool try_send(uint16_t opcode, uint64_t request, uint32_t slot = 0, uint64_t epoch = 0) {
    sluice_control_message m{};
    m.request = request;
    m.slot = slot;
    m.epoch = epoch;
    std::strncpy(m.text, "prog", sizeof m.text - 1);
    sluice_record r{};
    r.opcode = opcode;
    const bool pushed = producer_.push(r, {reinterpret_cast<const std::byte*>(&m), sizeof m});
    producer_.publish();
    bell_.ring();
    return pushed;
  }
  void send_raw(const sluice_record& r, std::span<const std::byte> body) {
    EXPECT_TRUE(producer_.push(r, body));
    producer_.publish();
    bell_.ring();
  }
  // The next answer of this kind to be found, or nothing yet.
  std::optional<sluice_control_message> receive(uint16_t opcode) {
    while (consumer_.pop(buffer_) == Pop::kRecord) {
      sluice_control_message m;
      std::memcpy(&m, buffer_.body().data(), sizeof m);
      inbox_.emplace_back(buffer_.record().opcode, m);
    }
    for (auto it = inbox_.begin(); it != inbox_.end(); ++it)
      if (it->first == opcode) {
        auto m = it->second;
        inbox_.erase(it);
        return m;
      }
    return std::nullopt;
  }
  const sluice_slot_header& slot(uint32_t i) {
    return *memory_.as<sluice_slot_header>(SLUICE_SLOT_OFFSET + uint64_t{i} * SLUICE_SLOT_STRIDE);
  }
  sluice_ring& to_host() { return *control_to_host(memory_.data()).indices; }
  io::Mapping& memory() { return memory_; }
  void ring() { bell_.ring(); }

 private:
  io::Mapping memory_;
  Bell bell_;
  RingProducer producer_;
  RingConsumer consumer_;
  RecordBuffer buffer_;
  std::deque<std::pair<uint16_t, sluice_control_message>> inbox_;
};

}  // namespace sluice::test
