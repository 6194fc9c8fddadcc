// SPDX-License-Identifier: Apache-2.0
// A Daemon in a temporary directory with fake workers, driven from the test's own thread, and a
// local program that joins a vGPU of it. Test code only; one thread.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "abi/channel.h"
#include "mediator/base/unix_socket.h"
#include "mediator/daemon/daemon.h"
#include "mediator/io/mapping.h"
#include "mediator/ring/ring.h"
#include "mediator/ring/wait.h"
#include "tests/support/fake_worker.h"

namespace sluice::test {

// Nothing here is timed; this only ends a test that would hang.
inline constexpr auto kPatience = std::chrono::seconds(60);

struct TempDir {
  TempDir() {
    path = "/tmp/sluice-unit.XXXXXX";
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string path;
};

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    config_.runtime_dir = dir_.path + "/run";
    config_.worker = SLUICE_FAKE_WORKER;
    config_.spawner = SLUICE_TEST_SPAWNER;
    config_.device = DeviceKind::kSoft;
    config_.region_bytes = 64u << 20;
    config_.slots = 4;
    config_.session_end_ms = 300;
    log::init("test", log::Level::kError);
  }
  void start(const std::string& worker_mode = "") {
    config_.worker_environment["SLUICE_FAKE_WORKER"] = worker_mode;
    auto daemon = Daemon::make(io_, config_);
    ASSERT_TRUE(daemon.ok()) << daemon.error().message;
    daemon_ = std::move(*daemon);
  }
  VgpuServer* create(const std::string& name, uint64_t memory_bytes = 0) {
    Daemon::CreateRequest r;
    r.name = name;
    r.memory_bytes = memory_bytes;
    auto vgpu = daemon_->create(r);
    EXPECT_TRUE(vgpu.ok()) << vgpu.error().message;
    return vgpu ? *vgpu : nullptr;
  }
  // Runs the daemon until `condition`; false when patience ends.
  bool run_until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      io_.run_one_for(std::chrono::milliseconds(5));
      io_.restart();
    }
    return true;
  }
  void run_for_a_moment() {
    for (int i = 0; i < 10; ++i) {
      io_.run_for(std::chrono::milliseconds(1));
      io_.restart();
    }
  }
  // One call over a fresh dispatcher connection, as the admin socket does it.
  boost::json::value rpc(const std::string& line) {
    RpcDispatcher dispatcher;
    add_rpc_methods(dispatcher, *daemon_);
    std::optional<std::string> answer;
    dispatcher.handle(line, [&](std::string a) { answer = std::move(a); });
    EXPECT_TRUE(run_until([&] { return answer.has_value(); }));
    return answer && !answer->empty() ? boost::json::parse(*answer) : boost::json::value();
  }

  TempDir dir_;
  Config config_;
  boost::asio::io_context io_{1};
  std::unique_ptr<Daemon> daemon_;
};

// A program of this host on a vGPU.
class LocalProgram {
 public:
  LocalProgram() = default;
  explicit LocalProgram(const std::string& socket_path) {
    auto s = connect_unix(socket_path, SOCK_SEQPACKET);
    EXPECT_TRUE(s.ok()) << s.error().message;
    socket_ = std::move(*s);
  }
  void send_join(const std::string& program = "test") {
    sluice_join join{};
    join.magic = SLUICE_JOIN_MAGIC;
    join.version = SLUICE_CHANNEL_VERSION;
    program.copy(join.program, sizeof join.program - 1);
    send(&join, sizeof join);
  }
  void send(const void* data, size_t bytes) {
    auto sent = send_with_fds(socket_.get(), data, bytes, {});
    EXPECT_TRUE(sent.ok()) << sent.error().message;
  }
  // Whether the answer has come; maps the region if it is a yes.
  bool joined() {
    if (answer_) return true;
    sluice_joined j{};
    auto r = receive_with_fds(socket_.get(), &j, sizeof j, MSG_DONTWAIT);
    if (!r) return false;
    if (r->bytes == 0) {
      hung_up_ = true;
      return true;
    }
    EXPECT_EQ(r->bytes, sizeof j);
    answer_ = j;
    fds_ = std::move(r->fds);
    if (j.status != 0) return true;
    EXPECT_EQ(fds_.size(), 3u);
    auto m = io::Mapping::map(fds_[0].get(), j.region_bytes, true);
    EXPECT_TRUE(m.ok());
    region_ = std::move(*m);
    producer_ = RingProducer(submit_ring(region_.data(), j.slot), Bell::for_eventfd(fds_[1].get()));
    consumer_ =
        RingConsumer(complete_ring(region_.data(), j.slot), Bell::for_eventfd(fds_[1].get()));
    return true;
  }
  // Whether the host has closed the connection.
  bool hung_up() {
    char c;
    ssize_t n = ::recv(socket_.get(), &c, 1, MSG_DONTWAIT);
    if (n == 0) hung_up_ = true;
    return hung_up_;
  }
  void command(fake::What what, uint64_t a = 0, uint64_t b = 0) {
    fake::Command c{what, a, b};
    EXPECT_TRUE(
        producer_.push(sluice_record{}, {reinterpret_cast<const std::byte*>(&c), sizeof c}));
    producer_.publish();
  }
  std::optional<fake::Reply> reply() {
    if (consumer_.pop(buffer_) != Pop::kRecord) return std::nullopt;
    fake::Reply r;
    std::memcpy(&r, buffer_.body().data(), sizeof r);
    return r;
  }
  const sluice_joined& answer() const { return *answer_; }
  bool has_answer() const { return answer_.has_value(); }
  const sluice_slot_header& slot_header() const {
    return *region_.as<const sluice_slot_header>(SLUICE_SLOT_OFFSET +
                                                 uint64_t{answer_->slot} * SLUICE_SLOT_STRIDE);
  }
  uint32_t slot_state() const {
    return load_shared(slot_header().state, std::memory_order_acquire);
  }
  io::Mapping& region() { return region_; }
  int wake_fd() const { return fds_[2].get(); }
  void close() { socket_.reset(); }
  int socket() const { return socket_.get(); }

 private:
  Fd socket_;
  std::vector<Fd> fds_;
  std::optional<sluice_joined> answer_;
  bool hung_up_ = false;
  io::Mapping region_;
  RingProducer producer_;
  RingConsumer consumer_;
  RecordBuffer buffer_;
};

}  // namespace sluice::test
