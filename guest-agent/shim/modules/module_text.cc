// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/modules/module_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unordered_set>

#include "abi/wire.h"
#include "guest-agent/shim/modules/device_runtime.h"
#include "guest-agent/shim/modules/managed_variables.h"
#include "guest-agent/shim/modules/texture_references.h"
#include "guest-agent/shim/session/log.h"
#include "kernels/cubin/cubin.h"
#include "kernels/passes/analysis/author_points.h"
#include "kernels/passes/rewrite.h"
#include "kernels/ptx/module.h"
#include "mediator/base/fd.h"
#include "mediator/base/find_text.h"

namespace sluice::guest {
namespace {

// Module texts beyond this are refused rather than mapped: a file of a gigabyte is no PTX.
constexpr size_t kMostTextBytes = 256 << 20;

// SLUICE_REWRITE, as it was at the first load.
bool rewrite_is(const char* word) {
  static const std::string given = [] {
    const char* env = ::getenv("SLUICE_REWRITE");
    return std::string(env != nullptr ? env : "");
  }();
  return given == word;
}

std::vector<std::string> entries_of(const std::string& ptx) {
  std::vector<std::string> names;
  if (const auto module = ptx::Module::parse_declarations(ptx))
    for (const ptx::Function& f : module->functions())
      if (f.is_entry && f.has_body) names.emplace_back(f.name);
  return names;
}

RequiredBlocks required_blocks_of(const std::string& ptx) {
  RequiredBlocks blocks;
  if (find_text(ptx, ".reqntid") == std::string::npos) return blocks;
  const auto module = ptx::Module::parse_declarations(ptx);
  if (!module) return blocks;
  for (const ptx::Function& f : module->functions()) {
    const auto counts_clusters = [](const auto& d) { return d.name == ".blocksareclusters"; };
    if (f.is_entry && f.reqntid[0] != 0 &&
        std::none_of(f.directives.begin(), f.directives.end(), counts_clusters))
      blocks.emplace(f.name, f.reqntid);
  }
  return blocks;
}

// A cubin has to be whole before any of it is copied. `bytes`: of a file; 0: what it says itself.
CUresult machine_code_of(const void* image, size_t bytes, std::string_view* code,
                         std::string* log) {
  if (bytes == 0) {
    const auto said = cubin::bytes_of(image);
    if (!said) {
      *log = said.error().message;
      return static_cast<CUresult>(said.error().code);
    }
    bytes = *said;
  }
  *code = {static_cast<const char*>(image), bytes};
  const auto read = cubin::read(*code);
  if (read) return CUDA_SUCCESS;
  *log = read.error().message;
  return static_cast<CUresult>(read.error().code);
}

// PTX first: only kernels that come as PTX can be evicted.
CUresult code_of_fat_binary(const void* image, size_t bytes, uint32_t newest, std::string* kept,
                            std::string_view* code, std::string* log) {
  const uint64_t length = bytes != 0 ? bytes : ptx::kUnknownBytes;
  auto found = ptx::ptx_of_fat_binary(image, newest, length);
  if (!found && found.error().code == CUDA_ERROR_NO_BINARY_FOR_GPU) {
    if (auto machine = ptx::cubin_of_fat_binary(image, newest, length)) {
      *kept = *std::move(machine);
      return machine_code_of(kept->data(), kept->size(), code, log);
    }
    *log = found.error().message + "; " + std::string(cubin::kBuildWithPtx);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (!found) {
    *log = found.error().message;
    return static_cast<CUresult>(found.error().code);
  }
  *kept = *std::move(found);
  *code = *kept;
  return CUDA_SUCCESS;
}

// 0: a text. Byte by byte up to a NUL: it may be shorter than four bytes.
uint32_t magic_of(const void* image) {
  const auto* bytes = static_cast<const unsigned char*>(image);
  uint32_t magic = 0;
  for (size_t n = 0; n < sizeof magic; ++n)
    if (bytes[n] == 0) return 0;
  std::memcpy(&magic, image, sizeof magic);
  return magic;
}

}  // namespace

// The image of a cuModuleLoadData: PTX is text that ends with NUL.
CUresult code_of_image(const void* image, size_t bytes_known, uint32_t newest, std::string* kept,
                       std::string_view* code, std::string* log) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t magic = magic_of(image);
  if (cubin::is_cubin(magic)) return machine_code_of(image, bytes_known, code, log);
  if (ptx::is_fat_binary(magic))
    return code_of_fat_binary(image, bytes_known, newest, kept, code, log);
  const size_t length = strnlen(static_cast<const char*>(image), kMostTextBytes);
  if (length == 0 || length == kMostTextBytes) return CUDA_ERROR_INVALID_IMAGE;
  *code = {static_cast<const char*>(image), length};
  return CUDA_SUCCESS;
}

std::string ptx_in_machine_code(std::string_view machine) {
  const auto read = cubin::read(machine);
  if (!read || read->ptx.empty()) return "";
  std::string ptx(read->ptx.substr(0, read->ptx.find('\0')));
  const std::vector<std::string> entries = entries_of(ptx);
  const std::unordered_set<std::string_view> known(entries.begin(), entries.end());
  for (const cubin::Kernel& kernel : read->kernels) {
    if (known.contains(kernel.name)) continue;
    log_line("the PTX beside machine code is not used: it has no kernel %s",
             std::string(kernel.name).c_str());
    return "";
  }
  return ptx;
}

MachineCode machine_code_in(const void* image, size_t bytes, uint32_t newest) {
  auto code = ptx::cubin_of_fat_binary(image, newest, bytes != 0 ? bytes : ptx::kUnknownBytes);
  return code ? read_machine_code(*std::move(code)) : MachineCode{};
}

MachineCode read_machine_code(std::string code) {
  MachineCode machine;
  const auto read = cubin::read(code);
  if (!read) return machine;
  for (const cubin::Kernel& kernel : read->kernels) {
    machine.entries.emplace_back(kernel.name);
    if (kernel.block[0] != 0 && !kernel.blocks_are_clusters)
      machine.required_blocks.emplace(kernel.name, kernel.block);
  }
  machine.stands_alone =
      !read->managed_or_references &&
      std::none_of(read->undefined.begin(), read->undefined.end(), is_of_device_runtime);
  machine.code = std::move(code);
  return machine;
}

bool machine_code_will_do(const void* image, size_t bytes, uint32_t newest, ModuleCode* code) {
  if (image == nullptr || !ptx::is_fat_binary(magic_of(image))) return false;
  MachineCode machine = machine_code_in(image, bytes, newest);
  if (!machine.stands_alone) return false;
  code->packed =
      ptx::packed_ptx_of_fat_binary(image, newest, bytes != 0 ? bytes : ptx::kUnknownBytes);
  if (code->packed.empty()) return false;
  code->machine = std::move(machine);
  return true;
}

CUresult read_image_file(const char* path, std::string* image) {
  Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  struct stat st;
  if (!fd || ::fstat(fd.get(), &st) != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  if (!S_ISREG(st.st_mode) || st.st_size <= 0 || static_cast<size_t>(st.st_size) >= kMostTextBytes)
    return CUDA_ERROR_INVALID_IMAGE;
  image->resize(static_cast<size_t>(st.st_size));
  size_t at = 0;
  while (at < image->size()) {
    const ssize_t n = ::read(fd.get(), image->data() + at, image->size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return CUDA_ERROR_FILE_NOT_FOUND;
    at += static_cast<size_t>(n);
  }
  return CUDA_SUCCESS;
}

KernelFlags flags_of(const passes::KernelReport& kernel) {
  KernelFlags of;
  of.flags = SLUICE_FUNCTION_EVICTABLE;
  if (kernel.slot == passes::SlotPlace::kDynamicEnd) of.flags |= SLUICE_FUNCTION_SLOT_DYNAMIC;
  if (kernel.in_order) of.flags |= SLUICE_FUNCTION_IN_ORDER;
  if (kernel.one_row) of.flags |= SLUICE_FUNCTION_ONE_ROW;
  if (kernel.once) of.flags |= SLUICE_FUNCTION_ONCE;
  if (kernel.resumable) of.flags |= SLUICE_FUNCTION_RESUMABLE;
  of.state_bytes = kernel.state_bytes;
  return of;
}

namespace {

// Without PTX kernels run to their ends.
void take_machine_code(MachineCode machine, Text* text) {
  text->entries = std::move(machine.entries);
  text->required_blocks = std::move(machine.required_blocks);
  for (const std::string& name : text->entries)
    log_line(
        "kernel %s: opaque: machine code, which runs to its end; %s; or, if the program "
        "compiles it, run the program by sluice-run",
        name.c_str(), std::string(cubin::kBuildWithPtx).c_str());
}

// The clones of all its kernels, now.
void rewrite_all(Text* text) {
  auto rewritten = passes::rewrite_module(text->original);
  if (!rewritten) {
    log_line("module not rewritten: %s", rewritten.error().message.c_str());
    text->entries = entries_of(text->original);
    return;
  }
  bool any = false;
  for (const passes::KernelReport& kernel : rewritten->kernels) {
    text->entries.push_back(kernel.name);
    log_line("kernel %s: %s%s%s", kernel.name.c_str(), passes::tier_name(kernel.tier),
             kernel.reason.empty() ? "" : ": ", kernel.reason.c_str());
    if (!kernel.evictable) continue;
    any = true;
    text->kernels[kernel.name] = flags_of(kernel);
  }
  if (any) text->rewritten = std::move(rewritten->text);
}

}  // namespace

std::shared_ptr<const Text> make_text(ModuleCode code) {
  auto text = std::make_shared<Text>();
  text->original = std::move(code.text);
  if (cubin::is_cubin(std::string_view(text->original))) {
    take_machine_code(read_machine_code(text->original), text.get());
    return text;
  }
  if (text->original.empty()) {
    text->packed = std::move(code.packed);
    text->entries = std::move(code.machine.entries);
    text->required_blocks = std::move(code.machine.required_blocks);
    text->machine = std::move(code.machine.code);
    return text;
  }
  const bool sets_conditionals = add_device_runtime(&text->original);
  text->managed = lift_managed_variables(&text->original);
  text->references = lift_references(&text->original);
  text->required_blocks = required_blocks_of(text->original);
  // Machine code has these in the driver's own way, which does not reach the guest.
  if (sets_conditionals || !text->references.empty() || !text->managed.empty()) code.machine = {};
  if (rewrite_is("off") || code.originals) {
    // Parsing PTX takes as long as everything else that a load does, so the names come from the
    // machine code beside it, where there is some: the same, in its order.
    text->entries =
        code.machine.code.empty() ? entries_of(text->original) : std::move(code.machine.entries);
    text->machine = std::move(code.machine.code);
    return text;
  }
  if (code.lazy) {
    auto separable = ptx::SeparableModule::parse(text->original);
    if (separable) {
      text->entries = separable->entries();
      text->machine = std::move(code.machine.code);
      text->at_once = code.originals_at_once && !rewrite_is("all") &&
                      !passes::may_have_author_points(text->original);
      text->separable = std::make_shared<ptx::SeparableModule>(*std::move(separable));
      return text;
    }
    log_line("module: its clones are made as it is loaded: %s", separable.error().message.c_str());
  }
  text->spare = std::move(code.machine.code);
  rewrite_all(text.get());
  return text;
}

// ---- JIT options ----

JitLogs::JitLogs(unsigned count, CUjit_option* options, void** values) {
  for (unsigned i = 0; options != nullptr && values != nullptr && i < count; ++i) {
    const auto number = static_cast<unsigned>(reinterpret_cast<uintptr_t>(values[i]));
    switch (options[i]) {
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.to = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.bytes = number;
        error_.size_slot = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.to = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.bytes = number;
        info_.size_slot = &values[i];
        break;
      default:
        break;  // hints for a compiler whose output is the same without them
    }
  }
  write(info_, "");
  write(error_, "");
}

void JitLogs::write(const Buffer& buffer, std::string_view text) {
  size_t n = 0;
  if (buffer.to != nullptr && buffer.bytes > 0) {
    n = std::min(text.size(), buffer.bytes - 1);
    std::memcpy(buffer.to, text.data(), n);
    buffer.to[n] = '\0';
  }
  if (buffer.size_slot != nullptr)
    *buffer.size_slot = reinterpret_cast<void*>(static_cast<uintptr_t>(n));
}

}  // namespace sluice::guest
