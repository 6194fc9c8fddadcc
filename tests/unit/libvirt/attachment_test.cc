// SPDX-License-Identifier: Apache-2.0
// What attaching adds to a domain's XML, what stays as it is, and what is refused with which
// reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "mediator/core/domain_xml.h"
#include "mediator/libvirt/api/attachment.h"

namespace sluice::libvirt {
namespace {

std::string domain(const std::string& inside, const std::string& devices = "",
                   const std::string& machine = "pc-q35-7.2") {
  return "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>"
         "<name>vm1</name><os><type arch='x86_64' machine='" +
         machine + "'>hvm</type></os>" + inside + "<devices><disk type='file'/>" + devices +
         "</devices><qemu:commandline><qemu:arg value='-x'/></qemu:commandline></domain>";
}

std::string named(const std::string& name) {
  std::string xml = domain("");
  return xml.replace(xml.find("vm1"), 3, name);
}

std::string nested(int depth) {
  std::string xml;
  for (int i = 0; i < depth; ++i) xml += "<a>";
  for (int i = 0; i < depth; ++i) xml += "</a>";
  return xml;
}

Attachment settings() { return {{{"weight", "300"}, {"memory", "8G"}}, "/run/sluice/vgpu", 4}; }

TEST(Attachment, AddsWhatADomainNeeds) {
  auto change = attach_vgpu(domain("<features><acpi/></features>"), settings());
  ASSERT_TRUE(change.ok()) << change.error().message;
  auto read = parse_domain_xml(change->xml);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->weight, 300u);
  EXPECT_EQ(read->memory_bytes, 8ull << 30);
  EXPECT_EQ(read->socket, "/run/sluice/vgpu/vm1.sock");
  EXPECT_EQ(read->vectors, 5u);
  for (const char* part :
       {"<ioapic driver=\"qemu\"", "<iommu model=\"intel\"", "intremap=\"on\""}) {
    EXPECT_NE(change->xml.find(part), std::string::npos) << part;
    EXPECT_NE(change->shown.find(part), std::string::npos) << part;
  }
  // What was there is there.
  for (const char* part : {"<acpi", "<disk type=\"file\"", "<qemu:arg value=\"-x\"", "xmlns:qemu"})
    EXPECT_NE(change->xml.find(part), std::string::npos) << part;
  EXPECT_EQ(change->shown.find("disk"), std::string::npos);
}

TEST(Attachment, AnotherEncodingBecomesUtf8) {
  auto change = attach_vgpu(
      "<?xml version='1.0' encoding='ISO-8859-1'?>" + domain("<title>\xe4</title>"), settings());
  ASSERT_TRUE(change.ok()) << change.error().message;
  EXPECT_NE(change->xml.find("<title>\xc3\xa4<"), std::string::npos) << change->xml;
  EXPECT_EQ(change->xml.find("8859"), std::string::npos) << change->xml;
}

TEST(Attachment, AnIommuThatIsThereIsUsed) {
  auto change = attach_vgpu(domain("<features><ioapic driver='qemu'/></features>",
                                   "<iommu model='intel'><driver intremap='on'/></iommu>"),
                            settings());
  ASSERT_TRUE(change.ok()) << change.error().message;
  EXPECT_EQ(change->shown.find("iommu"), std::string::npos);
  EXPECT_EQ(change->xml.find("<iommu"), change->xml.rfind("<iommu"));
}

TEST(Attachment, WhereThereCanBeNoIommuTheGuestPolls) {
  Attachment without = settings();
  without.iommu = Iommu::kLeave;
  const struct {
    Result<Change> change;
    const char* note;
  } cases[] = {
      {attach_vgpu(domain("", "", "pc-i440fx-7.2"), settings()), "machine='q35'"},
      {attach_vgpu(domain("<features><ioapic driver='kvm'/></features>"), settings()),
       "driver='qemu'"},
      {attach_vgpu(domain("", "<iommu model='intel'/>"), settings()),
       "add <driver intremap='on'/>"},
      {attach_vgpu(domain("", "<iommu model='virtio'/>"), settings()),
       "<iommu model='virtio'> has no interrupt remapping; for it have <iommu model='intel'>"},
      {attach_vgpu(domain(""), without), "--no-iommu"},
      {reserve_room(domain(""), 1u << 28, Iommu::kLeave), "--no-iommu"},
  };
  for (const auto& c : cases) {
    ASSERT_TRUE(c.change.ok()) << c.change.error().message;
    EXPECT_NE(c.change->note.find(c.note), std::string::npos) << c.change->note;
    EXPECT_EQ(c.change->shown.find("<iommu"), std::string::npos) << c.change->shown;
    EXPECT_EQ(c.change->shown.find("<ioapic"), std::string::npos) << c.change->shown;
  }
  EXPECT_TRUE(parse_domain_xml(cases[0].change->xml).ok());
  // One that is there is used, whatever was asked for.
  auto used = attach_vgpu(domain("<features><ioapic driver='qemu'/></features>",
                                 "<iommu model='intel'><driver intremap='on'/></iommu>"),
                          without);
  ASSERT_TRUE(used.ok()) << used.error().message;
  EXPECT_EQ(used->note, "");
  auto added = attach_vgpu(domain(""), settings());
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ(added->note, "");
}

TEST(Attachment, DetachingTakesOutWhatAttachingPutIn) {
  const std::string other = "<shmem name='own'><model type='ivshmem-plain'/></shmem>";
  auto attached =
      attach_vgpu(domain("<metadata><o:x xmlns:o='urn:o'/></metadata>", other), settings());
  ASSERT_TRUE(attached.ok()) << attached.error().message;
  auto detached = detach_vgpu(attached->xml);
  ASSERT_TRUE(detached.ok()) << detached.error().message;
  EXPECT_EQ(detached->xml.find("sluice"), std::string::npos);
  EXPECT_EQ(detached->xml.find("ivshmem-doorbell"), std::string::npos);
  for (const char* part : {"urn:o", "ivshmem-plain", "<iommu"})
    EXPECT_NE(detached->xml.find(part), std::string::npos) << part;
  EXPECT_TRUE(attach_vgpu(detached->xml, settings()).ok());
  // Of a domain without other metadata nothing stays of the element either.
  EXPECT_EQ(detach_vgpu(attach_vgpu(domain(""), settings())->xml)->xml.find("<metadata"),
            std::string::npos);
  auto again = detach_vgpu(detached->xml);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().message, "it has no vGPU");
}

// What a later release has written, or a slip of the owner's: it would be gone without a word.
TEST(Attachment, AnUnknownElementOfOursIsNamedAndOnlyDetachingTakesItOut) {
  for (const char* unknown : {"<sluice:other xmlns:sluice=\"https://sluice.example/vgpu/1\"",
                              "<sluice:vgpu xmlns:sluice=\"https://sluice.example/vgpu/2\""}) {
    const std::string xml = domain("<metadata>" + std::string(unknown) + "/></metadata>");
    const std::string with_room = reserve_room(xml, 1u << 28)->xml;
    const std::string name(unknown, std::string_view(unknown).find(' '));
    for (const Error& e : {attach_vgpu(xml, settings()).error(),
                           provide_vgpu(xml, settings(), "/run/x.sock").error()})
      EXPECT_NE(e.message.find("unknown element " + name), std::string::npos) << e.message;
    std::string running = with_room;
    const std::string alias = "<alias name=\"ua-sluice\"";
    ASSERT_NE(running.find(alias), std::string::npos);
    running.replace(running.find("model=\"pcie-root-port\""), 0, "index=\"5\" ");
    const auto live = attach_live(running, settings());
    ASSERT_FALSE(live.ok());
    EXPECT_NE(live.error().message.find("unknown element " + name), std::string::npos)
        << live.error().message;
    const auto detached = detach_vgpu(xml);
    ASSERT_TRUE(detached.ok()) << detached.error().message;
    EXPECT_NE(detached->shown.find(unknown), std::string::npos) << detached->shown;
    EXPECT_EQ(detached->xml.find("sluice"), std::string::npos);
  }
}

TEST(Attachment, ADoorbellOfSomebodyElseIsLeft) {
  const auto doorbell = [](const std::string& path) {
    return "<shmem name='theirs'><model type='ivshmem-doorbell'/><server path='" + path +
           "'/></shmem>";
  };
  const std::string theirs = domain("", doorbell("/tmp/theirs"));
  auto attached = attach_vgpu(theirs, settings());
  ASSERT_FALSE(attached.ok());
  EXPECT_NE(attached.error().message.find("'/tmp/theirs', and can have one only"),
            std::string::npos)
      << attached.error().message;
  auto detached = detach_vgpu(theirs);
  ASSERT_FALSE(detached.ok()) << detached->shown;
  EXPECT_EQ(detached.error().message, "it has no vGPU");
  EXPECT_FALSE(detach_live(theirs).ok());
  EXPECT_FALSE(vgpu_to_save(theirs).ok());
  // Ours: by its socket, where somebody removed the settings; by the settings, where the domain was
  // renamed. The other stays.
  const std::string ns = "<metadata><s:vgpu xmlns:s='https://sluice.example/vgpu/1'/></metadata>";
  for (const std::string& xml :
       {domain("", doorbell("/tmp/theirs") + doorbell("/run/sluice/vgpu/vm1.sock")),
        domain(ns, doorbell("/run/sluice/vgpu/before.sock"))}) {
    auto out = detach_vgpu(xml);
    ASSERT_TRUE(out.ok()) << out.error().message;
    EXPECT_EQ(out->xml.find("/run/sluice"), std::string::npos) << out->xml;
    EXPECT_EQ(out->xml.find("/tmp/theirs") != std::string::npos,
              xml.find("/tmp/theirs") != std::string::npos);
  }
}

// As virt-clone and 'virsh domrename' leave it.
TEST(Attachment, ACopyGetsASocketOfItsOwnAndKeepsItsSettings) {
  std::string copy = attach_vgpu(domain(""), settings())->xml;
  copy.replace(copy.find("<name>vm1"), 9, "<name>vm2");
  auto own = attach_vgpu(copy, {{}, "/run/sluice/vgpu"});
  ASSERT_TRUE(own.ok()) << own.error().message;
  auto read = parse_domain_xml(own->xml);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->socket, "/run/sluice/vgpu/vm2.sock");
  EXPECT_EQ(read->weight, 300u);
  EXPECT_EQ(read->memory_bytes, 8ull << 30);
  EXPECT_EQ(read->vectors, 5u);
  for (const char* part : {"weight=\"300\"", "vm2.sock"})
    EXPECT_NE(own->shown.find(part), std::string::npos) << own->shown;
  EXPECT_EQ(own->xml.find("vm1"), std::string::npos) << own->xml;
  EXPECT_FALSE(attach_vgpu(own->xml, settings()).ok()) << "it has one";
  // What is asked for goes before what was there.
  auto other = attach_vgpu(copy, {{{"weight", "7"}, {"max", "50"}}, "/run/sluice/vgpu", 8});
  ASSERT_TRUE(other.ok()) << other.error().message;
  read = parse_domain_xml(other->xml);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->weight, 7u);
  EXPECT_EQ(read->max_permille, 500);
  EXPECT_EQ(read->memory_bytes, 8ull << 30);
  EXPECT_EQ(read->vectors, 9u);
  // One elsewhere was put there by hand, and is no copy.
  for (const char* folder : {"/srv/vgpu", "/run/other/vgpu"}) {
    const auto elsewhere = attach_vgpu(copy, {{}, folder});
    ASSERT_FALSE(elsewhere.ok());
    EXPECT_NE(elsewhere.error().message.find("it has a vGPU"), std::string::npos);
  }
  const std::string two = std::string(copy).insert(
      copy.find("</metadata>"), "<s:vgpu xmlns:s='https://sluice.example/vgpu/1'/>");
  const auto ambiguous = attach_vgpu(two, {{}, "/run/sluice/vgpu"});
  ASSERT_FALSE(ambiguous.ok());
  EXPECT_NE(ambiguous.error().message.find("more than one <sluice:vgpu>"), std::string::npos);
  EXPECT_TRUE(detach_vgpu(copy).ok());
}

// `sluicectl list` says that it has one: it was renamed, and its settings were taken out by hand.
TEST(Attachment, ARenamedDomainsVgpuIsDetachedWithoutSettings) {
  for (const char* name : {"before", "vm1.x"}) {
    auto out =
        detach_vgpu(domain("", std::string("<shmem name='vgpu0'><model type='ivshmem-doorbell'/>"
                                           "<server path='/run/sluice/vgpu/") +
                                   name + ".sock'/></shmem>"));
    ASSERT_TRUE(out.ok()) << out.error().message;
    EXPECT_EQ(out->xml.find("shmem"), std::string::npos) << out->xml;
  }
  for (const char* path : {"/run/sluice/vgpu/.sock", "/run/sluice/vgpu/a b.sock", "vm1.sock",
                           "/run/sluice/vgpu/vm1", "/run/vm1.sock"})
    EXPECT_FALSE(detach_vgpu(domain("", std::string("<shmem name='vgpu0'><model "
                                                    "type='ivshmem-doorbell'/><server path='") +
                                            path + "'/></shmem>"))
                     .ok())
        << path;
}

TEST(Attachment, ALiveDeviceGoesOnTheReservedPort) {
  auto reserved = reserve_room(domain(""), 512u << 20);
  ASSERT_TRUE(reserved.ok()) << reserved.error().message;
  EXPECT_NE(reserved->xml.find("pcie-root-port.pref64-reserve=512M"), std::string::npos);
  EXPECT_NE(reserved->xml.find("<qemu:arg value=\"-x\""), std::string::npos);
  // As libvirt numbers it.
  std::string running = reserved->xml;
  const std::string port = "model=\"pcie-root-port\"";
  running.replace(running.find(port), port.size(), port + " index=\"11\"");
  auto live = attach_live(running, settings());
  ASSERT_TRUE(live.ok()) << live.error().message;
  EXPECT_NE(live->device.find("bus=\"11\" slot=\"0\""), std::string::npos) << live->device;
  EXPECT_EQ(live->vgpu.weight, 300u);
  EXPECT_EQ(live->vgpu.socket, "/run/sluice/vgpu/vm1.sock");
  EXPECT_EQ(live->settings, "<vgpu weight=\"300\" memory=\"8G\" />\n");
  // 'virsh detach-device' leaves the metadata.
  const std::string left = "<sluice:vgpu xmlns:sluice='" + std::string(kVgpuXmlNamespace) +
                           "' weight='50' memory='2G' max='40'/>";
  std::string detached_by_virsh = running;
  detached_by_virsh.insert(detached_by_virsh.find("<devices>"),
                           "<metadata>" + left + "</metadata>");
  Attachment only_weight = settings();
  only_weight.settings = {{"weight", "70"}};
  auto again = attach_live(detached_by_virsh, only_weight);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->vgpu.weight, 70u);
  EXPECT_EQ(again->vgpu.memory_bytes, 2ull << 30);
  EXPECT_EQ(again->settings, "<vgpu weight=\"70\" memory=\"2G\" max=\"40\" />\n");
  std::string taken = running;
  taken.replace(taken.find("<disk type=\"file\" />"), 20,
                "<disk><address type='pci' bus='0x0b'/></disk>");
  auto busy = attach_live(taken, settings());
  ASSERT_FALSE(busy.ok());
  EXPECT_NE(busy.error().message.find("another device"), std::string::npos);
  auto detached = detach_live(attach_vgpu(domain(""), settings())->xml);
  ASSERT_TRUE(detached.ok());
  EXPECT_TRUE(detached->starts_with("<shmem name=\"vgpu0\"")) << *detached;
}

TEST(Attachment, WhatIsSavedOfAVgpuComesBack) {
  auto attached = attach_vgpu(domain(""), settings());
  ASSERT_TRUE(attached.ok());
  auto to_save = vgpu_to_save(attached->xml);
  ASSERT_TRUE(to_save.ok()) << to_save.error().message;
  EXPECT_EQ(to_save->settings, settings().settings);
  EXPECT_EQ(to_save->slots, 4u);
  const auto with = [](std::string saved) {
    // As libvirt gives it back: with a prefix and the namespace.
    saved.replace(saved.find("<saved"), 6,
                  "<s:saved xmlns:s='" + std::string(kSavedXmlNamespace) + "'");
    return domain("<metadata>" + saved + "</metadata>");
  };
  auto back = saved_vgpu(with(saved_xml(*to_save)));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->settings, to_save->settings);
  EXPECT_EQ(back->slots, 4u);
  // The hook lets such a domain start: it has nothing of a vGPU.
  auto hook = find_vgpu(with(saved_xml(*to_save)), "/run/sluice/vgpu");
  ASSERT_TRUE(hook.ok()) << hook.error().message;
  EXPECT_FALSE(hook->has_value());

  EXPECT_EQ(vgpu_to_save(domain("")).error().code, ENOENT);
  EXPECT_EQ(saved_vgpu(domain("")).error().code, ENOENT);
  EXPECT_EQ(saved_vgpu(with("<saved/>"))->slots, 16u) << "as many as any";
  // Whoever may edit the domain may have written it.
  const struct {
    const char *saved, *words;
  } tampered[] = {
      {"<saved weight='0'/>", "weight is '0', not a number from 1 to 10000"},
      {"<saved memory='lots'/>", "memory"},
      {"<saved other='1'/>", "unknown attribute 'other'"},
      {"<saved slots='0'/>", "slots is '0', not a number from 1 to 64"},
      {"<saved slots='65'/>", "slots is '65'"},
      {"<saved slots='-1'/>", "slots is '-1'"},
      {"<saved slots='4 '/>", "slots is '4 '"},
      {"<saved slots='\x1b[2J'/>", "slots is '?[2J'"},
      {"<saved slots='99999999999999999999'/>", "slots is '99999999999999999999'"},
      {"<saved><weight>3</weight></s:saved>", "it must be empty"},
  };
  for (const auto& t : tampered) {
    const Error error = saved_vgpu("\n\n" + with(t.saved)).error();
    EXPECT_EQ(error.code, EINVAL) << t.saved;
    EXPECT_NE(error.message.find(t.words), std::string::npos) << error.message;
    EXPECT_TRUE(error.message.starts_with("line ")) << error.message;
  }
  std::string two = with("<saved/>");
  const size_t at = two.find("<s:saved"), end = two.find("/>", at) + 2;
  two.insert(end, "\n" + two.substr(at, end - at));
  const auto line = 2 + std::count(two.begin(), two.begin() + static_cast<ptrdiff_t>(at), '\n');
  EXPECT_EQ(saved_vgpu(two).error().message,
            "line " + std::to_string(line) + ", <saved>: there is more than one");
}

TEST(Attachment, AProvidedVgpuHasAnySocketAndMayBeAskedForAgain) {
  const std::string socket = "/run/sluice-vgpu/vgpu.sock", long_name(127, 'n');
  std::string plain = domain("");
  plain.replace(plain.find("vm1"), 3, long_name);
  EXPECT_FALSE(attach_vgpu(plain, settings()).ok());
  auto once = provide_vgpu(plain, settings(), socket);
  ASSERT_TRUE(once.ok()) << once.error().message;
  auto read = parse_domain_xml(once->xml, VgpuName::kByCreator);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->domain, long_name);
  EXPECT_EQ(read->vgpu, "");
  EXPECT_EQ(read->socket, socket);
  EXPECT_EQ(read->weight, 300u);
  EXPECT_NE(once->xml.find("<iommu model=\"intel\""), std::string::npos);
  EXPECT_EQ(provide_vgpu(once->xml, settings(), socket)->xml, once->xml);

  Attachment other{{{"latency", "low"}}, "", 8};
  auto twice = provide_vgpu(once->xml, other, socket);
  ASSERT_TRUE(twice.ok()) << twice.error().message;
  read = parse_domain_xml(twice->xml, VgpuName::kByCreator);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->weight, 0u);
  EXPECT_EQ(read->latency, "low");
  EXPECT_EQ(read->vectors, 9u);

  other.iommu = Iommu::kRequired;
  EXPECT_TRUE(provide_vgpu(plain, other, socket).ok());
  for (const auto& [refused, words] :
       {std::pair{provide_vgpu(once->xml, settings(), "/run/x.sock"), socket.c_str()},
        {provide_vgpu(domain("", "", "pc-i440fx-7.2"), other, socket), "machine='q35'"},
        {provide_vgpu("<!DOCTYPE domain []>" + plain, other, socket), "type declaration"}}) {
    ASSERT_FALSE(refused.ok()) << words;
    EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
  }
}

TEST(Attachment, WhatIsDeepButNotTooDeepIsKept) {
  const std::string deep = "<metadata>" + nested(250) + "</metadata>";
  EXPECT_TRUE(attach_vgpu(domain(deep), settings()).ok());
}

TEST(Attachment, RefusalsSayWhatToDo) {
  Attachment wrong = settings();
  wrong.settings = {{"memory", "lots"}};
  auto attached = attach_vgpu(domain(""), settings());
  ASSERT_TRUE(attached.ok());
  struct Case {
    Result<Change> result;
    const char* words;
  } const cases[] = {
      {attach_vgpu(attached->xml, settings()), "it has a vGPU"},
      {attach_vgpu(domain(""), wrong), "<sluice:vgpu>: memory"},
      {attach_vgpu("<domain", settings()), "cannot be read"},
      {attach_vgpu("<network/>", settings()), "no <domain>"},
      {attach_vgpu(domain("") + domain(""), settings()), "more than one document element"},
      {attach_vgpu(domain(nested(100'000)), settings()), "elements more than 256 deep"},
      {attach_vgpu(named(".hidden"), settings()), "the first a letter or digit"},
      {detach_vgpu(domain("")), "no vGPU"},
      {reserve_room(domain("", "", "pc-i440fx-7.2"), 1), "machine='q35'"},
      {reserve_room(named("my vm"), 1), "'virsh domrename'"},
      {attach_vgpu(named("my vm"), settings()), "'virsh domrename'"},
      {reserve_room(reserve_room(domain(""), 1u << 28)->xml, 1), "has room"},
  };
  auto no_port = attach_live(domain(""), settings());
  ASSERT_FALSE(no_port.ok());
  EXPECT_NE(no_port.error().message.find("'sluicectl reserve vm1'"), std::string::npos);
  EXPECT_FALSE(attach_live(attached->xml, settings()).ok());
  EXPECT_FALSE(detach_live(domain("")).ok());
  for (const Case& c : cases) {
    ASSERT_FALSE(c.result.ok()) << c.words;
    EXPECT_NE(c.result.error().message.find(c.words), std::string::npos)
        << c.result.error().message;
  }
}

}  // namespace
}  // namespace sluice::libvirt
