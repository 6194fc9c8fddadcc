// SPDX-License-Identifier: Apache-2.0
// The follower: what reaches sluiced when domains change, end, lie, or either side is away.
#include "mediator/libvirt/follower.h"

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

#include "mediator/base/log.h"

namespace sluice::libvirt {
namespace {

const std::string kUuid = "c7a5fdbd-edaf-9455-926a-d65c16db1809";
constexpr uint64_t kGrace = 10;

// sluiced with the vGPUs that a test puts in.
struct FakeVgpus final : Vgpus {
  std::vector<ListedVgpu> vgpus;
  std::vector<std::string> sets, removed;
  bool away = false;
  std::string refusal;

  Result<void> answer() const {
    if (away) return Error{ECONNREFUSED, "sluiced is away"};
    if (!refusal.empty()) return Error{-32000, refusal};
    return {};
  }
  Result<std::vector<ListedVgpu>> list() override {
    if (away) return Error{ECONNREFUSED, "sluiced is away"};
    return vgpus;
  }
  Result<VgpuDefaults> defaults() override { return VgpuDefaults{100, "normal", "strict"}; }
  Result<void> create(boost::json::object) override { return answer(); }
  Result<void> set(boost::json::object request) override {
    if (auto ok = answer(); !ok) return ok;
    sets.push_back(boost::json::serialize(request));
    return {};
  }
  Result<void> remove(const std::string& name) override {
    if (auto ok = answer(); !ok) return ok;
    removed.push_back(name);
    std::erase_if(vgpus, [&](const ListedVgpu& v) { return v.name == name; });
    return {};
  }
};

struct FakeDomains final : RunningDomains {
  std::map<std::string, RunningDomain> running;
  bool away = false;
  Result<std::optional<RunningDomain>> find(const std::string& uuid) override {
    if (away) return Error{EIO, "libvirtd is away"};
    auto d = running.find(uuid);
    return d == running.end() ? std::optional<RunningDomain>() : d->second;
  }
  Result<std::set<std::string>> uuids() override {
    if (away) return Error{EIO, "libvirtd is away"};
    std::set<std::string> all;
    for (const auto& [uuid, d] : running) all.insert(uuid);
    return all;
  }
};

class FollowerTest : public ::testing::Test {
 protected:
  FollowerTest() {
    log::init("test", log::Level::kInfo);
    log::set_observer([this](log::Level, std::string_view line) { lines_.emplace_back(line); });
    domain("weight='300'");
    vgpus_.vgpus = {{"vm1", "connected", "/run/sluice/vgpu/vm1.sock", owner_of(kUuid), false}};
  }
  ~FollowerTest() override { log::set_observer(nullptr); }

  void domain(const std::string& settings, bool shmem = true, const std::string& name = "vm1") {
    domains_.running[kUuid] = {name,
                               "<domain><name>" + name + "</name><uuid>" + kUuid +
                                   "</uuid><metadata><sluice:vgpu xmlns:sluice='" +
                                   kVgpuXmlNamespace + "' " + settings + "/></metadata><devices>" +
                                   (shmem ? "<shmem name='vgpu0'><model type='ivshmem-doorbell'/>"
                                            "<server path='/run/sluice/vgpu/vm1.sock'/></shmem>"
                                          : "") +
                                   "</devices></domain>",
                               false};
  }
  void change(const std::string& settings) {
    domain(settings);
    EXPECT_TRUE(follower_.changed(domains_, {kUuid}, 0).ok());
  }

  FakeVgpus vgpus_;
  FakeDomains domains_;
  Follower follower_{vgpus_, {"/run/sluice/vgpu", kGrace}};
  std::vector<std::string> lines_;
};

TEST_F(FollowerTest, SetsWhatChangedAndNothingElse) {
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  EXPECT_TRUE(vgpus_.sets.empty()) << "found running: may have been changed by hand since";
  change("weight='300'");
  EXPECT_TRUE(vgpus_.sets.empty());
  change("weight='500' memory='2G'");
  ASSERT_EQ(vgpus_.sets.size(), 1u);
  EXPECT_EQ(vgpus_.sets[0], R"({"memory_bytes":2147483648,"weight":500,"name":"vm1"})");
  change("memory='2G'");
  ASSERT_EQ(vgpus_.sets.size(), 2u);
  EXPECT_EQ(vgpus_.sets[1], R"({"weight":100,"name":"vm1"})") << "what is gone is the default";
}

TEST_F(FollowerTest, APausedDomainsVgpuIsPaused) {
  // Found paused: the service may have been stopped meanwhile.
  domains_.running[kUuid].paused = true;
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  ASSERT_EQ(vgpus_.sets.size(), 1u);
  EXPECT_EQ(vgpus_.sets[0], R"({"name":"vm1","paused":1})");
  vgpus_.vgpus[0].paused = true;
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  EXPECT_EQ(vgpus_.sets.size(), 1u) << "it is";
  domains_.running[kUuid].paused = false;
  EXPECT_TRUE(follower_.changed(domains_, {kUuid}, 0).ok());
  ASSERT_EQ(vgpus_.sets.size(), 2u);
  EXPECT_EQ(vgpus_.sets[1], R"({"name":"vm1","paused":0})");
  // A sluiced that does not know it: the rest is followed.
  vgpus_.vgpus[0].paused = true;
  vgpus_.refusal = "unknown parameter 'paused'";
  EXPECT_TRUE(follower_.changed(domains_, {kUuid}, 0).ok());
  EXPECT_NE(lines_.back().find("unknown parameter"), std::string::npos);
}

TEST_F(FollowerTest, AChangeBeforeTheFirstLookAtANewDomainIsNotLost) {
  domains_.running.clear();
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  change("weight='700'");
  ASSERT_EQ(vgpus_.sets.size(), 1u);
  EXPECT_NE(vgpus_.sets[0].find(R"("weight":700)"), std::string::npos);
}

TEST_F(FollowerTest, BadMetadataIsReportedOnceAndChangesNothing) {
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  for (int i = 0; i < 3; ++i) change("weight='many\n\x1b[2J'");
  EXPECT_TRUE(vgpus_.sets.empty());
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("domain vm1: nothing changed: <sluice:vgpu>: weight"), std::string::npos)
      << lines_[0];
  EXPECT_EQ(lines_[0].find('\x1b'), std::string::npos);
  domain("", true, "../../etc/\n\x1b[2J");
  EXPECT_TRUE(follower_.changed(domains_, {kUuid}, 0).ok());
  EXPECT_EQ(lines_.back().find('\x1b'), std::string::npos);
  domains_.running[kUuid].xml = "<domain ivshmem-doorbell";
  EXPECT_TRUE(follower_.changed(domains_, {kUuid}, 0).ok());
  EXPECT_TRUE(vgpus_.sets.empty());
  // What sluiced refuses is tried again only with other settings or at the next look.
  vgpus_.refusal = "there is no group 'nobodys'";
  for (int i = 0; i < 3; ++i) change("group='nobodys'");
  EXPECT_NE(lines_.back().find("nobodys"), std::string::npos);
  EXPECT_EQ(lines_.size(), 4u);
  vgpus_.refusal.clear();
  change("weight='7'");
  EXPECT_EQ(vgpus_.sets.size(), 1u);
}

TEST_F(FollowerTest, ADomainTakesNoOthersVgpu) {
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  vgpus_.vgpus[0].owner = owner_of("another");
  change("weight='9000'");
  EXPECT_TRUE(vgpus_.sets.empty());
  // One made by hand, of its name and socket, is used.
  vgpus_.vgpus[0].owner.clear();
  change("weight='9000'");
  EXPECT_EQ(vgpus_.sets.size(), 1u);
}

TEST_F(FollowerTest, SettingsWithoutADeviceSetNothing) {
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  domain("weight='9'", false);
  EXPECT_TRUE(follower_.changed(domains_, {kUuid}, 0).ok());
  EXPECT_TRUE(vgpus_.sets.empty());
  EXPECT_TRUE(lines_.empty());
  // Attached again, by another hand: what the metadata has now is what counts.
  change("weight='9'");
  EXPECT_EQ(vgpus_.sets.size(), 1u);
}

TEST_F(FollowerTest, AnUnreachableSluicedIsTriedAgain) {
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  vgpus_.away = true;
  domain("weight='400'");
  EXPECT_FALSE(follower_.changed(domains_, {kUuid}, 0).ok());
  EXPECT_FALSE(follower_.collect(domains_, 1).ok());
  vgpus_.away = false;
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  EXPECT_EQ(vgpus_.sets.size(), 1u);
  // It came back without its vGPUs.
  vgpus_.vgpus.clear();
  const size_t before = lines_.size();
  ASSERT_TRUE(follower_.all(domains_, 100).ok());
  EXPECT_TRUE(*follower_.collect(domains_, 100)) << "look again soon";
  EXPECT_EQ(lines_.size(), before);
  for (uint64_t later : {100 + kGrace, 100 + 2 * kGrace}) {
    ASSERT_TRUE(follower_.all(domains_, later).ok());
    EXPECT_FALSE(*follower_.collect(domains_, later));
  }
  ASSERT_EQ(lines_.size(), before + 1) << "once";
  EXPECT_NE(lines_.back().find("domain vm1: it runs without its vGPU"), std::string::npos);
}

// It ends and starts in one call. The hook deletes its vGPU and makes it, and the events of both
// come while there is none.
TEST_F(FollowerTest, ADomainThatGoesBackToASnapshotHasNotLostItsVgpu) {
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  const std::vector<ListedVgpu> there = vgpus_.vgpus;
  for (uint64_t now = 100; now < 100 + 3 * kGrace; now += 2 * kGrace) {
    vgpus_.vgpus.clear();
    for (uint64_t look = now; look < now + 3; ++look)
      ASSERT_TRUE(follower_.changed(domains_, {kUuid}, look).ok());
    vgpus_.vgpus = there;
    ASSERT_TRUE(follower_.changed(domains_, {kUuid}, now + 3).ok());
    EXPECT_FALSE(*follower_.collect(domains_, now + 3));
  }
  EXPECT_EQ(lines_, std::vector<std::string>());
}

TEST_F(FollowerTest, AModeThatChangesIsSaidToWaitForTheNextStart) {
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  change("weight='300' mode='strict'");
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("domain vm1: mode 'strict' counts from its next start on"),
            std::string::npos)
      << lines_[0];
  EXPECT_EQ(lines_[0].find("this host"), std::string::npos);
  for (int i = 0; i < 2; ++i) change("weight='300' mode='shared'");
  ASSERT_EQ(lines_.size(), 2u) << "once";
  EXPECT_NE(lines_[1].find("this host is in mode 'strict' and will not start it"),
            std::string::npos)
      << lines_[1];
  EXPECT_TRUE(vgpus_.sets.empty());
  // With something else that changed: that is set.
  change("weight='7'");
  EXPECT_EQ(vgpus_.sets, std::vector<std::string>{R"({"weight":7,"name":"vm1"})"});
  EXPECT_NE(lines_.back().find("mode none counts"), std::string::npos) << lines_.back();
}

TEST_F(FollowerTest, TheModeOfADomainThatStartsIsTheHooks) {
  domains_.running.clear();
  ASSERT_TRUE(follower_.all(domains_, 0).ok());
  change("mode='strict'");
  EXPECT_EQ(lines_, std::vector<std::string>());
}

TEST_F(FollowerTest, WhatADomainLeavesIsDeletedAfterTwoLooks) {
  const auto collect = [&](uint64_t now) { return *follower_.collect(domains_, now); };
  vgpus_.vgpus.push_back({"by-hand", "waiting", "/run/sluice/vgpu/by-hand.sock", ""});
  vgpus_.vgpus[0].state = "waiting";
  EXPECT_FALSE(collect(0)) << "its domain runs";
  domains_.running.clear();
  EXPECT_TRUE(collect(100));
  EXPECT_TRUE(collect(100 + kGrace - 1));
  // It starts again in between, and ends again.
  domain("");
  EXPECT_FALSE(collect(100 + kGrace));
  domains_.running.clear();
  EXPECT_TRUE(collect(200));
  // A virtual machine that is connected is none that has ended.
  vgpus_.vgpus[0].state = "connected";
  EXPECT_FALSE(collect(300));
  vgpus_.vgpus[0].state = "waiting";
  EXPECT_TRUE(collect(400));
  EXPECT_TRUE(vgpus_.removed.empty());
  EXPECT_FALSE(collect(400 + kGrace));
  EXPECT_EQ(vgpus_.removed, std::vector<std::string>{"vm1"});
}

TEST_F(FollowerTest, NothingIsDeletedOnDoubt) {
  vgpus_.vgpus[0].state = "waiting";
  domains_.away = true;
  EXPECT_FALSE(*follower_.collect(domains_, 0));
  EXPECT_FALSE(*follower_.collect(domains_, 100));
  domains_.away = false;
  domain("weight='wrong'");
  EXPECT_FALSE(*follower_.collect(domains_, 200));
  EXPECT_TRUE(vgpus_.removed.empty());
  // Detached while the domain runs, its settings still there.
  domain("", false);
  EXPECT_TRUE(*follower_.collect(domains_, 300));
  EXPECT_FALSE(*follower_.collect(domains_, 300 + kGrace));
  EXPECT_EQ(vgpus_.removed.size(), 1u);
}

}  // namespace
}  // namespace sluice::libvirt
