// SPDX-License-Identifier: Apache-2.0
// LearntFiles: what was learnt of each vGPU's kernels (core/progress.h), kept between two lives of
// sluiced: a file for each vGPU in `state_dir`, read when the vGPU is made and written when it
// goes.
//
// A disk may take seconds. So files are read and written by a thread of their own (a PeerThread),
// and sluiced's loop goes on:
//
//   save   text is waiting -> being written -> there   (a later text of the same vGPU: once more)
//   load   the text that waits or is being written, if there is one, else the file: is being read
//          -> handed over   (a vGPU that goes before that leaves its file as it is)
//
// A vGPU is known by its name and its owner: another owner's of the same name learns for itself.
// Names may come without end, as those of a cluster's pods do: the kMostFiles files that were
// written last stay.
//
// Owned by the GrantExecutor, used from sluiced's one thread. What fails is logged and costs the
// knowledge only. The files are sluiced's own; one that was damaged is left aside, and the vGPU
// begins to learn anew.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "mediator/base/limits.h"
#include "mediator/core/progress.h"
#include "mediator/io/peers/peer_thread.h"

namespace sluice {

class LearntFiles {
 public:
  // `dir`: made with the first file, mode 0700. Empty: nothing is kept.
  LearntFiles(boost::asio::io_context& io, std::string dir);
  // Waits for what is still to be written, but no longer than kFinishMs.
  ~LearntFiles();

  // By which a vGPU is known here: a valid_vgpu_name(), and for that of an owner more than that.
  static std::string name_of(const std::string& vgpu, const std::string& owner);

  // Takes what was learnt. Not called if nothing is known, nor after a save() of the same vGPU.
  using Taker = std::function<void(core::Progress)>;
  // `vgpu`: name_of(). Never waits: `take` is called later from the io_context, or at
  // once with a text that is still to be written.
  void load(const std::string& vgpu, Taker take);
  // The vGPU goes. Replaces the file as a whole, or leaves the one that is there, also when the
  // machine stops meanwhile. Nothing learnt, or the file not read yet: nothing written. Never
  // waits.
  void save(const std::string& vgpu, const core::Progress& progress);
  // Whether something is still to be handed over.
  bool reading() const { return !reading_.empty(); }
  // Waits until all is written, but no longer than `ms`. True: it is.
  bool finish(uint64_t ms);

  // A disk that takes longer than this at sluiced's end loses what was learnt last.
  static constexpr uint64_t kFinishMs = 5000;
  // Some 180 MB, if each has all the kernels that one may have. Fewer forget a host's vGPUs.
  static constexpr size_t kMostFiles = 4 * limits::kMaxVgpus;

 private:
  struct Writes;
  std::string path(const std::string& vgpu) const;
  void log_errors();
  void on_read(const std::string& vgpu, uint64_t reading, Result<core::Progress> read,
               const Taker& take);

  std::string dir_;
  std::map<std::string, uint64_t> reading_;  // by vGPU: which load() is under way
  uint64_t last_reading_ = 0;
  std::shared_ptr<Writes> writes_;  // shared with the thread
  io::PeerThread disk_;
};

}  // namespace sluice
