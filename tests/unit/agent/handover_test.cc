// SPDX-License-Identifier: Apache-2.0
// An agent's place is taken by sluice-agent itself, as after an upgrade: programs notice nothing.
#include "guest-agent/agent/handover.h"

#include <fcntl.h>

#include "tests/unit/agent/fixture.h"

namespace sluice::guest {
namespace {

class HandoverTest : public AgentTest {
 protected:
  // sluice-agent goes on where the test's agent stops.
  void start_successor_process() {
    stopping_ = true;
    Bell::for_eventfd(stop_.get()).ring();
    thread_.join();
    ASSERT_TRUE(agent_->can_hand_over());
    const AgentState state = agent_->hand_over();
    agent_.reset();
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      start_successor(SLUICE_TEST_AGENT, {"sluice-agent", "--socket", path()}, device_, state);
      ::_exit(99);
    }
  }
  void TearDown() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    AgentTest::TearDown();
  }
  bool beats() {
    const uint64_t beat = load_shared(header().agent_beat);
    return eventually([&] { return load_shared(header().agent_beat) != beat; });
  }
  std::unique_ptr<Channel> opened_program(uint32_t slot_number, uint64_t epoch) {
    auto program = join("with a\nname");
    opened(receive(SLUICE_CONTROL_OPEN).request, slot_number, epoch);
    program->thread.join();
    EXPECT_NE(program->channel, nullptr) << program->error;
    return std::move(program->channel);
  }
  // A program of another process, which a channel could not play beside the first.
  Fd ask() {
    auto socket = connect_unix(path(), SOCK_SEQPACKET);
    EXPECT_TRUE(socket.ok());
    sluice_join hello{};
    hello.magic = SLUICE_JOIN_MAGIC;
    hello.version = SLUICE_CHANNEL_VERSION;
    EXPECT_TRUE(send_with_fds(socket->get(), &hello, sizeof hello, {}).ok());
    return std::move(*socket);
  }
  static sluice_joined answer(const Fd& socket) {
    sluice_joined joined{};
    auto got = receive_with_fds(socket.get(), &joined, sizeof joined);
    EXPECT_TRUE(got.ok() && got->bytes == sizeof joined && got->fds.size() == 2);
    EXPECT_EQ(joined.status, 0u);
    return joined;
  }

  pid_t pid_ = -1;
};

TEST_F(HandoverTest, ProgramsGoOnWithASuccessor) {
  auto channel = opened_program(2, 99);
  ASSERT_NE(channel, nullptr);
  Fd waits = ask();
  const auto open = receive(SLUICE_CONTROL_OPEN);
  const uint64_t epoch = load_shared(header().agent_epoch);
  std::strcpy(header().agent_release, "0.0.1");
  start_successor_process();
  ASSERT_TRUE(beats());
  EXPECT_EQ(load_shared(header().agent_epoch), epoch) << "a new epoch would end all sessions";
  EXPECT_STREQ(header().agent_release, SLUICE_VERSION);
  EXPECT_TRUE(silent());
  EXPECT_FALSE(channel->hung_up());
  opened(open.request, 1, 7);
  EXPECT_EQ(answer(waits).slot, 1u);

  // And its own: by the signal that an upgrade sends.
  std::strcpy(header().agent_release, "0.0.1");
  ASSERT_EQ(::kill(pid_, SIGHUP), 0);
  ASSERT_TRUE(eventually([&] { return header().agent_release == std::string(SLUICE_VERSION); }));
  ASSERT_TRUE(beats());
  EXPECT_EQ(load_shared(header().agent_epoch), epoch);
  EXPECT_TRUE(silent());
  EXPECT_FALSE(channel->hung_up());
  Fd late = ask();
  opened(receive(SLUICE_CONTROL_OPEN).request, 0, 5);
  EXPECT_EQ(answer(late).slot, 0u);
  channel.reset();
  const auto close = receive(SLUICE_CONTROL_CLOSE);
  EXPECT_EQ(close.slot, 2u);
  EXPECT_EQ(close.epoch, 99u);
  waits.reset();
  EXPECT_EQ(receive(SLUICE_CONTROL_CLOSE).slot, 1u);

  // Its end is an agent's end.
  int status = 0;
  ASSERT_EQ(::kill(pid_, SIGTERM), 0);
  ASSERT_GT(::waitpid(std::exchange(pid_, -1), &status, 0), 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(receive(SLUICE_CONTROL_CLOSE).slot, 0u);
}

TEST_F(HandoverTest, WithoutASuccessorItGoesOn) {
  auto channel = opened_program(2, 99);
  ASSERT_NE(channel, nullptr);
  stopping_ = true;
  Bell::for_eventfd(stop_.get()).ring();
  thread_.join();
  AgentState state = agent_->hand_over();
  const Error error = start_successor("/none/sluice-agent", {"sluice-agent"}, device_, state);
  EXPECT_NE(error.message.find("/none/sluice-agent"), std::string::npos) << error.message;
  EXPECT_EQ(::fcntl(state.listener.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::fcntl(device_.vectors[0].get(), F_GETFD), FD_CLOEXEC);
  Agent again(device_, std::move(state));
  EXPECT_EQ(again.programs(), 1u);
  channel.reset();
  while (again.programs() != 0) ASSERT_TRUE(again.step(20).ok());
  EXPECT_EQ(receive(SLUICE_CONTROL_CLOSE).slot, 2u);
}

TEST_F(HandoverTest, AnotherReleasesStateIsRefused) {
  for (const char* text : {"", "sluice-agent state 2\n", "sluice-agent state 1\n",
                           "sluice-agent state 1\n-1 -1 -1 -1 0 0 0 0 0 vfio test 9999999\n",
                           "sluice-agent state 1\nxyz\n"}) {
    Fd file(::memfd_create("state", MFD_CLOEXEC));
    ASSERT_EQ(::write(file.get(), text, std::strlen(text)),
              static_cast<ssize_t>(std::strlen(text)));
    EXPECT_FALSE(read_state(std::move(file)).ok()) << text;
  }
}

}  // namespace
}  // namespace sluice::guest
