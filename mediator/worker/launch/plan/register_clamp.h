// SPDX-License-Identifier: Apache-2.0
// Clones that would fit fewer blocks on an SM than their originals, because what is around them
// needs registers: another form of such a clone, compiled with no more registers than keep the
// original's place (NVIDIA, PTX ISA, ".maxnreg").
//
// Whether a clone loses a place is known only when the driver has compiled it. So a module is
// loaded once, inspected, and, if a clone loses, a copy of that clone is loaded under another name
// and with `.maxnreg`. Where the text has no variables, as a kernel's clones of their own mostly
// have none, such copies alone are the second text. Else the second is the whole text with them
// added, so that variables exist once; nobody has a handle into the first, and the caller unloads
// it. Which form a launch takes depends on its block size: both stay. A text of clones alone is
// compared with an original that was loaded before, as soon as it is known which that is
// (clamps_of()).
//
// Functions of the driver table handed in, whose context must be current; any thread. Holds
// nothing. The text is a guest's: whatever it contains, the worst that comes of it is the first
// module. Used by the worker and by tests/bench/preempt, so that what is measured is what runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mediator/gpu/driver_api.h"

namespace sluice::worker {

// Of a clamped form, behind the clone's name.
inline constexpr char kClampedSuffix[] = "_clamped";

// A clone in the text of a module (its name ends in SLUICE_CLONE_SUFFIX or SLUICE_ONE_TASK_SUFFIX):
// where its `.entry` begins and ends, its name, that of its original, and where a directive can be
// added.
struct CloneText {
  size_t linkage = 0;                   // where ".visible" or the like before it begins
  size_t begin = 0, end = 0;            // from ".entry" to behind the closing brace
  size_t name_begin = 0, name_end = 0;  // the clone's name
  size_t directives = 0;                // behind the parameter list
  std::string_view name, original;      // into the text
};
// The clones with a body that say nothing of registers themselves, in the order of the text. Linear
// in the text; what it cannot follow ends the list.
std::vector<CloneText> find_clones(std::string_view ptx);
// Whether there may be some: their suffix is in the text. Much faster.
bool may_have_clones(std::string_view ptx);
// A text of clones whose originals are elsewhere.
struct ClonesText {
  std::shared_ptr<const std::string> text;
  std::vector<CloneText> clones;  // in it
  // Null: one has its original there, or there are none.
  static std::shared_ptr<const ClonesText> of(std::shared_ptr<const std::string> text);
};

// One clone to clamp.
struct Clamp {
  CloneText clone;
  uint32_t registers;
};
// The text with a clamped form behind it for each.
std::string add_clamped(std::string_view ptx, std::span<const Clamp> clamps);
// The same without the text's own kernels: what they share, and the clamped forms. Empty: the text
// cannot be cut, because a debugger's sections name what is in the kernels.
std::string clamped_alone(std::string_view ptx, std::span<const Clamp> clamps);

// What registers of an SM are given out in.
struct RegisterFile {
  uint32_t registers = 65536;  // of an SM
  uint32_t threads = 2048;     // that it holds
};
// The most registers for a thread with which as many warps fit on an SM as with `registers`. They
// are given to a warp 8 for each thread at a time, from the quarter of the SM's that the warp runs
// on (CUDA C++ Programming Guide, "Hardware Multithreading"; the occupancy calculator's warp
// granularity).
uint32_t bucket_top(uint32_t registers, const RegisterFile& file);

struct FittedModule {
  CUmodule cu = nullptr;
  CUmodule other = nullptr;          // the other of two loads, to be unloaded with `cu`; or null
  CUmodule clamped_in = nullptr;     // the one of them that has the clamped forms
  std::vector<std::string> clamped;  // clones that have a clamped form, by name, sorted
};
// How much of the text may be loaded a second time.
enum class Second {
  kNone,   // there is no memory for it: no clone is clamped
  kWhole,  // it has variables, which exist once; `other` is not used
  kAlone   // the clamped forms alone will do: it has none
};
// Loads a module whose clones will be launched. `log`: room for the compiler's words about an
// error in the text (with a 0 at its end), may be empty. Takes as long as one or two compilations.
CUresult load_fitted(const gpu::DriverApi& api, CUdevice device, const std::string& ptx,
                     std::span<char> log, FittedModule* out, Second second = Second::kWhole);
// Of these clones in `module` those that need fewer registers. `original`: of all of them; null:
// each has its own in `module`.
std::vector<Clamp> clamps_of(const gpu::DriverApi& api, CUdevice device,
                             std::span<const CloneText> clones, CUmodule module,
                             CUfunction original);
// Loads their clamped forms beside `out->cu`, which has the text.
void load_clamped(const gpu::DriverApi& api, const std::string& ptx, std::span<const Clamp> clamps,
                  FittedModule* out, Second second);
// The clamped form of the clone of this name, of a module loaded so, or null.
CUfunction clamped_form(const gpu::DriverApi& api, CUmodule clamped_in,
                        std::span<const std::string> clamped, std::string_view clone);

// The forms of one kernel, with one of its clones; `clone` is not null.
struct CloneForms {
  CUfunction original = nullptr, clone = nullptr, clamped = nullptr;
};
struct ChosenForm {
  CUfunction function = nullptr;
  uint32_t blocks_per_sm = 0;  // 0: it does not fit, or the driver does not know the shape
};
// The form for launches of `threads` threads a block with this much dynamic shared memory (the
// clones' has the loop's share besides): the clamped one where the clone holds fewer blocks than
// the original and the clamped one more than the clone. Lets the clones have that much shared
// memory.
ChosenForm choose_form(const gpu::DriverApi& api, const CloneForms& forms, uint32_t threads,
                       uint32_t dynamic_shared, uint32_t clone_dynamic_shared);

}  // namespace sluice::worker
