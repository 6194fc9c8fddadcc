// SPDX-License-Identifier: Apache-2.0
// sluice-domain-attach: a vGPU's settings and a domain's XML, for programs that are no C++
// (packaging/kubernetes). No libvirt, no sluiced: text in, text out.
//
//   sluice-domain-attach xml --socket PATH [--slots N] [--iommu WORD] [NAME=VALUE...] < XML > XML
//   sluice-domain-attach settings [NAME=VALUE...]     prints what sluiced's vgpu.set takes, as JSON
//
// NAME=VALUE are attributes of <sluice:vgpu>. An error is a line on standard error; one of a single
// setting begins with "NAME: ". Status 1: refused, 2: wrong usage. Arguments may be hostile.
#include <unistd.h>

#include <boost/json/serialize.hpp>
#include <charconv>
#include <cstdio>
#include <optional>

#include "mediator/base/limits.h"
#include "mediator/cli/domain_request.h"
#include "mediator/core/names.h"
#include "mediator/libvirt/api/attachment.h"
#include "mediator/libvirt/limits.h"
#include "mediator/libvirt/standard_input.h"

namespace {

using sluice::Error;
using sluice::Result;
using sluice::VgpuSettings;

constexpr char kUsage[] =
    "usage: sluice-domain-attach xml --socket PATH [--slots N] [--iommu where-possible|required|"
    "leave] [NAME=VALUE...] < XML\n"
    "       sluice-domain-attach settings [NAME=VALUE...]\n";

struct Options {
  std::string socket;
  sluice::libvirt::Attachment attachment;
};

std::string shown(std::string_view text) {
  return sluice::clean_text(text.data(), std::min<size_t>(text.size(), 80));
}

std::optional<sluice::libvirt::Iommu> iommu(std::string_view word) {
  if (word == "where-possible") return sluice::libvirt::Iommu::kWherePossible;
  if (word == "required") return sluice::libvirt::Iommu::kRequired;
  if (word == "leave") return sluice::libvirt::Iommu::kLeave;
  return std::nullopt;
}

// nullopt: wrong usage.
std::optional<Options> options_of(int argc, char** argv) {
  Options o;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--")) {
      const size_t equals = word.find('=');
      if (equals == std::string_view::npos || equals == 0) return std::nullopt;
      o.attachment.settings.emplace_back(word.substr(0, equals), word.substr(equals + 1));
      continue;
    }
    if (++i == argc) return std::nullopt;
    const std::string_view value = argv[i];
    if (word == "--socket") {
      o.socket = value;
    } else if (word == "--slots") {
      unsigned slots = 0;
      auto [end, bad] = std::from_chars(value.data(), value.data() + value.size(), slots);
      if (bad != std::errc{} || end != value.data() + value.size() || slots < 1 ||
          slots > SLUICE_MAX_SLOTS)
        return std::nullopt;
      o.attachment.slots = slots;
    } else if (auto wanted = word == "--iommu" ? iommu(value) : std::nullopt) {
      o.attachment.iommu = *wanted;
    } else {
      return std::nullopt;
    }
  }
  return o;
}

// Each by itself, so that the error names it; then all together.
Result<sluice::DomainVgpu> checked(const VgpuSettings& settings) {
  for (const auto& setting : settings)
    if (auto read = sluice::parse_vgpu_settings({setting}); !read)
      return Error(read.error()).with_context(shown(setting.first));
  return sluice::parse_vgpu_settings(settings);
}

Result<std::string> changed_xml(const Options& o) {
  if (auto good = checked(o.attachment.settings); !good) return good.error();
  const std::string xml = sluice::libvirt::read_standard_input();
  if (xml.size() > sluice::libvirt::limits::kMaxXmlBytes)
    return Error{E2BIG, "the domain's XML is too long"};
  auto change = sluice::libvirt::provide_vgpu(xml, o.attachment, o.socket);
  if (!change) return Error(change.error()).with_context("the domain");
  return std::move(change->xml);
}

Result<std::string> settings_json(const Options& o) {
  auto vgpu = checked(o.attachment.settings);
  if (!vgpu) return vgpu.error();
  boost::json::object request = sluice::set_request(*vgpu);
  request.erase("name");
  return boost::json::serialize(request) + "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  const auto options = options_of(argc, argv);
  if (!options || !(command == "settings" || (command == "xml" && !options->socket.empty()))) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const auto done = command == "xml" ? changed_xml(*options) : settings_json(*options);
  if (!done) {
    std::fprintf(stderr, "%s\n", done.error().message.c_str());
    return 1;
  }
  if (std::fwrite(done->data(), 1, done->size(), stdout) != done->size() || std::fflush(stdout))
    return 1;
  return 0;
}
