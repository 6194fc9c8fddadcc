// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/jit/jit_link.h"

#include <sys/stat.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "guest-agent/jit/carried_ptx.h"
#include "guest-agent/shim/session/log.h"
#include "kernels/ptx/images/link.h"

namespace sluice::jit {
namespace {

// nvJitLink.h's numbers of inputs.
constexpr int kLtoIr = 3, kAny = 10;
// What a link may keep of its inputs; libraries of NVIDIA's are larger.
constexpr size_t kMostKeptBytes = 256 << 20;

// Compute capability of "-arch=sm_90a": 90. 0: not said.
uint32_t architecture_of(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const size_t at = option.find("-arch=");
    const size_t digits = option.find_first_of("0123456789");
    if (at != std::string::npos && digits != std::string::npos)
      return static_cast<uint32_t>(std::strtoul(option.c_str() + digits, nullptr, 10));
  }
  return 0;
}

bool has_option(const std::vector<std::string>& options, std::string_view name) {
  for (const std::string& option : options)
    if (option == name || option == "-" + std::string(name)) return true;
  return false;
}

// Of what can be kept: a pipe has been read already, and would be waited for. Else empty.
std::string contents(const char* path) {
  struct stat st;
  if (::stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
      static_cast<uint64_t>(st.st_size) > kMostKeptBytes)
    return "";
  std::string bytes(static_cast<size_t>(st.st_size), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(bytes.data(), st.st_size) ? bytes : "";
}

}  // namespace

JitLink::JitLink(const CompilerLibrary& library, std::string_view version) {
  const auto find = [&]<class F>(const char* name, F** to) {
    const std::string whole =
        version.empty() ? name : "__" + std::string(name) + std::string(version);
    *to = reinterpret_cast<F*>(real_dlsym(library.handle, whole.c_str()));
  };
  find("nvJitLinkCreate", &create_);
  find("nvJitLinkAddData", &add_data_);
  find("nvJitLinkAddFile", &add_file_);
  find("nvJitLinkComplete", &complete_);
  find("nvJitLinkGetLinkedCubinSize", &cubin_size_);
  find("nvJitLinkGetLinkedCubin", &cubin_);
  find("nvJitLinkGetLinkedPtxSize", &ptx_size_);
  find("nvJitLinkGetLinkedPtx", &ptx_);
  find("nvJitLinkDestroy", &destroy_);
}

int JitLink::create(void** handle, uint32_t count, const char** options) {
  if (create_ == nullptr) return kInternalError;
  const int r = create_(handle, count, options);
  if (r != 0 || !attaching()) return r;
  Link link;
  for (uint32_t i = 0; i < count; ++i) link.options.emplace_back(options[i]);
  std::lock_guard lock(mutex_);
  links_[*handle] = std::move(link);
  return r;
}

void JitLink::keep(void* handle, int type, std::string_view bytes, const char* name) {
  std::lock_guard lock(mutex_);
  const auto found = links_.find(handle);
  if (found == links_.end()) return;
  Link& link = found->second;
  if (!link.whole || bytes.empty() || bytes.size() > kMostKeptBytes - link.kept) {
    link.whole = false;
    link.inputs.clear();
    return;
  }
  link.kept += bytes.size();
  link.inputs.push_back({type, std::string(bytes), name != nullptr ? name : ""});
}

int JitLink::add_data(void* handle, int type, const void* data, size_t bytes, const char* name) {
  if (add_data_ == nullptr) return kInternalError;
  const int r = add_data_(handle, type, data, bytes, name);
  if (r == 0) keep(handle, type, {static_cast<const char*>(data), bytes}, name);
  return r;
}

int JitLink::add_file(void* handle, int type, const char* path) {
  if (add_file_ == nullptr) return kInternalError;
  const int r = add_file_(handle, type, path);
  if (r != 0 || !attaching()) return r;
  keep(handle, type, contents(path), path);
  return r;
}

int JitLink::complete(void* handle) {
  if (complete_ == nullptr) return kInternalError;
  const int r = complete_(handle);
  std::lock_guard lock(mutex_);
  if (const auto found = links_.find(handle); found != links_.end())
    found->second.complete = r == 0;
  return r;
}

// nvJitLink gives machine code or PTX, so what is wanted as PTX is linked once more.
std::string JitLink::linked_again_as_ptx(const Link& link) const {
  if (ptx_size_ == nullptr || ptx_ == nullptr || destroy_ == nullptr) return "";
  std::vector<const char*> options;
  for (const std::string& option : link.options) options.push_back(option.c_str());
  options.push_back("-ptx");
  void* again = nullptr;
  if (create_(&again, static_cast<uint32_t>(options.size()), options.data()) != 0) return "";
  int r = 0;
  for (const Input& input : link.inputs)
    if (r == 0)
      r = add_data_(again, input.type, input.bytes.data(), input.bytes.size(), input.name.c_str());
  if (r == 0) r = complete_(again);
  size_t bytes = 0;
  if (r == 0) r = ptx_size_(again, &bytes);
  std::string ptx(bytes, '\0');
  if (r == 0 && bytes != 0) r = ptx_(again, ptx.data());
  destroy_(&again);
  if (r == 0) return ptx;
  guest::log_line("nvJitLink: no PTX of a link with intermediate code (%d)", r);
  return "";
}

std::string JitLink::ptx_of(const Link& link) const {
  if (!link.whole || link.inputs.empty()) return "";
  const uint32_t newest = architecture_of(link.options);
  std::vector<std::string> texts;
  for (const Input& input : link.inputs) {
    std::string text;
    if (input.type != kLtoIr) text = ptx_of_input(input.bytes, newest);
    if (text.empty()) {
      const bool intermediate =
          input.type == kLtoIr || (input.type == kAny && has_option(link.options, "-lto"));
      if (intermediate) return linked_again_as_ptx(link);
      guest::log_line("nvJitLink: input %s of kind %d has no PTX", input.name.c_str(), input.type);
      return "";
    }
    texts.push_back(std::move(text));
  }
  if (texts.size() == 1) return std::move(texts.front());
  auto joined = ptx::join_ptx(texts);
  if (joined) return *std::move(joined);
  guest::log_line("nvJitLink: %zu texts: %s", texts.size(), joined.error().message.c_str());
  return "";
}

std::string JitLink::attach(void* handle, const Link& link, size_t bytes) const {
  const std::string ptx = ptx_of(link);
  if (ptx.empty() || cubin_ == nullptr) return "";
  std::string code(bytes, '\0');
  if (cubin_(handle, code.data()) != 0) return "";
  return with_ptx(code, ptx, "nvJitLink");
}

int JitLink::cubin_size(void* handle, size_t* bytes) {
  if (cubin_size_ == nullptr) return kInternalError;
  const int r = cubin_size_(handle, bytes);
  if (r != 0 || bytes == nullptr || *bytes == 0) return r;
  Link* link = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = links_.find(handle); found != links_.end()) link = &found->second;
  }
  // One thread has the link, and others' do not move it.
  if (link == nullptr || !link->complete) return r;
  if (!link->attached) {
    link->carried = attach(handle, *link, *bytes);
    link->attached = true;
    link->inputs.clear();
  }
  if (!link->carried.empty()) *bytes = link->carried.size();
  return r;
}

int JitLink::cubin(void* handle, void* to) {
  if (cubin_ == nullptr) return kInternalError;
  if (to != nullptr) {
    std::lock_guard lock(mutex_);
    const auto found = links_.find(handle);
    if (found != links_.end() && !found->second.carried.empty()) {
      std::memcpy(to, found->second.carried.data(), found->second.carried.size());
      return 0;
    }
  }
  return cubin_(handle, to);
}

int JitLink::destroy(void** handle) {
  if (destroy_ == nullptr) return kInternalError;
  if (handle != nullptr) {
    std::lock_guard lock(mutex_);
    links_.erase(*handle);
  }
  return destroy_(handle);
}

}  // namespace sluice::jit
