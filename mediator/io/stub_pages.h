// SPDX-License-Identifier: Apache-2.0
// StubPages: the four memory objects of abi/stub.h for one session, as sluiced makes and maps them.
// Owned by the session; the engine stores into them. The worker gets the descriptors and cannot map
// the host page for writing; what it writes into the report is a hint (core/scheduler.h checks it).
#pragma once

#include "abi/stub.h"
#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/base/sm_set.h"
#include "mediator/io/mapping.h"

namespace sluice::io {

class StubPages {
 public:
  // Fresh, zeroed pages: gate closed, no eviction, nothing reported.
  static Result<StubPages> make();

  sluice_host_page& host() const { return *host_.as<sluice_host_page>(); }
  sluice_signal_page& signal() const { return *signal_.as<sluice_signal_page>(); }
  const sluice_report_header& report() const { return *report_.as<const sluice_report_header>(); }
  const sluice_launch_records& records() const {
    return *records_.as<const sluice_launch_records>();
  }

  // seq_cst stores: the gate protocol rests on their order.
  void set_grant(uint64_t word);
  void set_evict(uint64_t word);
  // The SMs of `generation`; before the grant word that names it.
  void set_sms(uint32_t generation, const SmSet& sms);
  void beat(uint64_t now_ns);

  int host_fd() const { return host_fd_.get(); }
  int signal_fd() const { return signal_fd_.get(); }
  int report_fd() const { return report_fd_.get(); }
  int records_fd() const { return records_fd_.get(); }

 private:
  Fd host_fd_, signal_fd_, report_fd_, records_fd_;
  Mapping host_, signal_, report_, records_;
};

}  // namespace sluice::io
