// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/plan/register_clamp.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <unordered_set>

#include "abi/preempt.h"
#include "mediator/base/find_text.h"
#include "mediator/worker/ptx_chars.h"

namespace sluice::worker {

namespace {

constexpr uint32_t kWarpThreads = 32;
constexpr uint32_t kRegisterUnit = 8;  // for each thread of a warp
constexpr uint32_t kPartitions = 4;    // of an SM
constexpr uint32_t kMostRegisters = 255;
// A module with more clones that lose a place than this keeps the rest as they are: each costs its
// compilation again.
constexpr size_t kMaxClamps = 256;

// Walks PTX text token by token as far as finding functions needs it: comments and strings are
// passed over.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}
  bool end() const { return at_ >= text_.size(); }
  size_t at() const { return at_; }
  char peek() const { return text_[at_]; }
  // A name, a directive (".entry"), or one other character. Empty: the end.
  std::string_view next() {
    skip_blank();
    if (end()) return {};
    const size_t from = at_++;
    const char c = text_[from];
    if (c == '"') {
      while (!end() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
      at_ = std::min(at_ + 1, text_.size());
    } else if (c == '.' || is_ptx_word(c)) {
      while (!end() && is_ptx_word(text_[at_])) ++at_;
    }
    return text_.substr(from, at_ - from);
  }
  // Behind the bracket that closes the one just read. False: there is none. Bodies are most of a
  // text, so only what matters is looked at.
  bool skip_to_close(char open, char close) {
    for (size_t depth = 1; depth != 0;) {
      while (!end() && text_[at_] != open && text_[at_] != close && text_[at_] != '"' &&
             text_[at_] != '/')
        ++at_;
      const std::string_view token = next();
      if (token.empty()) return false;
      if (token[0] == open) ++depth;
      if (token[0] == close) --depth;
    }
    return true;
  }

 private:
  void skip_blank() {
    while (!end()) {
      if (is_ptx_blank(text_[at_])) {
        ++at_;
      } else if (is_ptx_pair(text_, at_, '/', '/')) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (is_ptx_pair(text_, at_, '/', '*')) {
        const size_t close = text_.find("*/", at_ + 2);
        at_ = close == std::string_view::npos ? text_.size() : close + 2;
      } else {
        return;
      }
    }
  }
  std::string_view text_;
  size_t at_ = 0;
};

int attribute(const gpu::DriverApi& api, CUfunction f, CUfunction_attribute which) {
  int value = 0;
  return api.cuFuncGetAttribute(&value, which, f) == CUDA_SUCCESS ? value : -1;
}

uint32_t blocks_per_sm(const gpu::DriverApi& api, CUfunction f, uint32_t threads, uint32_t shared) {
  int blocks = 0;
  const CUresult r = api.cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, f, static_cast<int>(threads), shared);
  return r == CUDA_SUCCESS ? static_cast<uint32_t>(std::max(blocks, 0)) : 0;
}

// Whether fewer blocks of the clone than of the original fit on an SM, whatever their size. Dynamic
// shared memory, which is not known yet, only ever lowers both to the same.
bool loses_place(const gpu::DriverApi& api, CUfunction original, CUfunction clone) {
  const int most = attribute(api, original, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  for (int threads = kWarpThreads; threads <= most; threads += kWarpThreads) {
    const auto n = static_cast<uint32_t>(threads);
    if (blocks_per_sm(api, clone, n, 0) < blocks_per_sm(api, original, n, 0)) return true;
  }
  return false;
}

// Registers that the clone may use; 0: it is well as it is. `original`: null where `module` has it.
uint32_t clamp_of(const gpu::DriverApi& api, CUmodule module, const CloneText& text,
                  CUfunction original, const RegisterFile& file) {
  CUfunction clone = nullptr;
  if ((original == nullptr &&
       api.cuModuleGetFunction(&original, module, std::string(text.original).c_str()) !=
           CUDA_SUCCESS) ||
      api.cuModuleGetFunction(&clone, module, std::string(text.name).c_str()) != CUDA_SUCCESS) {
    return 0;
  }
  const int has = attribute(api, original, CU_FUNC_ATTRIBUTE_NUM_REGS);
  const int wants = attribute(api, clone, CU_FUNC_ATTRIBUTE_NUM_REGS);
  if (has <= 0 || wants <= has) return 0;
  const uint32_t top = bucket_top(static_cast<uint32_t>(has), file);
  if (static_cast<uint32_t>(wants) <= top || !loses_place(api, original, clone)) return 0;
  return top;
}

// What a clamped form may keep in local memory beyond the clone, for each thread. What is spilled
// there is mostly read once for a task and lies in the L1 cache; a block less on an SM costs more
// (docs/notes/2026-11-22-benchmarks.md).
constexpr int kMostSpilledBytes = 256;

// A clamped form that is worth having. `first`, `second`: the clone's module, its own.
bool is_sound(const gpu::DriverApi& api, CUmodule first, CUmodule second, const Clamp& clamp) {
  const std::string name(clamp.clone.name);
  CUfunction clone = nullptr, clamped = nullptr;
  if (api.cuModuleGetFunction(&clone, first, name.c_str()) != CUDA_SUCCESS ||
      api.cuModuleGetFunction(&clamped, second, (name + kClampedSuffix).c_str()) != CUDA_SUCCESS) {
    return false;
  }
  const int registers = attribute(api, clamped, CU_FUNC_ATTRIBUTE_NUM_REGS);
  return registers > 0 && static_cast<uint32_t>(registers) <= clamp.registers &&
         attribute(api, clamped, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) <=
             attribute(api, clone, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) + kMostSpilledBytes;
}

// Every kernel with a body, in the order of the text. `original` is empty where it is no clone, or
// one that says something of registers itself.
std::vector<CloneText> find_kernels(std::string_view ptx) {
  constexpr std::string_view kSuffixes[] = {SLUICE_CLONE_SUFFIX, SLUICE_ONE_TASK_SUFFIX};
  std::vector<CloneText> found;
  size_t linkage = std::string_view::npos;
  Walker w(ptx);
  for (std::string_view token = w.next(); !token.empty(); token = w.next()) {
    // Bodies and initial values of variables.
    if (token == "{" && !w.skip_to_close('{', '}')) break;
    if (token == ".visible" || token == ".weak") linkage = w.at() - token.size();
    if (token == ";" || token == "{") linkage = std::string_view::npos;
    if (token != ".entry") continue;
    CloneText c;
    c.begin = w.at() - token.size();
    c.linkage = std::min(linkage, c.begin);
    linkage = std::string_view::npos;
    const std::string_view name = w.next();
    c.name_end = w.at();
    c.name_begin = c.name_end - name.size();
    c.directives = c.name_end;
    c.name = name;
    for (std::string_view suffix : kSuffixes)
      if (name.ends_with(suffix)) c.original = name.substr(0, name.size() - suffix.size());
    bool clampable = !c.original.empty() && is_ptx_word(name[0]);
    std::string_view t = w.next();
    if (t == "(") {
      if (!w.skip_to_close('(', ')')) break;
      c.directives = w.at();
      t = w.next();
    }
    for (; !t.empty() && t != "{" && t != ";"; t = w.next()) clampable &= t != ".maxnreg";
    if (t != "{") continue;  // a declaration
    if (!w.skip_to_close('{', '}')) break;
    c.end = w.at();
    if (!clampable) c.original = {};
    found.push_back(c);
  }
  return found;
}

void append_clamped(std::string_view ptx, std::span<const Clamp> clamps, std::string* text) {
  for (const Clamp& c : clamps) {
    const CloneText& t = c.clone;
    text->append("\n.visible ").append(ptx.substr(t.begin, t.name_begin - t.begin));
    text->append(t.name).append(kClampedSuffix);
    text->append(ptx.substr(t.name_end, t.directives - t.name_end));
    text->append("\n.maxnreg ").append(std::to_string(c.registers)).append("\n");
    text->append(ptx.substr(t.directives, t.end - t.directives)).append("\n");
  }
}

}  // namespace

std::shared_ptr<const ClonesText> ClonesText::of(std::shared_ptr<const std::string> text) {
  auto found = std::make_shared<ClonesText>();
  found->clones = find_kernels(*text);
  found->text = std::move(text);
  std::unordered_set<std::string_view> names;
  for (const CloneText& kernel : found->clones) names.insert(kernel.name);
  std::erase_if(found->clones, [](const CloneText& kernel) { return kernel.original.empty(); });
  for (const CloneText& clone : found->clones)
    if (names.contains(clone.original)) return nullptr;
  return found->clones.empty() ? nullptr : found;
}

bool may_have_clones(std::string_view ptx) {
  constexpr std::string_view kSuffix = SLUICE_CLONE_SUFFIX;
  static_assert(std::string_view(SLUICE_ONE_TASK_SUFFIX).starts_with(kSuffix));
  return ::memmem(ptx.data(), ptx.size(), kSuffix.data(), kSuffix.size()) != nullptr;
}

std::vector<CloneText> find_clones(std::string_view ptx) {
  if (!may_have_clones(ptx)) return {};
  std::vector<CloneText> found = find_kernels(ptx);
  std::erase_if(found, [](const CloneText& kernel) { return kernel.original.empty(); });
  return found;
}

std::string add_clamped(std::string_view ptx, std::span<const Clamp> clamps) {
  std::string text(ptx);
  append_clamped(ptx, clamps, &text);
  return text;
}

std::string clamped_alone(std::string_view ptx, std::span<const Clamp> clamps) {
  if (find_text(ptx, ".section") != std::string_view::npos) return "";
  std::string text;
  size_t from = 0;
  for (const CloneText& kernel : find_kernels(ptx)) {
    text.append(ptx.substr(from, kernel.linkage - from));
    from = kernel.end;
  }
  text.append(ptx.substr(from));
  append_clamped(ptx, clamps, &text);
  return text;
}

uint32_t bucket_top(uint32_t registers, const RegisterFile& file) {
  const auto warps = [&](uint32_t r) {
    const uint32_t of_one = (r + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit * kWarpThreads;
    return std::min(file.registers / kPartitions / of_one * kPartitions,
                    file.threads / kWarpThreads);
  };
  uint32_t top = (std::max(registers, 1u) + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
  while (top < kMostRegisters && warps(top + kRegisterUnit) == warps(top)) top += kRegisterUnit;
  return std::min(top, kMostRegisters);
}

std::vector<Clamp> clamps_of(const gpu::DriverApi& api, CUdevice device,
                             std::span<const CloneText> clones, CUmodule module,
                             CUfunction original) {
  RegisterFile file;
  int registers = 0, threads = 0;
  if (api.cuDeviceGetAttribute(&registers, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
                               device) == CUDA_SUCCESS &&
      api.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                               device) == CUDA_SUCCESS &&
      registers > 0 && threads > 0) {
    file = {static_cast<uint32_t>(registers), static_cast<uint32_t>(threads)};
  }
  std::vector<Clamp> clamps;
  for (const CloneText& clone : clones) {
    if (clamps.size() == kMaxClamps) break;
    if (const uint32_t n = clamp_of(api, module, clone, original, file); n != 0)
      clamps.push_back({clone, n});
  }
  return clamps;
}

// If anything is wrong with the second, the first is as good as it was.
void load_clamped(const gpu::DriverApi& api, const std::string& ptx, std::span<const Clamp> clamps,
                  FittedModule* out, Second second) {
  std::string text = second == Second::kAlone ? clamped_alone(ptx, clamps) : "";
  const bool alone = !text.empty();
  if (!alone) text = add_clamped(ptx, clamps);
  if (api.cuModuleLoadDataEx(&out->other, text.c_str(), 0, nullptr, nullptr) != CUDA_SUCCESS) {
    out->other = nullptr;
    return;
  }
  for (const Clamp& clamp : clamps) {
    if (is_sound(api, out->cu, out->other, clamp)) out->clamped.emplace_back(clamp.clone.name);
  }
  std::sort(out->clamped.begin(), out->clamped.end());
  out->clamped_in = out->other;
  if (!out->clamped.empty() && !alone) std::swap(out->cu, out->other);
}

CUresult load_fitted(const gpu::DriverApi& api, CUdevice device, const std::string& ptx,
                     std::span<char> log, FittedModule* out, Second second) {
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  out->clamped.clear();
  out->other = out->clamped_in = nullptr;
  CUresult r = api.cuModuleLoadDataEx(&out->cu, ptx.c_str(), log.empty() ? 0 : 2, options, values);
  if (r != CUDA_SUCCESS || second == Second::kNone) return r;
  const std::vector<Clamp> clamps = clamps_of(api, device, find_clones(ptx), out->cu, nullptr);
  if (!clamps.empty()) load_clamped(api, ptx, clamps, out, second);
  return CUDA_SUCCESS;
}

CUfunction clamped_form(const gpu::DriverApi& api, CUmodule clamped_in,
                        std::span<const std::string> clamped, std::string_view clone) {
  if (!std::binary_search(clamped.begin(), clamped.end(), clone)) return nullptr;
  CUfunction f = nullptr;
  const std::string full = std::string(clone) + kClampedSuffix;
  return api.cuModuleGetFunction(&f, clamped_in, full.c_str()) == CUDA_SUCCESS ? f : nullptr;
}

ChosenForm choose_form(const gpu::DriverApi& api, const CloneForms& forms, uint32_t threads,
                       uint32_t dynamic_shared, uint32_t clone_dynamic_shared) {
  const auto room = [&](CUfunction f) -> uint32_t {
    const int allowed = attribute(api, f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    if (clone_dynamic_shared > static_cast<uint32_t>(std::max(allowed, 0)) &&
        (clone_dynamic_shared > INT_MAX ||
         api.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                static_cast<int>(clone_dynamic_shared)) != CUDA_SUCCESS)) {
      return 0;
    }
    return blocks_per_sm(api, f, threads, clone_dynamic_shared);
  };
  const uint32_t plain = room(forms.clone);
  if (forms.clamped && plain < blocks_per_sm(api, forms.original, threads, dynamic_shared)) {
    const uint32_t clamped = room(forms.clamped);
    if (clamped > plain) return {forms.clamped, clamped};
  }
  return {forms.clone, plain};
}

}  // namespace sluice::worker
