// SPDX-License-Identifier: Apache-2.0
// What nvcc puts into a program, made by hand: a fat binary of PTX, registered with its kernels and
// variables by the calls that compiled programs make.
#pragma once

#include <cstring>
#include <string>

#include "guest-agent/cudart/binaries.h"
#include "tests/cudart/gate/api.h"

namespace sluice::cudart {

// A fat binary with one uncompressed entry of PTX for compute capability 7.5.
inline std::string fat_binary_of(std::string ptx) {
  struct Header {
    uint32_t magic = kFatBinaryMagic;
    uint16_t version = 1, header_bytes = sizeof(Header);
    uint64_t bytes;
  } header;
  struct Entry {
    uint16_t kind = 1, version = 0x101;
    uint32_t header_bytes = sizeof(Entry);
    uint64_t payload_bytes;
    uint32_t compressed_bytes = 0, options_at = 64;
    uint16_t minor = 0, major = 9;
    uint32_t sm = 75;
    uint64_t unknown = 0, flags = 0x11, unknown2 = 0, text_bytes = 0;
    uint64_t options = 72, no_options = 0;  // NVIDIA's driver reads a string there
  } entry;
  static_assert(sizeof header == 16 && sizeof entry == 80);
  ptx.resize((ptx.size() + 8) / 8 * 8);
  entry.payload_bytes = ptx.size();
  header.bytes = sizeof entry + ptx.size();
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
         std::string(reinterpret_cast<const char*>(&entry), sizeof entry) + ptx;
}

class Program {
 public:
  explicit Program(std::string image) : image_(std::move(image)) {
    wrapper_ = {kWrapperMagic, 1, image_.data(), nullptr};
    handle_ = __cudaRegisterFatBinary(&wrapper_);
  }
  ~Program() { __cudaUnregisterFatBinary(handle_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void kernel(const void* host, const char* name) {
    __cudaRegisterFunction(handle_, static_cast<const char*>(host), const_cast<char*>(name), name,
                           -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  void variable(void* host, const char* name, size_t size) {
    __cudaRegisterVar(handle_, static_cast<char*>(host), const_cast<char*>(name), name, 0, size, 0,
                      0);
  }
  // `place`: where the program keeps the variable's address.
  void managed_variable(void** place, const char* name, size_t size) {
    __cudaRegisterManagedVar(handle_, place, const_cast<char*>(name), name, 0, size, 0, 0);
  }
  bool start() { return __cudaInitModule(handle_) != 0; }
  FatBinaryWrapper& wrapper() { return wrapper_; }

 private:
  std::string image_;
  FatBinaryWrapper wrapper_;
  void** handle_;
};

}  // namespace sluice::cudart
