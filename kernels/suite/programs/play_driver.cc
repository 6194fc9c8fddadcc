// SPDX-License-Identifier: Apache-2.0
#include "kernels/suite/programs/play_driver.h"

#include <cstring>
#include <map>
#include <stdexcept>

#include "kernels/suite/programs/driver.h"

namespace sluice::suite {

namespace {

// Up to this much dynamic shared memory a kernel need not ask for more.
constexpr std::uint32_t kPlainSharedBytes = 48 * 1024;

Event make_timing_event() {
  CUevent event = nullptr;
  SLUICE_SUITE_CALL(cuEventCreate(&event, CU_EVENT_DEFAULT));
  return Event(event);
}

class Player {
 public:
  explicit Player(const Case& work)
      : work_(work),
        module_(make_module(work.ptx.c_str())),
        before_(make_timing_event()),
        after_(make_timing_event()) {
    for (const Buffer& buffer : work.buffers) {
      buffers_.push_back(make_device_buffer(buffer.initial.empty() ? 1 : buffer.initial.size()));
      addresses_.push_back(buffers_.back().get());
    }
  }

  void play(DriverPlay& play) {
    for (std::size_t k = 0; k < work_.buffers.size(); ++k) upload(k, 0, work_.buffers[k].initial);
    for (const Step& step : work_.steps) {
      std::visit([&](const auto& each) { act(each, play); }, step);
      if (!play.wrong.empty()) return;
    }
    Contents contents;
    for (std::size_t k = 0; k < work_.buffers.size(); ++k)
      contents.push_back(download(k, 0, work_.buffers[k].initial.size()));
    play.wrong = work_.check(contents);
  }

 private:
  void upload(std::size_t buffer, std::uint64_t offset, const std::vector<std::byte>& bytes) {
    if (bytes.empty()) return;
    SLUICE_SUITE_CALL(cuMemcpyHtoD(addresses_[buffer] + offset, bytes.data(), bytes.size()));
  }
  std::vector<std::byte> download(std::size_t buffer, std::uint64_t offset, std::size_t count) {
    std::vector<std::byte> bytes(count);
    if (count != 0)
      SLUICE_SUITE_CALL(cuMemcpyDtoH(bytes.data(), addresses_[buffer] + offset, count));
    return bytes;
  }

  void act(const Upload& step, DriverPlay&) { upload(step.buffer, step.offset, step.bytes); }
  void act(const Copy& step, DriverPlay&) {
    SLUICE_SUITE_CALL(cuMemcpyDtoD(addresses_[step.to] + step.to_offset,
                                   addresses_[step.from] + step.from_offset, step.bytes));
  }
  void act(const Fill& step, DriverPlay&) {
    SLUICE_SUITE_CALL(cuMemsetD8(addresses_[step.buffer] + step.offset, step.value, step.bytes));
  }
  void act(const SetSymbol& step, DriverPlay&) {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    SLUICE_SUITE_CALL(cuModuleGetGlobal(&address, &bytes, module_.get(), step.name.c_str()));
    if (step.offset + step.bytes.size() > bytes)
      throw std::runtime_error(step.name + " is smaller than the data for it");
    SLUICE_SUITE_CALL(cuMemcpyHtoD(address + step.offset, step.bytes.data(), step.bytes.size()));
  }
  void act(const Expect& step, DriverPlay& play) {
    const std::vector<std::byte> got = download(step.buffer, step.offset, step.bytes.size());
    if (got == step.bytes) return;
    std::size_t at = 0;
    while (got[at] == step.bytes[at]) ++at;
    play.wrong = "after " + last_ + ": byte " + std::to_string(step.offset + at) + " of buffer " +
                 std::to_string(step.buffer) + " is " + std::to_string(unsigned(got[at])) +
                 ", not " + std::to_string(unsigned(step.bytes[at]));
  }
  void act(const Launch& launch, DriverPlay& play) {
    last_ = describe(launch);
    CUfunction& function = functions_[launch.kernel];
    if (function == nullptr)
      SLUICE_SUITE_CALL(cuModuleGetFunction(&function, module_.get(), launch.kernel.c_str()));
    if (launch.dynamic_shared > kPlainSharedBytes)
      SLUICE_SUITE_CALL(cuFuncSetAttribute(function,
                                           CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                           static_cast<int>(launch.dynamic_shared)));
    std::vector<std::byte> block = parameters(launch, addresses_);
    std::vector<void*> pointers;
    for (std::uint32_t offset : launch.param_offsets) pointers.push_back(block.data() + offset);
    SLUICE_SUITE_CALL(cuEventRecord(before_.get(), nullptr));
    SLUICE_SUITE_CALL(cuLaunchKernel(function, launch.grid[0], launch.grid[1], launch.grid[2],
                                     launch.block[0], launch.block[1], launch.block[2],
                                     launch.dynamic_shared, nullptr, pointers.data(), nullptr));
    SLUICE_SUITE_CALL(cuEventRecord(after_.get(), nullptr));
    SLUICE_SUITE_CALL(cuEventSynchronize(after_.get()));
    float milliseconds = 0;
    SLUICE_SUITE_CALL(cuEventElapsedTime(&milliseconds, before_.get(), after_.get()));
    ++play.launches;
    if (milliseconds * 1000.0 > play.longest_us) {
      play.longest_us = milliseconds * 1000.0;
      play.longest = last_;
    }
  }

  const Case& work_;
  Module module_;
  Event before_, after_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<std::uint64_t> addresses_;
  std::map<std::string, CUfunction> functions_;
  std::string last_ = "the beginning";
};

}  // namespace

DriverPlay play_on_driver(const Case& work, std::uint64_t repeat) {
  DriverPlay play;
  Player player(work);
  for (std::uint64_t time = 0; time < repeat && play.wrong.empty(); ++time) player.play(play);
  return play;
}

}  // namespace sluice::suite
