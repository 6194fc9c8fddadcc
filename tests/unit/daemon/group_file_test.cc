// SPDX-License-Identifier: Apache-2.0
// Groups outlive sluiced (mediator/daemon/setup/group_file.h), and a damaged file costs what is
// damaged of them.
#include "mediator/daemon/setup/group_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

class GroupFileTest : public DaemonTest {
 protected:
  GroupFileTest() { config_.state_dir = dir_.path + "/state"; }
  bool set(const std::string& parameters) {
    const auto answer =
        rpc(R"({"jsonrpc":"2.0","id":1,"method":"group.set","params":)" + parameters + "}");
    return answer.as_object().contains("result");
  }
  std::string file() const { return config_.state_dir + "/groups"; }
  void write(const std::string& text) {
    std::filesystem::create_directory(config_.state_dir);
    std::ofstream(file()) << text;
  }
  static std::string read(const std::string& path) {
    std::ifstream f(path);
    return {std::istreambuf_iterator<char>(f), {}};
  }
};

TEST_F(GroupFileTest, GroupsAreThereAgain) {
  start();
  ASSERT_TRUE(set(R"({"name":"inner","weight":70})"));
  ASSERT_TRUE(set(R"({"name":"outer","weight":300,"max_permille":500})"));
  // Made later, and above: its parent's line comes after its own.
  ASSERT_TRUE(set(R"({"name":"inner","parent":"outer","min_permille":100})"));
  daemon_.reset();
  start();
  ASSERT_EQ(daemon_->groups().size(), 2u);
  const Daemon::Group& inner = daemon_->groups().at("inner");
  EXPECT_EQ(inner.parent, "outer");
  EXPECT_EQ(inner.share.parent, daemon_->groups().at("outer").id);
  EXPECT_EQ(inner.share.weight, 70u);
  EXPECT_EQ(inner.share.min_permille, 100u);
  EXPECT_EQ(daemon_->groups().at("outer").share.max_permille, 500u);
  // A vGPU that libvirt's hook makes again names its group.
  Daemon::CreateRequest vgpu;
  vgpu.name = "a";
  vgpu.limits.group = inner.id;
  EXPECT_TRUE(daemon_->create(vgpu).ok());
}

// Whatever it has become: sluiced starts, what can be read of it is there, and the rest is kept.
TEST_F(GroupFileTest, OfADamagedFileTheGoodLinesAreThereAndItIsKept) {
  const std::string head = "sluice-groups 1\n", good = "good - 100 0 0 0\n";
  for (const std::string bad :
       {"a - 100 0 0\n", "a - 0 0 0 0\n", "../a - 100 0 0 0\n", "a - 100 0 0 1001\n",
        "a - 100 0 0 0 0\n", "good - 50 0 0 0\n", "a b 100 0 0 0\nb a 100 0 0 0\n",
        "a a 100 0 0 0\n", "a gone 100 0 0 0\n", "a - 99999999999 0 0 0\n", "\n",
        "a - 100 0 0 50"}) {  // cut short: it was 500
    const auto parsed = GroupFile::parse(head + good + bad);
    ASSERT_TRUE(parsed) << bad;
    EXPECT_EQ(parsed->rows.size(), 1u) << bad;
    EXPECT_FALSE(parsed->left_out.empty()) << bad;
  }
  const std::string text = head + "a - 100 0 0\n" + good;
  write(text);
  for (int i = 0; i < 2; ++i) {  // again without a change of groups
    start();
    ASSERT_EQ(daemon_->groups().size(), 1u);
    EXPECT_EQ(daemon_->groups().at("good").share.weight, 100u);
    daemon_.reset();
  }
  EXPECT_EQ(read(file() + ".damaged"), text);
  EXPECT_EQ(read(file()), head + good);
}

TEST_F(GroupFileTest, AFileThatIsNoneIsKept) {
  for (const char* text : {"", "sluice-groups 2\n", "sluice-gr"}) {
    EXPECT_FALSE(GroupFile::parse(text)) << text;
    write(text);
    start();
    EXPECT_TRUE(daemon_->groups().empty()) << text;
    daemon_.reset();
  }
  EXPECT_EQ(read(file() + ".damaged.1"), "sluice-groups 2\n");
  // Nor is it a file.
  std::filesystem::create_directory(file());
  start();
  ASSERT_TRUE(set(R"({"name":"a"})"));
  daemon_.reset();
  EXPECT_TRUE(std::filesystem::is_directory(file() + ".damaged.3"));
  start();
  EXPECT_EQ(daemon_->groups().size(), 1u);
  daemon_.reset();
  std::filesystem::remove(file());
  std::filesystem::create_symlink("/etc/passwd", file());
  start();
  EXPECT_TRUE(daemon_->groups().empty());
}

// Minima that come to more than there is: the second is left out, the first stays.
TEST_F(GroupFileTest, AFileOfAnotherUserIsNamed) {
  write("sluice-groups 1\ngood - 100 0 0 0\n");
  ASSERT_EQ(::chmod(file().c_str(), 0), 0);
  const uid_t me = ::geteuid();
  if (me == 0) {  // root may read it
    ASSERT_EQ(::seteuid(65534), 0);
  }
  boost::asio::io_context io;
  const auto loaded = GroupFile(io, config_.state_dir).load();
  ASSERT_EQ(::seteuid(me), 0);
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message.find("chown"), std::string::npos) << loaded.error().message;
}

TEST_F(GroupFileTest, WhatCannotBeHadIsLeftOut) {
  write("sluice-groups 1\na - 100 0 600 0\nb - 100 0 600 0\nc b 100 0 0 0\n");
  start();
  EXPECT_EQ(daemon_->groups().size(), 1u);
  EXPECT_TRUE(daemon_->groups().contains("a"));
  EXPECT_TRUE(std::filesystem::exists(file() + ".damaged"));
}

TEST_F(GroupFileTest, NothingIsKeptWithoutAFolder) {
  config_.state_dir.clear();
  start();
  ASSERT_TRUE(set(R"({"name":"a"})"));
  daemon_.reset();
  start();
  EXPECT_TRUE(daemon_->groups().empty());
}

// Whoever sets a group learns that it will not outlive sluiced, and that it is in force.
TEST_F(GroupFileTest, WhatCannotBeWrittenIsSaid) {
  start();
  const auto ask = [this](const char* name) {
    return rpc(std::string(R"({"jsonrpc":"2.0","id":1,"method":"group.set","params":{"name":")") +
               name + R"(","weight":300}})");
  };
  std::filesystem::remove_all(config_.state_dir);
  std::ofstream(config_.state_dir) << "no folder";
  for (const char* name : {"a", "b"}) {
    const auto answer = ask(name);
    ASSERT_TRUE(answer.as_object().contains("error")) << answer;
    const std::string text(answer.at("error").at("message").as_string());
    for (const std::string& part :
         {file(), std::string("Not a directory"), std::string("only until"),
          std::string("sluicectl group ") + name})
      EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(answer.at("error").at("data").at("errno").as_int64(), ENOTDIR) << answer;
    EXPECT_EQ(daemon_->groups().at(name).share.weight, 300u);
  }
  std::filesystem::remove(config_.state_dir);
  EXPECT_TRUE(ask("a").as_object().contains("result"));
  EXPECT_EQ(read(file()), "sluice-groups 1\na - 300 0 0 0\nb - 300 0 0 0\n");  // when it answers
}

TEST(GroupFileText, ComesBack) {
  const std::vector<GroupRow> rows = {
      {.name = "a", .parent = "", .share = {.weight = 1, .priority = 2, .min_permille = 3}},
      {.name = "b", .parent = "a", .share = {.weight = 10'000, .max_permille = 1000}}};
  const std::string text = GroupFile::text_of(rows);
  const auto parsed = GroupFile::parse(text);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(GroupFile::text_of(parsed->rows), text);
}

}  // namespace
}  // namespace sluice::test
