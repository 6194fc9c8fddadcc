// SPDX-License-Identifier: Apache-2.0
// The methods of the admin socket: what operators ask, out of the Daemon's objects into JSON.
// They run in sluiced's one thread. sluicectl and libvirt's hook call them.
//
//   rpc_methods.cc   the table: one row per method; the small methods
//   rpc_info.cc      info: what sluiced is, goes by and runs on
//   rpc_vgpus.cc     vgpu.*: list, show, create, set, delete
//   rpc_groups.cc    group.*: list, set
//   rpc_figures.cc   stats, top: what was measured
//
// A new method is a function here and a row in rpc_methods.cc.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>

#include "mediator/daemon/admin/json_rpc.h"
#include "mediator/daemon/daemon.h"
#include "policies/policy.h"

namespace sluice::rpc {

namespace json = boost::json;

// Methods without parameters: the value is the answer.
json::value info(Daemon& d);
json::value stats(Daemon& d);
json::value vgpu_list(Daemon& d);
json::value group_list(Daemon& d);

// Methods with parameters. Each reads all it takes of `p`, calls p.finish(), then answers: once,
// now or later. `p` lives no longer than the call.
void top(Daemon& d, RpcParams& p, const RpcReply& reply);
void vgpu_show(Daemon& d, RpcParams& p, const RpcReply& reply);
void vgpu_create(Daemon& d, RpcParams& p, const RpcReply& reply);
void vgpu_set(Daemon& d, RpcParams& p, const RpcReply& reply);
void vgpu_delete(Daemon& d, RpcParams& p, const RpcReply& reply);
void group_set(Daemon& d, RpcParams& p, const RpcReply& reply);

// Parts of answers that several methods give.
json::object usage(const GrantExecutor& executor, VgpuServer& v,
                   const GrantExecutor::Figures& figures);
json::object launches(GrantExecutor& executor, VgpuServer& v,
                      const GrantExecutor::Figures& figures);
std::string sms_text(const SmSet& sms);
const char* latency_name(policy::LatencyClass c);
inline double milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace sluice::rpc
