// SPDX-License-Identifier: Apache-2.0
// Which socket files are replaced, and which are left alone.
#include "mediator/base/listen_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

ListenOptions options(unsigned mode = 0600) {
  ListenOptions o;
  o.type = SOCK_STREAM;
  o.mode = mode;
  return o;
}

class ListenTest : public DaemonTest {
 protected:
  std::string path(const std::string& name) const { return dir_.path + "/" + name; }
  // A socket file that nobody listens on.
  FileId leave_dead(const std::string& at) {
    auto made = listen_at(at, options());
    EXPECT_TRUE(made.ok());
    return made->file;
  }
  Result<VgpuServer*> create_at(const std::string& name, const std::string& socket) {
    Daemon::CreateRequest r;
    r.name = name;
    r.socket = socket;
    return daemon_->create(r);
  }
};

TEST_F(ListenTest, ModeAndGroupAreSetBeforeAnybodyConnects) {
  auto o = options(0640);
  o.group = ::getegid();
  auto made = listen_at(path("s"), o);
  ASSERT_TRUE(made.ok()) << made.error().message;
  struct stat st;
  ASSERT_EQ(::stat(path("s").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0640u);
  EXPECT_EQ(file_id(path("s")), made->file);
  EXPECT_TRUE(connect_unix(path("s"), SOCK_STREAM).ok());
}

TEST_F(ListenTest, ALiveSocketIsLeftAlone) {
  for (int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const std::string at = path("live" + std::to_string(type));
    ListenOptions theirs = options();
    theirs.type = type;
    auto live = listen_at(at, theirs);
    ASSERT_TRUE(live.ok());
    auto again = listen_at(at, options());
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.error().message.find(at), std::string::npos) << again.error().message;
    EXPECT_EQ(file_id(at), live->file);
    EXPECT_TRUE(connect_unix(at, type).ok());
  }
}

TEST_F(ListenTest, WhatIsNoSocketIsLeftAlone) {
  std::ofstream(path("file")) << "precious";
  EXPECT_FALSE(listen_at(path("file"), options()).ok());
  EXPECT_EQ(std::filesystem::file_size(path("file")), 8u);
  leave_dead(path("target"));
  std::filesystem::create_symlink("target", path("link"));
  EXPECT_FALSE(listen_at(path("link"), options()).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_TRUE(file_id(path("target")));
}

TEST_F(ListenTest, ADeadSocketOfOursIsReplacedIfTheOwnerSaysSo) {
  const FileId dead = leave_dead(path("s"));
  auto o = options();
  o.may_replace = [&](const FileId& file) {
    EXPECT_EQ(file, dead);
    return false;
  };
  EXPECT_FALSE(listen_at(path("s"), o).ok());
  EXPECT_EQ(file_id(path("s")), dead);
  auto made = listen_at(path("s"), options());
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_FALSE(file_id(path("s")) == dead);
  size_t files = 0;
  for ([[maybe_unused]] const auto& f : std::filesystem::directory_iterator(dir_.path)) ++files;
  EXPECT_EQ(files, 1u) << "nothing is left beside it";
}

TEST_F(ListenTest, AnothersUsersSocketIsLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const FileId dead = leave_dead(path("s"));
  ASSERT_EQ(::chown(path("s").c_str(), 65534, 65534), 0);
  EXPECT_FALSE(listen_at(path("s"), options()).ok());
  EXPECT_TRUE(file_id(path("s"))->same_inode(dead));
}

TEST_F(ListenTest, OnlyTheOwnFileIsRemoved) {
  auto first = listen_at(path("s"), options());
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(::rename(path("s").c_str(), path("elsewhere").c_str()), 0);
  auto second = listen_at(path("s"), options());
  ASSERT_TRUE(second.ok());
  remove_socket_file(path("s"), first->file);
  EXPECT_TRUE(connect_unix(path("s"), SOCK_STREAM).ok());
  remove_socket_file(path("s"), second->file);
  EXPECT_FALSE(file_id(path("s")));
}

TEST_F(ListenTest, CreateTakesNoOtherServicesSocket) {
  start();
  auto live = listen_at(path("service"), options(0666));
  ASSERT_TRUE(live.ok());
  auto refused = create_at("a", path("service"));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(path("service")), std::string::npos);
  EXPECT_EQ(file_id(path("service")), live->file);
  EXPECT_TRUE(connect_unix(path("service"), SOCK_STREAM).ok());
  EXPECT_EQ(daemon_->find("a"), nullptr);
  // Neither one that its service does not listen on just now.
  const FileId dead = leave_dead(path("stopped"));
  EXPECT_FALSE(create_at("a", path("stopped")).ok());
  EXPECT_EQ(file_id(path("stopped")), dead);
  EXPECT_FALSE(create_at("a", config_.runtime_dir + "/vgpu/../admin.sock").ok());
  EXPECT_TRUE(connect_unix(config_.admin_socket_path(), SOCK_STREAM).ok());
  EXPECT_TRUE(create_at("a", path("mine")).ok());
}

TEST_F(ListenTest, ASocketThatAnEarlierSluicedLeftIsReplaced) {
  start();
  ASSERT_TRUE(create_at("a", path("mine")).ok());
  ASSERT_TRUE(create_at("b", "").ok());
  const std::string note = config_.vgpu_dir() + "/a.made";
  const std::string inside = config_.vgpu_dir() + "/b.sock";
  const uint64_t made_ns = file_id(path("mine"))->changed_ns;
  // As after a crash: the files are there and nobody listens.
  for (const std::string& f : {path("mine"), note, inside})
    ASSERT_EQ(::rename(f.c_str(), (f + ".kept").c_str()), 0) << f;
  daemon_.reset();
  for (const std::string& f : {path("mine"), note, inside})
    ASSERT_EQ(::rename((f + ".kept").c_str(), f.c_str()), 0) << f;
  // The clock of ctimes goes on every few milliseconds.
  while (file_id(path("mine"))->changed_ns == made_ns) ::chmod(path("mine").c_str(), 0660);
  start();
  EXPECT_FALSE(create_at("a", path("mine")).ok()) << "renaming changed its ctime: another file";
  // The note as it would be.
  const FileId left = *file_id(path("mine"));
  std::ofstream(note) << path("mine") << "\n"
                      << left.device << " " << left.inode << " " << left.changed_ns << "\n";
  auto a = create_at("a", path("mine"));
  ASSERT_TRUE(a.ok()) << a.error().message;
  auto b = create_at("b", "");
  EXPECT_TRUE(b.ok()) << b.error().message;
  bool gone = false;
  ASSERT_TRUE(daemon_->remove("a", [&] { gone = true; }).ok());
  ASSERT_TRUE(run_until([&] { return gone; }));
  EXPECT_FALSE(file_id(path("mine")));
  EXPECT_FALSE(file_id(note));
}

// What a process of uid nobody sees at a vGPU's socket: -1 cannot connect, else the state of the
// header that it gets.
int state_seen_by_nobody(const std::string& socket, const std::function<void()>& serve,
                         std::string* reason) {
  int answer[2];
  EXPECT_EQ(::pipe(answer), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    sluice_channel_header header{};
    header.state = ~0u;
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    auto s = connect_unix(socket, SOCK_STREAM);
    for (int64_t message = 0; s && message != -1;) {
      auto r = receive_with_fds(s->get(), &message, sizeof message);
      if (!r || r->bytes == 0) break;
      if (!r->fds.empty()) (void)!::pread(r->fds[0].get(), &header, sizeof header, 0);
    }
    (void)!::write(answer[1], &header, sizeof header);
    ::_exit(0);
  }
  ::close(answer[1]);
  ::fcntl(answer[0], F_SETFL, O_NONBLOCK);
  sluice_channel_header header{};
  for (ssize_t n = -1; n < 0;) {
    serve();
    n = ::read(answer[0], &header, sizeof header);
  }
  ::close(answer[0]);
  ::waitpid(child, nullptr, 0);
  *reason = header.reason;
  return static_cast<int>(header.state);
}

TEST_F(ListenTest, AStrangerCannotPlayTheVirtualMachine) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(::chmod(dir_.path.c_str(), 0755), 0);
  auto serve = [&] { run_for_a_moment(); };
  std::string reason;
  {
    start();
    VgpuServer* v = create("a");
    struct stat st;
    ASSERT_EQ(::stat(v->spec().socket.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0660u);
    EXPECT_EQ(state_seen_by_nobody(v->spec().socket, serve, &reason), -1);
    daemon_.reset();
  }
  config_.socket_mode = 0666;  // whoever gets in that way is still looked at
  {
    start();
    VgpuServer* v = create("a");
    EXPECT_EQ(state_seen_by_nobody(v->spec().socket, serve, &reason), SLUICE_CHANNEL_REFUSED);
    EXPECT_NE(reason.find("uid 65534"), std::string::npos) << reason;
    EXPECT_FALSE(v->has_live_peer());
    daemon_.reset();
  }
  for (bool by_group : {false, true}) {
    config_.socket_users = {by_group ? "0" : "65534"};
    config_.socket_groups = {by_group ? "65534" : "0"};
    start();
    VgpuServer* v = create("a");
    EXPECT_EQ(state_seen_by_nobody(v->spec().socket, serve, &reason), SLUICE_CHANNEL_READY);
    daemon_.reset();
  }
  config_.socket_users = {"no-such-user-here"};
  auto daemon = Daemon::make(io_, config_);
  ASSERT_FALSE(daemon.ok());
  EXPECT_NE(daemon.error().message.find("no-such-user-here"), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
