// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/programs.h"

#include <dlfcn.h>

#include <cstring>
#include <fstream>

#include "abi/array_formats.h"
#include "tests/conformance/builder.h"

namespace sluice::conformance {
namespace {

// What the driver table does not have, by name from the library.
struct TextureApi {
#define SLUICE_MEMBER(symbol, name, since, parameters) decltype(&::symbol) symbol = nullptr;
  SLUICE_CUDA_TEXTURE_FUNCTIONS(SLUICE_MEMBER)
#undef SLUICE_MEMBER
  explicit TextureApi(void* library) {
#define SLUICE_LOAD(symbol, name, since, parameters) \
  symbol = reinterpret_cast<decltype(&::symbol)>(::dlsym(library, #symbol));
    SLUICE_CUDA_TEXTURE_FUNCTIONS(SLUICE_LOAD)
#undef SLUICE_LOAD
  }
};

// Texels: integers take every bit pattern, floats stay moderate so that filtering has something to
// do.
std::vector<std::uint8_t> texels(const Program& p) {
  const TextureSpec& t = *p.texture;
  const std::size_t count = std::size_t{t.width} * (t.height == 0 ? 1 : t.height) *
                            (t.depth == 0 ? 1 : t.depth) * t.channels;
  std::vector<std::uint8_t> bytes(count * channel_bytes(t.format));
  Random r{hash("texels")};
  for (std::size_t k = 0; k < count; ++k) {
    std::uint64_t v = r.next();
    if (t.format == CU_AD_FORMAT_FLOAT) {
      const float f = static_cast<float>(static_cast<std::int64_t>(v) >> 40) * 0x1p-20f;
      std::memcpy(&v, &f, 4);
    } else if (t.format == CU_AD_FORMAT_HALF) {
      v = (v & 0x83ff) | ((10 + (v >> 20) % 8) << 10);
    }
    std::memcpy(bytes.data() + k * channel_bytes(t.format), &v, channel_bytes(t.format));
  }
  return bytes;
}

struct Runner {
  const gpu::DriverApi& cuda;
  TextureApi textures;
  std::string& error;
  bool check(CUresult result, const char* what, const std::string& name) {
    if (result == CUDA_SUCCESS) return true;
    error = name + ": " + what + ": CUDA error " + std::to_string(static_cast<int>(result));
    return false;
  }
};

#define SLUICE_TRY(call, name) \
  if (!run.check(call, #call, name)) return false

struct Texture {
  CUarray array = nullptr;
  CUdeviceptr memory = 0;
  unsigned long long object = 0;
};

bool copy_3d(Runner& run, const Program& p, CUarray array, void* host, bool to_host) {
  const TextureSpec& t = *p.texture;
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = std::size_t{t.width} * t.channels * channel_bytes(t.format);
  copy.Height = t.height == 0 ? 1 : t.height;
  copy.Depth = t.depth == 0 ? 1 : t.depth;
  (to_host ? copy.srcMemoryType : copy.dstMemoryType) = CU_MEMORYTYPE_ARRAY;
  (to_host ? copy.dstMemoryType : copy.srcMemoryType) = CU_MEMORYTYPE_HOST;
  (to_host ? copy.srcArray : copy.dstArray) = array;
  if (to_host) {
    copy.dstHost = host;
    copy.dstPitch = copy.WidthInBytes;
    copy.dstHeight = copy.Height;
  } else {
    copy.srcHost = host;
    copy.srcPitch = copy.WidthInBytes;
    copy.srcHeight = copy.Height;
  }
  SLUICE_TRY(run.textures.cuMemcpy3D_v2(&copy), p.name);
  return true;
}

bool make_texture(Runner& run, const Program& p, Texture& texture) {
  const TextureSpec& t = *p.texture;
  std::vector<std::uint8_t> data = texels(p);
  CUDA_RESOURCE_DESC resource{};
  if (t.resource == TextureSpec::Resource::kArray) {
    CUDA_ARRAY3D_DESCRIPTOR d{};
    d.Width = t.width;
    d.Height = t.height;
    d.Depth = t.depth;
    d.Format = t.format;
    d.NumChannels = t.channels;
    d.Flags = (t.layered ? CUDA_ARRAY3D_LAYERED : 0u) |
              (t.surface ? CUDA_ARRAY3D_SURFACE_LDST : 0u) |
              (t.gather ? CUDA_ARRAY3D_TEXTURE_GATHER : 0u);
    SLUICE_TRY(run.textures.cuArray3DCreate_v2(&texture.array, &d), p.name);
    if (!copy_3d(run, p, texture.array, data.data(), false)) return false;
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = texture.array;
  } else {
    // Rows 512 bytes apart; a linear texture has one.
    const std::size_t row = std::size_t{t.width} * t.channels * channel_bytes(t.format);
    const std::size_t rows = t.height == 0 ? 1 : t.height, pitch = 512;
    if (rows > 1 && row > pitch) return false;
    SLUICE_TRY(run.cuda.cuMemAlloc_v2(&texture.memory, row > pitch ? row : pitch * rows), p.name);
    for (std::size_t y = 0; y < rows; ++y)
      SLUICE_TRY(run.cuda.cuMemcpyHtoD_v2(texture.memory + y * pitch, data.data() + y * row, row),
                 p.name);
    if (t.resource == TextureSpec::Resource::kLinear) {
      resource.resType = CU_RESOURCE_TYPE_LINEAR;
      resource.res.linear.devPtr = texture.memory;
      resource.res.linear.format = t.format;
      resource.res.linear.numChannels = t.channels;
      resource.res.linear.sizeInBytes = row;
    } else {
      resource.resType = CU_RESOURCE_TYPE_PITCH2D;
      resource.res.pitch2D.devPtr = texture.memory;
      resource.res.pitch2D.format = t.format;
      resource.res.pitch2D.numChannels = t.channels;
      resource.res.pitch2D.width = t.width;
      resource.res.pitch2D.height = t.height;
      resource.res.pitch2D.pitchInBytes = pitch;
    }
  }
  if (t.surface) {
    SLUICE_TRY(run.textures.cuSurfObjectCreate(&texture.object, &resource), p.name);
    return true;
  }
  CUDA_TEXTURE_DESC d{};
  for (CUaddress_mode& mode : d.addressMode) mode = t.address;
  d.filterMode = t.filter;
  d.flags = t.flags;
  std::memcpy(d.borderColor, t.border, sizeof(t.border));
  SLUICE_TRY(run.textures.cuTexObjectCreate(&texture.object, &resource, &d, nullptr), p.name);
  return true;
}

bool run_program(Runner& run, CUmodule module, const Program& p, ProgramResult& result) {
  const gpu::DriverApi& cuda = run.cuda;
  CUfunction function = nullptr;
  CUdeviceptr in = 0, out = 0;
  Texture texture;
  result.name = p.name;
  result.output.assign(p.output_bytes, 0);
  SLUICE_TRY(cuda.cuModuleGetFunction(&function, module, p.name.c_str()), p.name);
  SLUICE_TRY(cuda.cuMemAlloc_v2(&in, p.input.empty() ? 16 : p.input.size()), p.name);
  SLUICE_TRY(cuda.cuMemAlloc_v2(&out, p.output_bytes), p.name);
  if (!p.input.empty())
    SLUICE_TRY(cuda.cuMemcpyHtoD_v2(in, p.input.data(), p.input.size()), p.name);
  SLUICE_TRY(cuda.cuMemsetD8_v2(out, 0, p.output_bytes), p.name);
  if (p.texture && !make_texture(run, p, texture)) return false;
  void* parameters[] = {&out, &in, &texture.object};
  SLUICE_TRY(cuda.cuLaunchKernel(function, p.blocks, 1, 1, p.threads, 1, 1, 0, nullptr, parameters,
                                 nullptr),
             p.name);
  SLUICE_TRY(cuda.cuMemcpyDtoH_v2(result.output.data(), out, p.output_bytes), p.name);
  if (p.texture) {
    if (p.texture->read_back) {
      std::vector<std::uint8_t> back = texels(p);
      if (!copy_3d(run, p, texture.array, back.data(), true)) return false;
      result.output.insert(result.output.end(), back.begin(), back.end());
    }
    if (p.texture->surface) {
      SLUICE_TRY(run.textures.cuSurfObjectDestroy(texture.object), p.name);
    } else {
      SLUICE_TRY(run.textures.cuTexObjectDestroy(texture.object), p.name);
    }
    if (texture.array != nullptr) SLUICE_TRY(run.textures.cuArrayDestroy(texture.array), p.name);
    if (texture.memory != 0) SLUICE_TRY(cuda.cuMemFree_v2(texture.memory), p.name);
  }
  SLUICE_TRY(cuda.cuMemFree_v2(in), p.name);
  SLUICE_TRY(cuda.cuMemFree_v2(out), p.name);
  return true;
}

}  // namespace

std::vector<Program> all_programs(unsigned scale) {
  std::vector<Program> all;
  tensor_programs(all, scale);
  async_programs(all);
  block_programs(all);
  texture_programs(all);
  return all;
}

void add_program(std::vector<Program>& all, const std::string& name, unsigned blocks,
                 unsigned threads, unsigned in_words, unsigned out_words, const std::string& body) {
  Program p;
  p.name = name;
  p.blocks = blocks;
  p.threads = threads;
  p.text = ".visible .entry " + name +
           "(.param .u64 out, .param .u64 in)\n{\n.reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 "
           "%r<64>; .reg .b64 %rd<32>; .reg .f32 %f<16>;\n" +
           body + "}\n";
  Random r{hash(name)};
  p.input.resize(std::size_t{blocks} * threads * in_words * 4);
  for (std::uint8_t& byte : p.input) byte = static_cast<std::uint8_t>(r.next() >> 32);
  p.output_bytes = std::size_t{blocks} * threads * out_words * 4;
  all.push_back(std::move(p));
}

std::string programs_text(const std::vector<Program>& programs) {
  std::string all = ".version 8.7\n.target sm_90\n.address_size 64\n";
  for (const Program& p : programs) all += p.text;
  return all;
}

bool run_programs(const gpu::DriverApi& cuda, const std::vector<Program>& programs,
                  std::vector<ProgramResult>& results, std::string& error) {
  Runner run{cuda, TextureApi(cuda.library), error};
  bool textured = false;
  for (const Program& p : programs) textured = textured || p.texture.has_value();
#define SLUICE_MISSING(symbol, name, since, parameters) \
  if (textured && run.textures.symbol == nullptr) {     \
    error = "the library has no function " #symbol;     \
    return false;                                       \
  }
  SLUICE_CUDA_TEXTURE_FUNCTIONS(SLUICE_MISSING)
#undef SLUICE_MISSING
  CUmodule module = nullptr;
  const std::string text = programs_text(programs);
  SLUICE_TRY(cuda.cuModuleLoadData(&module, text.c_str()), std::string("the module"));
  for (const Program& p : programs) {
    ProgramResult result;
    if (!run_program(run, module, p, result)) return false;
    results.push_back(std::move(result));
  }
  return run.check(cuda.cuModuleUnload(module), "cuModuleUnload", "the module");
}

bool write_results(const std::string& path, const std::vector<ProgramResult>& results) {
  std::ofstream file(path, std::ios::binary);
  for (const ProgramResult& r : results) {
    const std::uint32_t lengths[2] = {static_cast<std::uint32_t>(r.name.size()),
                                      static_cast<std::uint32_t>(r.output.size())};
    file.write(reinterpret_cast<const char*>(lengths), 8);
    file.write(r.name.data(), lengths[0]);
    file.write(reinterpret_cast<const char*>(r.output.data()), lengths[1]);
  }
  return static_cast<bool>(file);
}

std::vector<ProgramResult> read_results(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<ProgramResult> all;
  std::uint32_t lengths[2];
  while (file.read(reinterpret_cast<char*>(lengths), 8) && lengths[0] < 4096 &&
         lengths[1] < (64u << 20)) {
    ProgramResult r;
    r.name.resize(lengths[0]);
    r.output.resize(lengths[1]);
    file.read(r.name.data(), lengths[0]);
    file.read(reinterpret_cast<char*>(r.output.data()), lengths[1]);
    if (!file) break;
    all.push_back(std::move(r));
  }
  return all;
}

}  // namespace sluice::conformance
