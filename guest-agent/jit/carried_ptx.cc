// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/jit/carried_ptx.h"

#include <cstdlib>
#include <cstring>

#include "guest-agent/shim/session/log.h"
#include "kernels/cubin/attach.h"
#include "kernels/cubin/cubin.h"
#include "kernels/ptx/images/fat_binary.h"
#include "kernels/ptx/module.h"

namespace sluice::jit {
namespace {

// A text beyond this is not kept: what it costs in memory is no longer worth its evictions.
constexpr size_t kMostPtxBytes = 64 << 20;

bool is_ptx(const std::string& text) {
  const auto module = ptx::Module::parse(text);
  return module && !module->functions().empty();
}

}  // namespace

bool attaching() {
  static const bool on = [] {
    const char* env = ::getenv("SLUICE_JIT");
    return env == nullptr || std::strcmp(env, "off") != 0;
  }();
  return on;
}

std::string with_ptx(std::string_view machine_code, std::string_view ptx, const char* maker) {
  if (ptx.empty() || ptx.size() > kMostPtxBytes) return "";
  auto carried = cubin::attach_ptx(machine_code, ptx.substr(0, ptx.find('\0')));
  if (!carried) {
    guest::log_line("%s: machine code without its PTX: %s", maker, carried.error().message.c_str());
    return "";
  }
  guest::log_line("%s: machine code keeps its PTX of %zu bytes", maker, ptx.size());
  return *std::move(carried);
}

std::string ptx_of_input(std::string_view input, uint32_t newest) {
  if (cubin::is_cubin(input)) {
    const auto known = cubin::read(input);
    return known ? std::string(known->ptx) : "";
  }
  uint32_t magic = 0;
  if (input.size() < sizeof magic) return "";
  std::memcpy(&magic, input.data(), sizeof magic);
  if (ptx::is_fat_binary(magic)) {
    auto found = ptx::ptx_of_fat_binary(input.data(), newest, input.size());
    return found ? *std::move(found) : "";
  }
  std::string text(input.substr(0, std::min(input.find('\0'), input.size())));
  if (text.size() > kMostPtxBytes || text.find(".version") == std::string::npos) return "";
  return is_ptx(text) ? text : "";
}

}  // namespace sluice::jit
