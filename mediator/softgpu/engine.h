// Engine: the SMs of the software GPU. Runs grids of thread blocks on host threads, one context's
// at a time, and takes the shared GPU for them (SharedGpu).
//
// Grids of one context start in the order in which they were submitted; blocks of a grid start in
// the order of their index, each on an SM with the fewest; a later grid's blocks start when all
// earlier grids' have. Resident blocks are run in slices, so blocks that wait for one another get
// on. A context leaves the engine when it has nothing to run and, if another context waits, after
// each kernel.
//
// Owned by the library's state. Its threads, named softgpu-smN, are started with the first grid and
// sleep while there is nothing to run; thread t runs SMs t, t + T, t + 2T... Any thread may submit.
// It knows nothing of streams: whoever submits has seen to the order.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/exec/block.h"
#include "mediator/softgpu/shared_gpu.h"

namespace sluice::softgpu {

// What one SM has room for: Hopper's numbers, except the number of blocks (Config).
struct SmLimits {
  uint32_t blocks = 4;
  uint32_t threads = 2048;
  uint32_t registers = 65536;
  uint32_t shared_bytes = 228 * 1024;
  static constexpr uint32_t kSharedReservedPerBlock = 1024;
  static constexpr uint32_t kWarpThreads = 32;
  static constexpr uint32_t kRegisterUnit = 256;  // registers are given to a warp in such units
  static constexpr uint32_t kSharedUnit = 128;
};

// What one block takes of an SM.
struct BlockNeeds {
  uint32_t threads = 0;
  uint32_t registers = 0;
  uint32_t shared_bytes = 0;
};
BlockNeeds block_needs(uint32_t threads, uint32_t registers_per_thread, uint32_t shared_bytes);
// How many such blocks fit on an empty SM.
uint32_t blocks_per_sm(const SmLimits& limits, const BlockNeeds& needs);

// One physical launch. Filled by whoever submits it, then the engine's until on_done.
struct Grid {
  std::shared_ptr<const exec::Image> image;
  std::string entry;
  exec::LaunchShape shape;
  std::vector<std::byte> params;
  exec::MemoryMap* map = nullptr;  // of the context, which outlives the grid
  unsigned slot = 0;               // the context's
  BlockNeeds needs;                // must fit on an empty SM
  // Called once, by an engine thread that holds no lock, when no block of the grid runs any more.
  // `fault` is kNone if it ran to its end.
  std::function<void(const exec::Fault& fault)> on_done;

 private:
  friend class Engine;
  uint64_t total = 0;
  uint64_t next = 0;      // first block not yet started
  uint64_t resident = 0;  // blocks started and not ended
  std::atomic<bool> abandoned{false};
  exec::Fault fault;  // the first one; written before abandoned is set, under the engine's lock
};

class Engine : private exec::Environment {
 public:
  Engine(SharedGpu& gpu, uint32_t threads);
  ~Engine() override;

  void submit(std::shared_ptr<Grid> grid);
  // Stops all threads at the end of their slices and leaves the GPU. What was running is lost; no
  // on_done is called any more. For the end of the process.
  void stop();

  const SmLimits& limits() const { return limits_; }
  uint32_t sms() const { return sms_; }

 private:
  // A context's place in front of the engine.
  struct Client {
    std::deque<std::shared_ptr<Grid>> ready;
    bool waiting = false;  // has a ticket
  };
  struct Resident {
    std::shared_ptr<Grid> grid;  // null: empty
    std::unique_ptr<exec::Block>
        block;             // made for `grid`, used for one of its blocks after another
    uint64_t index = 0;    // of the block in the grid
    bool begun = false;    // started in `block`
    bool waiting = false;  // its last slice only polled
  };
  struct Sm {
    exec::SmPlace place;
    std::vector<Resident> residents;
    BlockNeeds used;
  };

  uint64_t global_timer_ns() override;
  void print(std::string_view text) override;

  void start_threads();
  void thread_main(unsigned index);
  // These under mutex_; those that take the lock give it up for a while.
  void advance(bool out_of_turn = false);  // takes or leaves the GPU, activates grids
  void wake(uint64_t threads);
  bool fill(Sm& sm);
  void end_block(std::unique_lock<std::mutex>& lock, Sm& sm, Resident& resident);
  void wait_for_turn(std::unique_lock<std::mutex>& lock);
  // These without it.
  bool begin(const Sm& sm, Resident& resident);
  void run_slice(Sm& sm, Resident& resident);

  SharedGpu& gpu_;
  SmLimits limits_;
  const uint32_t sms_;
  const uint32_t thread_count_;

  std::mutex mutex_;
  std::condition_variable work_;
  std::array<Client, kMaxContexts> clients_;
  std::vector<uint32_t> residents_;            // on each SM
  std::vector<std::shared_ptr<Grid>> active_;  // in the order of their start
  int holder_ = -1;                            // slot that has the GPU
  bool turn_used_ = false;                     // it has started a kernel since it got the GPU
  bool acquiring_ = false;                     // a thread waits in the GPU's queue
  unsigned waiting_clients_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::softgpu
