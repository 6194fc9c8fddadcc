// SPDX-License-Identifier: Apache-2.0
// A connection to libvirt, and one domain of it. One thread. Errors have libvirt's own text.
//
// No call waits for ever: one that libvirt has not answered after the domain's time-out is an error
// with code ETIMEDOUT, and so is each later one, at once. What was to be changed may be changed
// yet, as soon as libvirt goes on. Writing and reading a domain's memory may take longer, as long
// as libvirt answers other questions within that time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "mediator/base/result.h"
#include "mediator/core/domain_xml.h"

namespace sluice::libvirt {

struct Library;

class Domain {
 public:
  // `uri` empty: qemu:///system.
  static Result<Domain> find(const std::string& uri, const std::string& name, int timeout_s);

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
  static Result<Domain> find_now(const std::string& uri, const std::string& name, int timeout_s);
  // What a method asks, and which goes on by itself where there is no answer: a copy of the domain
  // is the question's.
  template <class T>
  using Question = std::function<Result<T>(const Domain&)>;
  template <class T>
  Result<T> ask(const char* what, Question<T> question) const;
  // The same for a change, which libvirt may carry out without an answer.
  Result<void> change(const char* what, Question<void> question) const;
  // One that may take as long as it needs.
  Result<void> long_change(const char* what, Question<void> question) const;
  Result<std::string> text(const char* what, char* (*read)(const Domain&)) const;
  Result<bool> truth(const char* what, int (*read)(const Domain&)) const;
  // Notes what has no answer.
  template <class T>
  Result<T> noted(const char* what, Result<T> answer) const;

  const Library* lib_ = nullptr;
  int timeout_s_ = 0;
  std::shared_ptr<void> connection_, domain_;  // the domain goes first
  std::shared_ptr<std::optional<Error>> silent_ = std::make_shared<std::optional<Error>>();
};

}  // namespace sluice::libvirt
