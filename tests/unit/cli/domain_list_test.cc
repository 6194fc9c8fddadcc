// SPDX-License-Identifier: Apache-2.0
// `sluicectl list`: each combination of what libvirt, a domain's XML and sluiced have.
#include "mediator/cli/domain_list.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

namespace sluice::cli {
namespace {

constexpr char kFolder[] = "/run/sluice/vgpu";

libvirt::ListedDomain listed(const std::string& name, const std::string& state,
                             const std::string& socket = "", const std::string& metadata = "") {
  std::string xml = "<domain type='kvm'><name>" + name + "</name>" + metadata + "<devices>";
  if (!socket.empty())
    xml += "<shmem name='vgpu0'><model type='ivshmem-doorbell'/><server path='" + socket +
           "'/><msi vectors='5'/></shmem>";
  return {name, "uuid-of-" + name, state, xml + "</devices></domain>"};
}
std::string socket_of(const std::string& name) {
  return std::string(kFolder) + "/" + name + ".sock";
}

boost::json::value sluiced_has() {
  return boost::json::parse(R"([
    {"name":"vm1","state":"connected","owner":"libvirt:uuid-of-vm1","socket":"/run/sluice/vgpu/vm1.sock"},
    {"name":"ended","state":"waiting","owner":"libvirt:uuid-of-ended","socket":"/run/sluice/vgpu/ended.sock"},
    {"name":"mine","state":"waiting","owner":"","socket":"/srv/mine.sock"},
    {"name":"runs","state":"connected","owner":"","socket":"/srv/runs.sock"},
    {"name":"old-name","state":"connected","owner":"libvirt:uuid-of-renamed","socket":"/run/sluice/vgpu/old-name.sock"},
    {"name":"alone","state":"waiting","owner":"","socket":"/run/sluice/vgpu/alone.sock"}])");
}

const DomainRow& row_of(const DomainList& list, const std::string& name) {
  static const DomainRow kNothing;
  for (const DomainRow& d : list.domains)
    if (d.name == name) return d;
  ADD_FAILURE() << "no domain " << name;
  return kNothing;
}

TEST(DomainList, EachDomainHasTheStateOfItsVgpu) {
  const std::string wrong =
      "<metadata><s:vgpu xmlns:s='https://sluice.example/vgpu/1' weight='0'/></metadata>";
  const std::string settings =
      "<metadata><s:vgpu xmlns:s='https://sluice.example/vgpu/1' weight='3'/></metadata>";
  const DomainList list = match_domains(sluiced_has().as_array(),
                                        {listed("vm1", "running", socket_of("vm1")),
                                         listed("plain", "running"),
                                         listed("cold", "shut off", socket_of("cold")),
                                         listed("lost", "paused", socket_of("lost")),
                                         listed("ended", "shut off", socket_of("ended")),
                                         listed("by-hand", "shut off", "/srv/mine.sock"),
                                         listed("by-hand-runs", "running", "/srv/runs.sock"),
                                         listed("renamed", "running", socket_of("old-name")),
                                         listed("other", "running", "/run/other/shm.sock"),
                                         listed("copy-of-vm1", "shut off", socket_of("vm1")),
                                         listed("wrong", "shut off", socket_of("wrong"), wrong),
                                         listed("wrong-runs", "running", socket_of("w"), wrong),
                                         listed("detached", "running", "", settings),
                                         listed("half", "shut off", "", settings),
                                         {"unreadable", "u", "shut off", "<domain"}},
                                        kFolder);
  const struct {
    const char *domain, *vgpu;
    VgpuState state;
  } expected[] = {
      {"vm1", "vm1", VgpuState::kPresent},          {"plain", "", VgpuState::kNone},
      {"cold", "", VgpuState::kNextStart},          {"lost", "", VgpuState::kLost},
      {"wrong-runs", "", VgpuState::kLost},         {"detached", "", VgpuState::kNone},
      {"half", "", VgpuState::kNextStart},          {"ended", "ended", VgpuState::kLeft},
      {"by-hand", "mine", VgpuState::kNextStart},   {"by-hand-runs", "runs", VgpuState::kPresent},
      {"renamed", "old-name", VgpuState::kPresent}, {"other", "", VgpuState::kNone},
      {"copy-of-vm1", "", VgpuState::kNextStart},   {"wrong", "", VgpuState::kNextStart},
  };
  for (const auto& e : expected) {
    EXPECT_EQ(row_of(list, e.domain).vgpu_state, e.state) << e.domain;
    EXPECT_EQ(row_of(list, e.domain).vgpu, e.vgpu) << e.domain;
  }
  EXPECT_EQ(row_of(list, "unreadable").vgpu, "");
  EXPECT_EQ(list.vgpus_without_domain, std::vector<std::string>{"alone"});
  EXPECT_EQ(list.by_vgpu.at("old-name"), "renamed");
  EXPECT_EQ(list.by_vgpu.at("vm1"), "vm1");
  EXPECT_FALSE(list.by_vgpu.contains("alone"));
}

// Settings without a device, as an edit that was left half-way has them; settings that are wrong.
TEST(DomainList, ADomainThatTheHookDeniesIsNotCalledAttached) {
  const std::string vgpu = "<metadata><s:vgpu xmlns:s='https://sluice.example/vgpu/1' ";
  const DomainList list = match_domains(
      {},
      {listed("half", "shut off", "", vgpu + "/></metadata>"),
       listed("heavy", "shut off", socket_of("heavy"), vgpu + "weight='0'/></metadata>"),
       listed("right", "shut off", socket_of("right"))},
      kFolder);
  EXPECT_NE(row_of(list, "half").wrong.find("'sluicectl attach' adds it"), std::string::npos);
  EXPECT_NE(row_of(list, "heavy").wrong.find("weight is '0'"), std::string::npos);
  EXPECT_EQ(row_of(list, "right").wrong, "");
  const std::string table = domain_table(list);
  EXPECT_NE(table.find("does not start: <sluice:vgpu>: weight is '0'"), std::string::npos) << table;
  EXPECT_NE(table.find("attached, from its next start on"), std::string::npos) << table;
  const std::string json = boost::json::serialize(domains_as_json(list));
  EXPECT_NE(json.find(R"("wrong":"<sluice:vgpu>: weight)"), std::string::npos) << json;
}

TEST(DomainList, TextAndJsonSayTheSame) {
  const DomainList list = match_domains(
      sluiced_has().as_array(),
      {listed("vm1", "running", socket_of("vm1")), listed("lost", "running", socket_of("lost"))},
      kFolder);
  const std::string table = domain_table(list);
  EXPECT_NE(table.find("connected"), std::string::npos) << table;
  EXPECT_NE(table.find("lost: shut the domain off"), std::string::npos) << table;
  const std::string json = boost::json::serialize(domains_as_json(list));
  EXPECT_NE(json.find(R"("name":"vm1","uuid":"uuid-of-vm1","state":"running",)"
                      R"("attached":"present","vgpu":"vm1")"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("attached":"lost","vgpu":null)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("vgpus_without_domain":["ended","mine")"), std::string::npos) << json;
}

TEST(DomainList, WithoutDomainsAllVgpusAreAlone) {
  const DomainList list = match_domains(sluiced_has().as_array(), {}, kFolder);
  EXPECT_TRUE(list.domains.empty());
  EXPECT_EQ(list.vgpus_without_domain.size(), 6u);
}

}  // namespace
}  // namespace sluice::cli
