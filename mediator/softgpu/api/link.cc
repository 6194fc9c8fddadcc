// SPDX-License-Identifier: Apache-2.0
// The driver API's linker: cuLink*. What it makes is PTX again, which the module calls take.
#include <fstream>
#include <iterator>

#include "kernels/ptx/images/fat_binary.h"
#include "kernels/ptx/images/link.h"
#include "mediator/softgpu/api/jit_log.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

constexpr uint32_t kComputeCapability = 90;
// More than any program links: what is larger is no PTX.
constexpr size_t kMostInputBytes = size_t{256} << 20;

struct Link {
  std::mutex mutex;
  std::vector<std::string> texts;  // under mutex
  std::string joined;              // under mutex; the program's until it destroys the link
  std::vector<CUjit_option> options;
  std::vector<void*> values;

  // The error goes where the program asked for it when it made the link.
  CUresult refuse(const Error& error) {
    write_jit_log(static_cast<unsigned>(options.size()), options.data(), values.data(),
                  CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error.message);
    return static_cast<CUresult>(error.code);
  }
  // PTX that is wrong is refused here; what a part needs of others, by cuLinkComplete.
  CUresult add(State& s, std::string text) {
    const auto alone = ptx::stands_alone(text);
    Error error;
    if (!alone) {
      error = alone.error();
    } else if (*alone) {
      if (auto code = load_code(text.c_str()); !code) error = code.error();
    }
    if (error.code != 0) {
      s.log("link refused: " + error.message);
      return refuse(error);
    }
    texts.push_back(std::move(text));
    return CUDA_SUCCESS;
  }
};

HandleTable<Link, CUlinkState, HandleType::kLink>& links() {
  static auto* table = new HandleTable<Link, CUlinkState, HandleType::kLink>;
  return *table;  // never taken down: threads may outlive main
}

template <class F>
CUresult with_link(CUlinkState handle, F f) {
  return with_context([&](State& s, Context&) -> CUresult {
    const std::shared_ptr<Link> link = links().find(handle);
    if (!link) return CUDA_ERROR_INVALID_HANDLE;
    std::lock_guard lock(link->mutex);
    return f(s, *link);
  });
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                         CUlinkState* out) {
  return with_context([&](State&, Context&) {
    if (out == nullptr || (count != 0 && (options == nullptr || values == nullptr)))
      return CUDA_ERROR_INVALID_VALUE;
    auto link = std::make_shared<Link>();
    link->options.assign(options, options + count);
    link->values.assign(values, values + count);
    *out = links().add(std::move(link));
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t bytes,
                          const char*, unsigned int, CUjit_option*, void**) {
  return with_link(handle, [&](State& s, Link& link) -> CUresult {
    if (data == nullptr || bytes == 0 || bytes > kMostInputBytes) return CUDA_ERROR_INVALID_VALUE;
    switch (type) {
      case CU_JIT_INPUT_PTX: {
        const auto* text = static_cast<const char*>(data);
        return link.add(s, std::string(text, ::strnlen(text, bytes)));
      }
      case CU_JIT_INPUT_FATBINARY: {
        auto text = ptx::ptx_of_fat_binary(data, kComputeCapability);
        if (!text) {
          s.log("link refused: " + text.error().message);
          return link.refuse(text.error());
        }
        return link.add(s, *std::move(text));
      }
      case CU_JIT_INPUT_CUBIN:
        return link.refuse(Error{CUDA_ERROR_NO_BINARY_FOR_GPU,
                                 "machine code (cubin) cannot be linked by the software GPU"});
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  });
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* name,
                          unsigned int count, CUjit_option* options, void** values) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(name, std::ios::binary);
  std::string contents((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (contents.empty()) return CUDA_ERROR_FILE_NOT_FOUND;
  return cuLinkAddData_v2(handle, type, contents.data(), contents.size() + 1, name, count, options,
                          values);
}

CUresult cuLinkComplete(CUlinkState handle, void** image, size_t* bytes) {
  return with_link(handle, [&](State& s, Link& link) -> CUresult {
    if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto joined = ptx::link_ptx(link.texts);
    if (!joined) {
      s.log("link refused: " + joined.error().message);
      return link.refuse(joined.error());
    }
    if (auto code = load_code(joined->c_str()); !code) {
      s.log("link refused: " + code.error().message);
      return link.refuse(code.error());
    }
    link.joined = *std::move(joined);
    *image = link.joined.data();
    if (bytes != nullptr) *bytes = link.joined.size() + 1;
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkDestroy(CUlinkState handle) {
  return links().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
