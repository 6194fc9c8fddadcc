// SPDX-License-Identifier: Apache-2.0
// A connection to libvirt, and one domain of it. One thread. Errors have libvirt's own text.
#pragma once

#include <memory>
#include <string>

#include "mediator/base/result.h"
#include "mediator/core/domain_xml.h"

namespace sluice::libvirt {

struct Library;

class Domain {
 public:
  // `uri` empty: qemu:///system. Error code ETIMEDOUT: libvirt has not answered within
  // limits::kFindSeconds.
  static Result<Domain> find(const std::string& uri, const std::string& name);

  // As it will start next, with its secrets: what `define` takes.
  Result<std::string> next_xml() const;
  Result<bool> running() const;
  Result<bool> paused() const;
  // false: it is gone when it ends, so there is no next start.
  Result<bool> persistent() const;
  Result<void> define(const std::string& xml) const;

  // Of the domain that runs.
  Result<std::string> running_xml() const;
  Result<std::string> uuid() const;
  Result<void> attach_device(const std::string& xml) const;
  // Only asks: the guest releases the device some time later.
  Result<void> detach_device(const std::string& xml) const;
  // The element of one of our namespaces in its metadata; empty: takes it out.
  Result<void> set_metadata(const std::string& xml,
                            const char* name_space = kVgpuXmlNamespace) const;
  // Its memory goes to a file, and it is shut off. Takes as long as writing that.
  Result<void> managed_save() const;
  // Whether there is that file.
  Result<bool> saved() const;
  // The XML in it, with which the domain would start.
  Result<std::string> saved_xml() const;
  // From that file, where there is one.
  Result<void> start() const;

 private:
  static Result<Domain> find_now(const std::string& uri, const std::string& name);

  const Library* lib_ = nullptr;
  std::shared_ptr<void> connection_, domain_;  // the domain goes first
};

}  // namespace sluice::libvirt
