// SPDX-License-Identifier: Apache-2.0
// The configuration: the sample file is the defaults, and every mistake is reported with its line.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "mediator/daemon/setup/config.h"

namespace sluice {
namespace {

std::string sample() {
  std::ifstream f(SLUICE_SOURCE_ROOT "/debian/sluice.toml");
  std::stringstream text;
  text << f.rdbuf();
  return text.str();
}

TEST(Config, EmptyIsAllDefaults) {
  auto c = parse_config("", "x.toml");
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->admin_socket_path(), "/run/sluice/admin.sock");
  EXPECT_EQ(c->soft_gpu_path(), "/run/sluice/softgpu");
}

TEST(Config, TheSampleStatesTheDefaults) {
  auto c = parse_config(sample(), "sample");
  ASSERT_TRUE(c.ok()) << c.error().message;
  const Config d;
  EXPECT_EQ(c->runtime_dir, d.runtime_dir);
  // But for this one: a host keeps its groups over a reboot.
  EXPECT_EQ(c->state_dir, "/var/lib/sluice");
  EXPECT_EQ(c->worker, d.worker);
  EXPECT_EQ(c->log_level, d.log_level);
  EXPECT_EQ(c->nice, d.nice);
  EXPECT_EQ(c->admin_mode, d.admin_mode);
  EXPECT_EQ(c->device, d.device);
  EXPECT_EQ(c->nvidia_library, d.nvidia_library);
  EXPECT_EQ(c->soft_library, d.soft_library);
  EXPECT_EQ(c->nvidia_sms, d.nvidia_sms);
  EXPECT_EQ(c->mps_pipes, d.mps_pipes);
  EXPECT_EQ(c->sm_unit, d.sm_unit);
  EXPECT_EQ(c->soft_sms, d.soft_sms);
  EXPECT_EQ(c->soft_memory_bytes, d.soft_memory_bytes);
  EXPECT_EQ(c->soft_threads, d.soft_threads);
  EXPECT_EQ(c->signal, d.signal);
  EXPECT_EQ(c->signal_chunk, d.signal_chunk);
  EXPECT_EQ(c->admission_us, d.admission_us);
  EXPECT_EQ(c->clones, d.clones);
  EXPECT_EQ(c->region_bytes, d.region_bytes);
  EXPECT_EQ(c->staging_bytes, d.staging_bytes);
  EXPECT_EQ(c->slots, d.slots);
  EXPECT_EQ(c->weight, d.weight);
  EXPECT_EQ(c->back_off, d.back_off);
  EXPECT_EQ(c->fault_stall_ms, d.fault_stall_ms);
  EXPECT_EQ(c->exception_stall_ms, d.exception_stall_ms);
  EXPECT_EQ(c->evict_end_least_ms, d.evict_end_least_ms);
  EXPECT_EQ(c->socket_mode, d.socket_mode);
  EXPECT_EQ(c->socket_group, d.socket_group);
  EXPECT_EQ(c->socket_users, d.socket_users);
  EXPECT_EQ(c->socket_groups, d.socket_groups);
  EXPECT_EQ(c->local_socket_mode, d.local_socket_mode);
  EXPECT_EQ(c->policy, d.policy);
  EXPECT_EQ(c->mode, Mode::kStrict);
  EXPECT_EQ(c->mode_name(), d.mode_name());
  EXPECT_EQ(c->turns_by_priority, d.turns_by_priority);
  EXPECT_EQ(c->slices_wanted, d.slices_wanted);
  EXPECT_EQ(c->spatial, d.spatial);
  EXPECT_EQ(c->green_contexts, d.green_contexts);
  EXPECT_EQ(c->set_change_us, d.set_change_us);
  EXPECT_EQ(c->least_quantum_us(), d.least_quantum_us());
  EXPECT_EQ(c->quantum_max_us, d.quantum_max_us);
  EXPECT_EQ(c->latency_target_us, d.latency_target_us);
  EXPECT_EQ(c->short_gap_us, d.short_gap_us);
  EXPECT_EQ(c->handover_loss_percent, d.handover_loss_percent);
  EXPECT_EQ(c->max_lead_turns, d.max_lead_turns);
  EXPECT_EQ(c->chunk_target_us, d.chunk_target_us);
  EXPECT_EQ(c->trace, d.trace);
  EXPECT_EQ(c->trace_limit_bytes, d.trace_limit_bytes);
  EXPECT_EQ(c->by_registers, d.by_registers);
  EXPECT_EQ(c->by_switch_log, d.by_switch_log);
  EXPECT_EQ(c->by_words, d.by_words);
  EXPECT_EQ(c->accounting_cpu_percent, d.accounting_cpu_percent);
  EXPECT_EQ(c->registers_file, d.registers_file);
  EXPECT_EQ(c->daemon_user, d.daemon_user);
  EXPECT_EQ(c->daemon_group, d.daemon_group);
  EXPECT_EQ(c->kernel_log, d.kernel_log);
  EXPECT_EQ(c->worker_uids, d.worker_uids);
  EXPECT_EQ(c->require_walls, d.require_walls);
  EXPECT_EQ(c->join_ms, d.join_ms);
  EXPECT_EQ(c->worker_start_ms, d.worker_start_ms);
  EXPECT_EQ(c->session_end_ms, d.session_end_ms);
  EXPECT_EQ(c->evict_warn_ms, d.evict_warn_ms);
  EXPECT_EQ(c->evict_end_ms, d.evict_end_ms);
}

TEST(Config, TheSampleNamesEveryKeyOnce) {
  // Uncommenting what is commented out gives a file that is good too.
  std::string text = sample();
  for (const char* key : {"worker", "socket", "soft_library", "soft_file", "trace",
                          "registers_file", "socket_group", "socket_users", "socket_groups",
                          "spawner", "paths", "user", "group", "evict_end_ms", "slices", "turns"}) {
    const std::string line = std::string("\n#") + key + " = ";
    const size_t at = text.find(line);
    ASSERT_NE(at, std::string::npos) << key;
    text.erase(at + 1, 1);
  }
  auto c = parse_config(text, "sample");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->admin_socket, "/run/sluice/admin.sock");
}

TEST(Config, WhatIsLeftToUsFollowsTheGpu) {
  using worker_protocol::Signal;
  auto c = parse_config("", "f");
  EXPECT_EQ(c->signal_for(true), Signal::kProxy);
  EXPECT_EQ(c->signal_for(false), Signal::kHost);
  EXPECT_EQ(c->chunk_target_for(true), 20u);
  EXPECT_EQ(c->chunk_target_for(false), 200u);
  EXPECT_EQ(c->clones_for(true), Clones::kLazy);
  EXPECT_EQ(c->clones_for(false), Clones::kLazy);
  EXPECT_EQ(parse_config("[device]\nclones = \"eager\"", "f")->clones_for(false), Clones::kEager);
  EXPECT_EQ(c->code_cache_for(true), 64u << 20);
  EXPECT_EQ(c->code_cache_for(false), 0u);
  EXPECT_EQ(parse_config("[workers]\ncode_cache = \"32M\"", "f")->code_cache_for(false), 32u << 20);
  EXPECT_EQ(parse_config("[workers]\ncode_cache = \"0M\"", "f")->code_cache_for(true), 0u);
  EXPECT_EQ(parse_config("[device]\nclones = \"eager\"", "f")->clones_for(true), Clones::kEager);
  EXPECT_EQ(parse_config("[device]\nclones = \"none\"", "f")->clones_for(false), Clones::kNone);
  EXPECT_EQ(parse_config("[scheduler]\nslices = true", "f")->clones_for(true), Clones::kNone);
  EXPECT_EQ(parse_config("[scheduler]\nslices = true", "f")->clones_for(false), Clones::kLazy);
  EXPECT_EQ(c->evict_end_for(true), 500u);
  EXPECT_EQ(c->evict_end_for(false), 2000u);
  c = parse_config("[scheduler]\nchunk_target_us = 50", "f");
  EXPECT_EQ(c->chunk_target_for(true), 50u);
  EXPECT_EQ(c->chunk_target_for(false), 50u);
  for (Signal s : {Signal::kHost, Signal::kProxy, Signal::kWrite, Signal::kCopy}) {
    const std::string name(worker_protocol::kSignalNames[static_cast<size_t>(s)]);
    c = parse_config("[device]\nsignal = \"" + name + "\"\nsignal_chunk = 10", "f");
    ASSERT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(c->signal_for(true), s);
    EXPECT_EQ(c->signal_for(false), s);
    EXPECT_EQ(c->signal_chunk, 10u);
  }
}

TEST(Config, SourcesOfAccountingAreThoseNamed) {
  auto c =
      parse_config("[accounting]\nsources = [\"clock\", \"switch_log\"]\ncpu_percent = 5\n", "f");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_FALSE(c->by_registers);
  EXPECT_TRUE(c->by_switch_log);
  EXPECT_FALSE(c->by_words);
  EXPECT_EQ(c->accounting_cpu_percent, 5u);
  c = parse_config("[accounting]\nsources = [\"registers\", \"words\"]\n", "f");
  ASSERT_TRUE(c.ok());
  EXPECT_TRUE(c->by_registers && c->by_words);
  EXPECT_FALSE(c->by_switch_log);
}

struct Bad {
  const char* text;
  const char* message;  // must be in the error, after "f:LINE: "
  int line;
};

class ConfigErrors : public ::testing::TestWithParam<Bad> {};

TEST_P(ConfigErrors, NameTheLineAndTheKey) {
  auto c = parse_config(GetParam().text, "f");
  ASSERT_FALSE(c.ok());
  const std::string& m = c.error().message;
  EXPECT_EQ(m.rfind("f:" + std::to_string(GetParam().line) + ": ", 0), 0u) << m;
  EXPECT_NE(m.find(GetParam().message), std::string::npos) << m;
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigErrors,
    ::testing::Values(
        Bad{"runtime_dir = 3", "runtime_dir", 1},
        Bad{"runtime_dir = \"relative\"", "absolute path", 1},
        Bad{"\nruntime_dri = \"/run\"", "unknown key 'runtime_dri'", 2},
        Bad{"[workers]\nuids = \"0-9\"", "range of user ids", 2},
        Bad{"[workers]\nuids = \"9-3\"", "range of user ids", 2},
        Bad{"[workers]\nuids = \"1-4294967295\"", "range of user ids", 2},
        Bad{"[workers]\npaths = [\"opt\"]", "absolute paths", 2},
        Bad{"[vgpu]\nwieght = 3", "unknown key 'wieght' in [vgpu]", 2},
        Bad{"[nothing]\n", "unknown table [nothing]", 1}, Bad{"vgpu = 3", "must be a table", 1},
        Bad{"log_level = \"loud\"", "must be one of", 1}, Bad{"nice = 5", "from -20 to 0", 1},
        Bad{"[admin]\nmode = 0o660", "file mode in quotes", 2},
        Bad{"[admin]\nmode = \"0999\"", "file mode in quotes", 2},
        Bad{"[device]\nkind = \"amd\"", "must be one of", 2},
        Bad{"[device]\nsoft_sms = 0", "from 1 to 256", 2},
        Bad{"[device]\nsm_unit = 257", "from 0 to 256", 2},
        Bad{"[scheduler]\nset_change_us = -1", "from 0 to 1000000", 2},
        Bad{"[device]\nsignal = \"flag\"", "must be one of \"auto\", \"proxy\", \"host\"", 2},
        Bad{"[device]\nsignal = 1", "must be one of", 2},
        Bad{"[device]\nsignal_chunk = 1025", "from 0 to 1024", 2},
        Bad{"[device]\nadmission_us = -1", "from 0 to", 2},
        Bad{"[scheduler]\nchunk_target_us = -1", "from 0 to", 2},
        Bad{"[device]\nsoft_sms = \"4\"", "whole number", 2},
        Bad{"[vgpu]\n\nslots = 65", "from 1 to 64", 3}, Bad{"[vgpu]\nweight = 0", "from 1 to", 2},
        Bad{"[vgpu]\nweight = 1.5", "whole number", 2},
        Bad{"[vgpu]\nregion = \"100M\"", "power of two", 2},
        Bad{"[vgpu]\nregion = \"32G\"", "power of two", 2},
        Bad{"[vgpu]\nregion = 268435456", "in quotes", 2},
        Bad{"[vgpu]\nstaging = \"3M\"", "multiple of 2M", 2},
        Bad{"[vgpu]\nregion = \"32M\"\nslots = 64", "no room", 2},
        Bad{"[scheduler]\nquantum_min_us = 90000", "more than", 2},
        Bad{"[deadlines]\nevict_warn_ms = 9000", "more than", 2},
        Bad{"[accounting]\nsources = \"auto\"", "must be a list", 2},
        Bad{"[accounting]\nsources = []", "must be a list", 2},
        Bad{"[accounting]\nsources = [\"guess\"]", "\"switch_log\"", 2},
        Bad{"[accounting]\ncpu_percent = 90", "from 1 to 20", 2},
        Bad{"[worker_environment]\nA = 3", "must be a string", 2},
        Bad{"metrics_port = 9090", "unknown key", 1},  // not there yet: must not look as if it were
        Bad{"a = = 1", "", 1}, Bad{"[vgpu]\nslots = 3\nslots = 4", "slots", 3}));

// As it stands in the file of a host that is upgraded.
TEST(Config, AKeyThatIsGoneIsARemark) {
  const char* text = "[scheduler]\npolicy = \"wfq\"\nturn_fill = true\nmax_lead_turns = 7\n";
  auto c = parse_config(text, "f");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->max_lead_turns, 7u);
  EXPECT_EQ(c->remarks, std::vector<std::string>{
                            "f:3: scheduler.turn_fill does nothing any more; take it out"});
  EXPECT_TRUE(parse_config(sample(), "sample")->remarks.empty());
}

TEST(Config, MissingFileIsAnError) {
  auto c = load_config("/nonexistent/sluice.toml");
  ASSERT_FALSE(c.ok());
  EXPECT_EQ(c.error().code, ENOENT);
}

TEST(Config, AModeIsChosenOrFollowsFromHowItIsShared) {
  struct {
    const char* text;
    const char* mode;
    bool by_priority, slices, by_itself;
  } const cases[] = {
      {"", "strict", false, false, true},
      {"mode = \"strict\"", "strict", false, false, true},
      {"slices = true", "strict", false, true, true},
      {"mode = \"strict\"\nslices = false", "strict", false, false, true},
      {"turns = \"priority\"", "shared", true, false, false},
      {"spatial = true", "shared", false, false, false},
      {"mode = \"shared\"", "shared", true, false, false},
      {"turns = \"priority\"\nmode = \"shared\"", "shared", true, false, false},
      {"mode = \"shared\"\nspatial = true", "shared", false, false, false},
      {"mode = \"strict\"\nturns = \"eviction\"", "strict", false, false, false},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.text);
    auto c = parse_config(std::string("[scheduler]\n") + each.text, "f");
    ASSERT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(c->mode_name(), each.mode);
    EXPECT_EQ(c->turns_by_priority, each.by_priority);
    EXPECT_EQ(c->slices, each.slices);
    EXPECT_EQ(c->slices_for(true, true), each.by_itself);
    EXPECT_FALSE(c->slices_for(false, true)) << "not on the software GPU";
    EXPECT_FALSE(c->slices_for(true, false)) << "their use is not measured";
  }
  for (const char* text :
       {"mode = \"strict\"\nspatial = true", "mode = \"strict\"\nturns = \"priority\"",
        "mode = \"shared\"\nturns = \"eviction\"", "mode = \"shared\"\nslices = true",
        "mode = \"loose\""}) {
    SCOPED_TRACE(text);
    auto c = parse_config(std::string("[scheduler]\n") + text, "f");
    ASSERT_FALSE(c.ok());
    EXPECT_NE(c.error().message.find("mode"), std::string::npos) << c.error().message;
  }
}

TEST(Config, TheLeastQuantumIsLongerWhereTurnsArePriorities) {
  Config c;
  EXPECT_EQ(c.least_quantum_us(), 1000u);
  c.turns_by_priority = true;
  EXPECT_EQ(c.least_quantum_us(), 5000u);
  c.quantum_max_us = 3000;
  EXPECT_EQ(c.least_quantum_us(), 3000u);
  c.quantum_min_us = 200;
  EXPECT_EQ(c.least_quantum_us(), 200u);
}

}  // namespace
}  // namespace sluice
