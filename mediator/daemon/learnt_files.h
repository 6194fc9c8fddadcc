// SPDX-License-Identifier: Apache-2.0
// LearntFiles: what was learnt of each vGPU's kernels (core/progress.h), kept between two lives of sluiced: a
// file a vGPU in `state_dir`, read when the vGPU is made and written when it goes. Owned by the GrantExecutor, one
// thread; what fails is logged and costs the knowledge only. The files are sluiced's own; one that was
// damaged is left aside, and the vGPU begins to learn anew.
#pragma once

#include <string>

#include "mediator/core/progress.h"

namespace sluice {

class LearntFiles {
 public:
  // `dir`: made with the first file, mode 0700. Empty: nothing is kept.
  explicit LearntFiles(std::string dir) : dir_(std::move(dir)) {}

  // `vgpu`: a valid_vgpu_name().
  void load(const std::string& vgpu, core::Progress* progress) const;
  // Replaces the file as a whole, or leaves the one that is there, also when the machine stops meanwhile: waits for the
  // disk twice. Nothing learnt: nothing written.
  void save(const std::string& vgpu, const core::Progress& progress) const;

 private:
  std::string path(const std::string& vgpu) const { return dir_ + "/" + vgpu + ".kernels"; }
  std::string dir_;
};

}  // namespace sluice
