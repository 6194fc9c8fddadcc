// SPDX-License-Identifier: Apache-2.0
// Writes the trace of one case: see ../README.md for the format. One thread. Owned by the recording
// runtime; knows nothing of CUDA.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace sluice::record {

struct Place {
  uint32_t buffer = 0;
  uint64_t offset = 0;
  bool known = false;
};

class TraceWriter {
 public:
  // Nothing is written before begin() and after end(); allocations are tracked all the time.
  void begin(const std::string& folder, const std::string& name, const std::string& module);
  void end(bool right);
  void allocate(uint64_t base, uint64_t bytes);
  void free(uint64_t base);
  // Where `address` lies; up to `slack` bytes behind an allocation's end still belong to it, so
  // that a pointer past the end differs from the next allocation's begin.
  Place find(uint64_t address, uint64_t slack = 0) const;
  void upload(uint64_t to, const void* bytes, uint64_t count);
  void expect(uint64_t from, const void* bytes, uint64_t count);
  void copy(uint64_t to, uint64_t from, uint64_t count);
  void fill(uint64_t to, uint8_t value, uint64_t count);
  // How the allocation's contents are made at a replay; ../README.md, "Timing".
  void contents(uint64_t base, const std::string& how);
  void symbol(const std::string& name, uint64_t offset, const void* bytes, uint64_t count);
  void launch(const std::string& kernel, const uint32_t grid[3], const uint32_t block[3],
              uint32_t dynamic_shared, std::vector<uint8_t> params,
              const std::vector<uint32_t>& offsets);

 private:
  struct Live {
    uint64_t bytes = 0;
    uint32_t buffer = 0;
  };
  Place must_find(uint64_t address, const char* what) const;
  void hex(const void* bytes, uint64_t count);
  std::FILE* file_ = nullptr;
  std::string path_;
  std::map<uint64_t, Live> live_;
  uint32_t next_buffer_ = 0;
};

}  // namespace sluice::record
