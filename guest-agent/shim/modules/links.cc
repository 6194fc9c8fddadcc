// SPDX-License-Identifier: Apache-2.0
// The driver API's linker, cuLink*: PTX is joined here, in the guest, and what comes out is PTX
// again, which the module calls take and rewrite.
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "guest-agent/shim/modules/module_registry.h"
#include "guest-agent/shim/state/api.h"
#include "kernels/cubin/cubin.h"
#include "kernels/ptx/images/link.h"

using namespace sluice::guest;

namespace {

// A program's CUlinkState: its address, which is looked up and never followed.
struct Link {
  JitLogs logs;  // where the program wanted errors when it made the link
  std::vector<std::string> texts;
  size_t compiled = 0;  // of the texts
  std::string joined;   // the program's until it destroys the link
};

struct Links {
  std::mutex mutex;  // held over calls to the worker, as the modules' is, and taken before it
  std::vector<std::unique_ptr<Link>> all;
};
Links& links() {
  static auto* it = new Links;  // leaked: a program may call us from its last destructors
  return *it;
}

// With links().mutex held.
Link* find(CUlinkState state) {
  for (const auto& link : links().all)
    if (reinterpret_cast<CUlinkState>(link.get()) == state) return link.get();
  return nullptr;
}

CUresult refuse_machine_code(const Link& link) {
  link.logs.fail("machine code cannot be linked, only PTX; " +
                 std::string(sluice::cubin::kBuildWithPtx));
  if (!link.logs.has_room())
    (void)not_supported("cuLinkAddData", "machine code (cubin, object, library)");
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

// Compiles a text for its errors, which go to the link's log.
CUresult compile(const Entered& e, const Link& link, const std::string& ptx) {
  Text text;
  text.original = ptx;
  uint64_t module = 0;
  std::lock_guard modules(all_modules().mutex);
  CUresult r = load_module(e, text, 0, nullptr, &link.logs, &module);
  if (r != CUDA_SUCCESS) return r;
  r = SLUICE_CALL(cuModuleUnload, *e.link, e.context, reinterpret_cast<CUmodule>(module));
  forget_module(module);
  return r;
}

CUresult refuse(const Link& link, const sluice::Error& error) {
  link.logs.fail(error.message);
  log_line("link refused: %s", error.message.c_str());
  return static_cast<CUresult>(error.code);
}

// PTX that is wrong is refused when it is added. A part that needs others compiles with them only,
// in cuLinkComplete; here it is parsed.
CUresult add_text(const Entered& e, Link& link, std::string ptx) {
  const auto alone = sluice::ptx::stands_alone(ptx);
  if (!alone) return refuse(link, alone.error());
  if (*alone) {
    if (const CUresult r = compile(e, link, ptx); r != CUDA_SUCCESS) return r;
    ++link.compiled;
  }
  link.texts.push_back(std::move(ptx));
  return CUDA_SUCCESS;
}

// `bytes` 0: unknown, as for images in memory.
CUresult add(const Entered& e, CUlinkState state, CUjitInputType type, const void* data,
             size_t bytes, bool file) {
  std::lock_guard lock(links().mutex);
  Link* link = find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::string ptx;
  switch (type) {
    case CU_JIT_INPUT_PTX: {
      const auto* text = static_cast<const char*>(data);
      ptx.assign(text, ::strnlen(text, bytes));
      break;
    }
    case CU_JIT_INPUT_FATBINARY:
    case CU_JIT_INPUT_CUBIN: {  // which may carry its PTX
      const std::string_view given(static_cast<const char*>(data), bytes);
      if (type == CU_JIT_INPUT_CUBIN && !sluice::cubin::is_cubin(given))
        return refuse_machine_code(*link);
      ModuleCode code;
      if (const CUresult r = find_code(e, data, file ? bytes : 0, link->logs, &code);
          r != CUDA_SUCCESS)
        return r;
      if (!code.packed.empty()) {
        auto unpacked = code.packed.unpack();
        if (!unpacked) return static_cast<CUresult>(unpacked.error().code);
        code.text = *std::move(unpacked);
      }
      ptx = std::move(code.text);
      if (sluice::cubin::is_cubin(std::string_view(ptx))) return refuse_machine_code(*link);
      break;
    }
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
      return refuse_machine_code(*link);
    case CU_JIT_INPUT_NVVM:
      link->logs.fail("intermediate code of -dlto cannot be linked, only PTX");
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return add_text(e, *link, std::move(ptx));
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                         CUlinkState* state) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (state == nullptr || (count != 0 && (options == nullptr || values == nullptr)))
    return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<Link>(Link{JitLogs(count, options, values), {}, 0, {}});
  *state = reinterpret_cast<CUlinkState>(made.get());
  std::lock_guard lock(links().mutex);
  links().all.push_back(std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t bytes,
                          const char*, unsigned int, CUjit_option*, void**) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return add(e, state, type, data, bytes, false);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int,
                          CUjit_option*, void**) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string image;
  if (const CUresult r = read_image_file(path, &image); r != CUDA_SUCCESS) return r;
  return add(e, state, type, image.c_str(), image.size(), true);
}

// What does not compile together is reported here, as the program expects. A part that was alone
// and compiled when it was added is not compiled again.
CUresult cuLinkComplete(CUlinkState state, void** image, size_t* bytes) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(links().mutex);
  Link* link = find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto joined = sluice::ptx::link_ptx(link->texts);
  if (!joined) return refuse(*link, joined.error());
  if (link->texts.size() != 1 || link->compiled != 1) {
    if (const CUresult r = compile(e, *link, *joined); r != CUDA_SUCCESS) return r;
  }
  link->joined = *std::move(joined);
  *image = link->joined.data();
  if (bytes != nullptr) *bytes = link->joined.size() + 1;
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(links().mutex);
  for (auto it = links().all.begin(); it != links().all.end(); ++it) {
    if (reinterpret_cast<CUlinkState>(it->get()) != state) continue;
    links().all.erase(it);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_HANDLE;
}
