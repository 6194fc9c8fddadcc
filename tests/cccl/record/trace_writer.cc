// SPDX-License-Identifier: Apache-2.0
#include "tests/cccl/record/trace_writer.h"

#include <cstdlib>
#include <cstring>

namespace sluice::record {

void TraceWriter::begin(const std::string& folder, const std::string& name,
                        const std::string& module) {
  path_ = folder + "/" + name + ".trace";
  file_ = std::fopen((path_ + ".part").c_str(), "w");
  if (file_ == nullptr) {
    std::perror(path_.c_str());
    std::exit(1);
  }
  std::fprintf(file_, "sluice-trace 1\ncase %s\nmodule %s\n", name.c_str(), module.c_str());
  next_buffer_ = 0;
}

void TraceWriter::end(bool right) {
  if (file_ == nullptr) return;
  std::fprintf(file_, "end\n");
  std::fclose(file_);
  file_ = nullptr;
  // What is wrong, or was cut short, must not become an expectation.
  const std::string part = path_ + ".part";
  if (right)
    std::rename(part.c_str(), path_.c_str());
  else
    std::remove(part.c_str());
}

void TraceWriter::allocate(uint64_t base, uint64_t bytes) {
  live_[base] = {bytes, next_buffer_};
  if (file_ == nullptr) return;
  std::fprintf(file_, "buffer %u %llu\n", next_buffer_, static_cast<unsigned long long>(bytes));
  ++next_buffer_;
}

void TraceWriter::free(uint64_t base) { live_.erase(base); }

Place TraceWriter::find(uint64_t address, uint64_t slack) const {
  auto above = live_.upper_bound(address);
  if (above == live_.begin()) return {};
  --above;
  const uint64_t offset = address - above->first;
  if (offset >= above->second.bytes + slack) return {};
  return {above->second.buffer, offset, true};
}

Place TraceWriter::must_find(uint64_t address, const char* what) const {
  const Place place = find(address);
  if (!place.known) {
    std::fprintf(stderr, "recording: %s of memory that was not allocated here\n", what);
    std::exit(1);
  }
  return place;
}

void TraceWriter::hex(const void* bytes, uint64_t count) {
  const auto* from = static_cast<const uint8_t*>(bytes);
  for (uint64_t i = 0; i < count; ++i) std::fprintf(file_, "%02x", from[i]);
  if (count == 0) std::fputc('-', file_);
}

void TraceWriter::upload(uint64_t to, const void* bytes, uint64_t count) {
  if (file_ == nullptr) return;
  const Place place = must_find(to, "upload");
  std::fprintf(file_, "upload %u %llu ", place.buffer,
               static_cast<unsigned long long>(place.offset));
  hex(bytes, count);
  std::fputc('\n', file_);
}

void TraceWriter::expect(uint64_t from, const void* bytes, uint64_t count) {
  if (file_ == nullptr) return;
  const Place place = must_find(from, "read");
  std::fprintf(file_, "expect %u %llu ", place.buffer,
               static_cast<unsigned long long>(place.offset));
  hex(bytes, count);
  std::fputc('\n', file_);
}

void TraceWriter::copy(uint64_t to, uint64_t from, uint64_t count) {
  if (file_ == nullptr) return;
  const Place target = must_find(to, "copy");
  const Place source = must_find(from, "copy");
  std::fprintf(file_, "copy %u %llu %u %llu %llu\n", target.buffer,
               static_cast<unsigned long long>(target.offset), source.buffer,
               static_cast<unsigned long long>(source.offset),
               static_cast<unsigned long long>(count));
}

void TraceWriter::fill(uint64_t to, uint8_t value, uint64_t count) {
  if (file_ == nullptr) return;
  const Place place = must_find(to, "fill");
  std::fprintf(file_, "fill %u %llu %llu %u\n", place.buffer,
               static_cast<unsigned long long>(place.offset),
               static_cast<unsigned long long>(count), value);
}

void TraceWriter::contents(uint64_t base, const std::string& how) {
  if (file_ == nullptr) return;
  std::fprintf(file_, "contents %u %s\n", must_find(base, "contents").buffer, how.c_str());
}

void TraceWriter::symbol(const std::string& name, uint64_t offset, const void* bytes,
                         uint64_t count) {
  if (file_ == nullptr) return;
  std::fprintf(file_, "symbol %s %llu ", name.c_str(), static_cast<unsigned long long>(offset));
  hex(bytes, count);
  std::fputc('\n', file_);
}

void TraceWriter::launch(const std::string& kernel, const uint32_t grid[3], const uint32_t block[3],
                         uint32_t dynamic_shared, std::vector<uint8_t> params,
                         const std::vector<uint32_t>& offsets) {
  if (file_ == nullptr) return;
  // Every aligned word that lies in live memory is taken for a pointer: device addresses are far
  // from any number that a program would pass otherwise.
  std::vector<std::string> pointers;
  for (size_t at = 0; at + 8 <= params.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, &params[at], 8);
    const Place place = find(word, 256);
    if (!place.known) continue;
    pointers.push_back(std::to_string(at) + ":" + std::to_string(place.buffer) + ":" +
                       std::to_string(place.offset));
    std::memset(&params[at], 0, 8);
  }
  std::fprintf(file_, "launch %s %u %u %u %u %u %u %u ", kernel.c_str(), grid[0], grid[1], grid[2],
               block[0], block[1], block[2], dynamic_shared);
  hex(params.data(), params.size());
  std::fprintf(file_, " %zu", offsets.size());
  for (uint32_t offset : offsets) std::fprintf(file_, " %u", offset);
  for (const std::string& pointer : pointers) std::fprintf(file_, " %s", pointer.c_str());
  std::fputc('\n', file_);
}

}  // namespace sluice::record
