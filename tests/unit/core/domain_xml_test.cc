// SPDX-License-Identifier: Apache-2.0
// What is read from a libvirt domain XML, and what hostile or wrong XML gives: errors, never more.
#include <gtest/gtest.h>

#include "mediator/core/domain_xml.h"

namespace sluice {
namespace {

std::string domain(const std::string& metadata, const std::string& devices) {
  return "<domain type='kvm'><name>one</name><metadata>" + metadata + "</metadata><devices>" +
         devices + "</devices></domain>";
}
const char kShmem[] =
    "<shmem name='vgpu0'><model type='ivshmem-doorbell'/><server path='/run/sluice/vgpu/vm1.sock'/>"
    "<msi vectors='17' ioeventfd='on'/></shmem>";
std::string vgpu(const std::string& attributes) {
  return "<sluice:vgpu xmlns:sluice='https://sluice.example/vgpu/1' " + attributes + "/>";
}

TEST(DomainXml, ReadsNameSocketWeightAndMemory) {
  auto d = parse_domain_xml(
      domain(vgpu("weight='300' memory='8G' priority='2' "
                  "latency='low' min='10' max='50' group='tenant-1' mode='strict'"),
             kShmem));
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->domain, "one");
  EXPECT_EQ(d->vgpu, "one");
  EXPECT_EQ(d->socket, "/run/sluice/vgpu/vm1.sock");
  EXPECT_EQ(d->vectors, 17u);
  EXPECT_EQ(d->weight, 300u);
  EXPECT_EQ(d->memory_bytes, 8ull << 30);
  EXPECT_EQ(d->priority, 2);
  EXPECT_EQ(d->latency, "low");
  EXPECT_EQ(d->mode, "strict");
  EXPECT_EQ(d->min_permille, 100);
  EXPECT_EQ(d->max_permille, 500);
  EXPECT_EQ(d->group, "tenant-1");
}

TEST(DomainXml, WeightAndMemoryMayBeMissing) {
  auto d = parse_domain_xml(domain("", kShmem));
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->weight, 0u);
  EXPECT_EQ(d->memory_bytes, 0u);
  EXPECT_EQ(d->priority, -1);
  EXPECT_EQ(d->min_permille, -1);
  EXPECT_EQ(d->latency + d->group, "");
}

TEST(DomainXml, AnyPrefixOrADefaultNamespaceWill) {
  for (const char* metadata : {"<x:vgpu xmlns:x='https://sluice.example/vgpu/1' weight='7'/>",
                               "<vgpu xmlns='https://sluice.example/vgpu/1' weight='7'/>"}) {
    auto d = parse_domain_xml(domain(metadata, kShmem));
    ASSERT_TRUE(d.ok()) << d.error().message;
    EXPECT_EQ(d->weight, 7u) << metadata;
  }
  // Declared further up.
  auto d = parse_domain_xml(
      "<domain xmlns:s='https://sluice.example/vgpu/1'><name>n</name><metadata>"
      "<s:vgpu weight='9'/></metadata><devices>" +
      std::string(kShmem) + "</devices></domain>");
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->weight, 9u);
}

TEST(DomainXml, OthersMetadataIsNotOurs) {
  auto d =
      parse_domain_xml(domain("<o:vgpu xmlns:o='https://other.example/' weight='7'/>"
                              "<vgpu weight='8'/>",
                              kShmem));
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->weight, 0u);
}

TEST(DomainXml, OtherDevicesAreIgnored) {
  auto d = parse_domain_xml(domain(
      "",
      "<disk/><shmem name='plain'><model type='ivshmem-plain'/></shmem>" + std::string(kShmem)));
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->vgpu, "one");
}

struct BadDomain {
  std::string xml;
  const char* message;
};

TEST(DomainXml, ErrorsSayWhatIsWrong) {
  const std::string shmem = kShmem;
  auto with = [&](const char* from, const char* to) {
    std::string s = shmem;
    s.replace(s.find(from), std::string(from).size(), to);
    return domain("", s);
  };
  const BadDomain cases[] = {
      {"", "domain XML"},
      {"\n\n<domain>", "line"},
      {"<network/>", "no <domain>"},
      {"<domain><devices/></domain>", "no <name>"},
      {domain("", ""), "no vGPU"},
      {domain("", shmem + shmem), "more than one"},
      {"<domain><name>../etc</name><devices>" + shmem + "</devices></domain>",
       "cannot name a vGPU"},
      {"<domain><name>a b</name><devices>" + shmem + "</devices></domain>", "cannot name a vGPU"},
      {with("/run", "run"), "absolute path"},
      {with("17", "0"), "vectors"},
      {with("17", "1e3"), "vectors"},
      {with("17", "99999999999999999999"), "vectors"},
      {domain(vgpu("weight='0'"), shmem), "weight"},
      {domain(vgpu("weight='-1'"), shmem), "weight"},
      {domain(vgpu("weight='3x'"), shmem), "weight"},
      {domain(vgpu("weight='10001'"), shmem), "weight"},
      {domain(vgpu("memory='lots'"), shmem), "memory"},
      {domain(vgpu("memory='99999999999G'"), shmem), "memory"},
      {domain(vgpu("priority='99'"), shmem), "priority"},
      {domain(vgpu("latency='soon'"), shmem), "latency"},
      {domain(vgpu("mode='loose'"), shmem), "mode must be strict or shared"},
      {domain(vgpu("min='101'"), shmem), "min"},
      {domain(vgpu("group='../a'"), shmem), "group"},
      {domain(vgpu("min='60' max='50'"), shmem), "<sluice:vgpu>: min is more than max"},
      {domain(vgpu("wieght='50'"), shmem), "<sluice:vgpu>: unknown attribute 'wieght'"},
      {domain(vgpu("weight='x\x1b[2J'"), shmem), "<sluice:vgpu>: weight is 'x?[2J'"},
      {domain(vgpu("") + vgpu("weight='2'"), shmem), "more than one <sluice:vgpu>"},
      {domain("<s:vgpu xmlns:s='https://sluice.example/vgpu/1'><weight>3</weight></s:vgpu>", shmem),
       "<sluice:vgpu>: it must be empty"},
      {domain("<s:gpu xmlns:s='https://sluice.example/vgpu/1'/>", shmem),
       "unknown element <s:gpu xmlns='https://sluice.example/vgpu/1'>"},
      {domain(vgpu("") + "<s:vgpu xmlns:s='https://sluice.example/vgpu/2'/>", shmem),
       "unknown element <s:vgpu xmlns='https://sluice.example/vgpu/2'>"},
      {domain("<other xmlns='https://sluice.example/vgpu/1'/>", ""), "unknown element <other "},
      {with("17", "1"), "no vector for a program"},
      {"<!DOCTYPE domain [<!ENTITY a 'b'>]>" + domain("", shmem), "document type"},
      {std::string(5u << 20, ' '), "4 MiB"},
  };
  for (const BadDomain& bad : cases) {
    auto d = parse_domain_xml(bad.xml);
    ASSERT_FALSE(d.ok()) << bad.xml.substr(0, 200);
    EXPECT_NE(d.error().message.find(bad.message), std::string::npos) << d.error().message;
  }
}

TEST(DomainXml, FindsOnlyDomainsOfSluice) {
  const std::string sockets = "/run/sluice/vgpu";
  std::string other = kShmem;
  other.replace(other.find("/run/sluice/vgpu/"), 17, "/run/other/");
  for (const std::string& xml : {domain("", ""), domain("", other), domain("<o:vgpu/>", "")}) {
    auto d = find_vgpu(xml, sockets);
    ASSERT_TRUE(d.ok()) << d.error().message;
    EXPECT_FALSE(d->has_value()) << xml;
  }
  for (const std::string& xml :
       {domain("", kShmem), domain(vgpu("weight='3'"), other), domain(vgpu(""), kShmem)}) {
    auto d = find_vgpu(xml, sockets);
    ASSERT_TRUE(d.ok()) << d.error().message;
    EXPECT_TRUE(d->has_value()) << xml;
  }
  // The owner asked for a vGPU, and the device is missing.
  EXPECT_FALSE(find_vgpu(domain(vgpu("weight='3'"), ""), sockets).ok());
  EXPECT_FALSE(find_vgpu("<domain>", sockets).ok());
  // Of a later release.
  const auto later =
      find_vgpu(domain("<o:x xmlns:o='https://sluice.example/vgpu/2'/>", ""), sockets);
  ASSERT_FALSE(later.ok());
  EXPECT_NE(later.error().message.find("<o:x "), std::string::npos) << later.error().message;
  // What 'sluicectl save' has left is for 'sluicectl restore'.
  const auto saved =
      find_vgpu(domain("<s:saved xmlns:s='https://sluice.example/saved/1'/>", ""), sockets);
  EXPECT_TRUE(saved.ok() && !saved->has_value());
}

TEST(DomainXml, HostileXmlCostsNothing) {
  // Entities that grow without end, files that are none of ours, nesting without end.
  const std::string bomb =
      "<!DOCTYPE domain [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;'>"
      "<!ENTITY c SYSTEM 'file:///etc/passwd'>]><domain><name>&b;&c;</name></domain>";
  EXPECT_FALSE(parse_domain_xml(bomb).ok());
  auto d = parse_domain_xml("<domain><name>&c;</name><devices>" + std::string(kShmem) +
                            "</devices></domain>");
  ASSERT_FALSE(d.ok());
  EXPECT_NE(d.error().message.find("'&c;'"), std::string::npos)
      << "an unknown entity stays what it is";
  std::string deep;
  for (int i = 0; i < 500'000; ++i) deep += "<a>";
  EXPECT_FALSE(parse_domain_xml(deep).ok());
  for (int i = 0; i < 500'000; ++i) deep += "</a>";
  EXPECT_FALSE(parse_domain_xml(deep).ok());
  // Children, each of which is looked up in the attributes of those above.
  std::string attributes, children;
  for (int i = 0; i < 100'000; ++i) {
    attributes += " a" + std::to_string(i) + "=''";
    children += "<b:c/>";
  }
  for (const std::string& xml :
       {"<domain" + attributes + "><name>a</name><metadata>" + children + "</metadata></domain>",
        "<domain><name>a</name><metadata" + attributes + ">" + children + "</metadata></domain>"}) {
    EXPECT_EQ(parse_domain_xml(xml).error().code, E2BIG);
    EXPECT_EQ(find_vgpu(xml, "/run/sluice/vgpu").error().code, E2BIG);
  }
  std::string whole = domain(vgpu("weight='300'"), kShmem);
  for (size_t cut = 0; cut < whole.size(); ++cut)
    EXPECT_FALSE(parse_domain_xml(whole.substr(0, cut)).ok());
}

TEST(DomainXml, SettingsByThemselves) {
  auto all = parse_vgpu_settings({{"weight", "300"}, {"memory", "8G"}, {"min", "10"}});
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->weight, 300u);
  EXPECT_EQ(all->memory_bytes, 8ull << 30);
  EXPECT_EQ(all->min_permille, 100);
  EXPECT_TRUE(parse_vgpu_settings({}).ok());
  const struct {
    VgpuSettings settings;
    const char* words;
  } cases[] = {
      {{{"weight", "0"}}, "weight"},
      {{{"weight", "3'/><a b='"}}, "weight"},
      {{{"wieght", "3"}}, "'wieght'"},
      // A declaration of a namespace in a document; here a name like any other.
      {{{"xmlns", kVgpuXmlNamespace}}, "xmlns"},
      {{{"xmlns:sluice", "urn:x"}}, "xmlns:sluice"},
      {{{"a b='c' weight", "3"}}, "unknown attribute"},
      {{{"", "3"}}, "unknown attribute"},
      {{{"min", "20"}, {"max", "10"}}, "min is more than max"},
  };
  for (const auto& c : cases) {
    auto read = parse_vgpu_settings(c.settings);
    ASSERT_FALSE(read.ok()) << c.words;
    EXPECT_NE(read.error().message.find(c.words), std::string::npos) << read.error().message;
  }
}

TEST(ByteSize, Parses) {
  EXPECT_EQ(*parse_byte_size("0"), 0u);
  EXPECT_EQ(*parse_byte_size("17"), 17u);
  EXPECT_EQ(*parse_byte_size("4K"), 4096u);
  EXPECT_EQ(*parse_byte_size("8GiB"), 8ull << 30);
  EXPECT_EQ(*parse_byte_size("2T"), 2ull << 40);
  for (const char* bad :
       {"", "G", "-1", "1.5G", "8X", "8 G", "16777216T", "18446744073709551616", "1GG"})
    EXPECT_FALSE(parse_byte_size(bad).ok()) << bad;
}

}  // namespace
}  // namespace sluice
