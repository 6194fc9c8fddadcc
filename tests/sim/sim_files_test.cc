// SPDX-License-Identifier: Apache-2.0
// Workload files, traces and plots: what is right is read, what is wrong is answered with its
// place.
#include <gtest/gtest.h>

#include "policies/sim/files/json_workload.h"
#include "policies/sim/files/svg_plot.h"
#include "policies/sim/files/trace.h"
#include "policies/sim/metrics.h"
#include "policies/sim/random.h"

namespace sluice::policy::sim {
namespace {

const char* const kGood = R"({
  "name": "example", "baseline": "fcfs", "horizon_ms": 500,
  "gpu": {"sms": 132, "signal_us": 3, "start_us": 4, "spatial": true, "mechanism": "drain"},
  "config": {"min_quantum_ms": 1, "quantum_ms": 2},
  "kernels": [{"name": "long", "alone_us": 4000, "tasks": 1000, "blocks_per_sm": 8,
  "form_factor": 1.03},
              {"name": "short", "alone_us": 300.5, "tasks": 100, "drain_us": 45}],
  "vgpus": [{"name": "a", "weight": 300, "changes": [{"at_ms": 200, "weight": 100}]},
            {"name": "b", "priority": 2, "compared": false}],
  "programs": [{"name": "train", "vgpu": "a", "kernel": "long", "arrival": "backlog",
  "runs": 0, "queue_depth": 4},
               {"name": "serve", "vgpu": "b", "arrival": "poisson", "period_ms": 5, "runs": 0,
                "steps": [{"kernel": "short", "launches": 2, "host_us": 10, "sync": true}]}],
  "high_program": "serve"
})";

TEST(JsonWorkload, ReadsWhatIsRight) {
  const auto file = parse_workload(kGood);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Workload& w = file->workload;
  EXPECT_EQ(w.name, "example");
  EXPECT_EQ(w.gpu.sm_count, 132u);
  EXPECT_EQ(w.gpu.signal_ns, 3000u);
  EXPECT_EQ(w.kernels[1].alone_ns, 300'500u);
  EXPECT_EQ(w.kernels[1].drain_ns, 45'000u);
  EXPECT_EQ(w.vgpus[0].changes[0].at_ns, 200'000'000u);
  EXPECT_EQ(w.vgpus[0].changes[0].share.weight, 100u);
  EXPECT_EQ(w.vgpus[1].share.priority, 2u);
  EXPECT_EQ(w.programs[1].steps[0].launches, 2u);
  EXPECT_TRUE(w.programs[1].steps[0].sync);
  EXPECT_EQ(w.high_program, 1);
  EXPECT_EQ(w.max_events, kFileEvents);  // also without a word about it there is an end
  EXPECT_EQ(w.config.quantum_ns, 2'000'000u);
  const auto reports = evaluate_all(w, {"wfq", "piv", "fcfs"}, 1);
  ASSERT_TRUE(reports.ok()) << reports.error().message;
  EXPECT_GT((*reports)[1].mean.against_baseline.speedup_high, 1);
  EXPECT_DOUBLE_EQ((*reports)[2].mean.against_baseline.speedup_high, 1);
  for (const Report& r : *reports) EXPECT_EQ(r.mean.ending.violations, 0u);
}

TEST(JsonWorkload, ReadsCopies) {
  std::string text = kGood;
  const std::string from = "\"kernel\": \"short\"", to = "\"copy_us\": 3, \"way\": \"to-host\"";
  text.replace(text.find(from), from.size(), to);
  const auto file = parse_workload(text);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Step& step = file->workload.programs[1].steps[0];
  EXPECT_EQ(step.copy_ns, 3'000u);
  EXPECT_EQ(step.way, CopyWay::kToHost);
}

// Each replaces one piece of the good file and must be answered with the place.
TEST(JsonWorkload, NamesThePlaceOfWhatIsWrong) {
  const struct {
    const char *from, *to, *place;
  } cases[] = {
      {"\"sms\": 132", "\"sms\": 0", "gpu.sms"},
      {"\"sms\": 132", "\"sms\": 1e99", "gpu.sms"},
      {"\"sms\": 132", "\"sms\": 1.5", "whole number"},
      {"\"sms\": 132", "\"sms\": \"many\"", "must be a number"},
      {"\"sms\": 132", "\"smss\": 132", "unknown key 'smss'"},
      {"\"drain\"", "\"magic\"", "'magic' is none of drain, context-switch"},
      {"\"alone_us\": 4000", "\"alone_us\": -1", "kernels[0].alone_us"},
      {"\"alone_us\": 4000", "\"alone_us\": 0", "kernel 0 (long)"},
      {"\"alone_us\": 4000", "\"alone_us\": 1e300", "kernels[0].alone_us"},
      {"\"tasks\": 1000", "\"tasks\": 0", "kernels[0].tasks"},
      {"\"name\": \"short\"", "\"name\": \"long\"", "there twice"},
      {"\"weight\": 300", "\"weight\": 0", "vgpus[0].weight"},
      {"\"weight\": 300", "\"weight\": null", "must be a number"},
      {"\"priority\": 2", "\"priority\": 32", "vgpus[1].priority"},
      {"\"at_ms\": 200", "\"at_ms\": -2", "vgpus[0].changes[0].at_ms"},
      {"\"vgpu\": \"b\"", "\"vgpu\": \"c\"", "there is no vGPU 'c'"},
      {"\"kernel\": \"short\"", "\"kernel\": \"\"", "programs[1].steps[0].kernel"},
      {"\"period_ms\": 5", "\"period_ms\": 0", "its period is 0"},
      {"\"sync\": true", "\"sync\": 1", "must be true or false"},
      {"\"runs\": 0, \"queue_depth\": 4", "\"runs\": 0, \"queue_depth\": 0", "queue_depth"},
      {"\"horizon_ms\": 500,", "", "nothing ends it"},
      {"\"high_program\": \"serve\"", "\"high_program\": \"x\"", "high_program"},
      {"\"kernel\": \"short\"", "\"kernel\": \"short\", \"copy_us\": 3",
       "programs[1].steps[0]: has both"},
      {"\"kernel\": \"short\"", "\"copy_us\": 3, \"way\": \"up\"", "'up' is none of"},
      {"\"horizon_ms\": 500", "\"horizon_ms\": 500, \"account\": \"money\"", "'money' is none of"},
      {"\"min_quantum_ms\": 1", "\"min_quantum_ms\": 99", "above max_quantum_ms"},
      {"{\n", "[\n", "not JSON"},
      {"\"name\": \"example\",", "\"name\": \"example\"",
       "not JSON: syntax error at line 2, column 21"},
      {"\"sms\": 132", "\"sms\": NaN", "at line 3, column 18"},
      {"\"sms\": 132", "\"sms\": 132, \"sms\": 4", "the key 'sms' is there twice at line 3"},
      {"\"horizon_ms\": 500", "\"horizon_ms\": 500, \"\\u006eame\": \"x\"",
       "the key 'name' is there twice"},
      {"\"serve\"\n}", "\"serve\"\n", "ends too early"},
      {"\"serve\"\n}", "\"serve\"\n} {}", "extra data at line 15"},
      {"\"vgpus\":", "\"vms\":", "workload.vgpus: is missing"},
      {"\"vgpu\": \"a\", ", "", "programs[0].vgpu: is missing"},
      {"\"fcfs\"", "\"magic\"", "workload.baseline: there is no policy 'magic'"},
      {"\"arrival\": \"backlog\"", "\"arrival\": \"offsets\"",
       "programs[0].offsets_ms: is missing"},
      {"\"horizon_ms\": 500", "\"horizon_ms\": 500, \"max_events\": 0",
       "workload.max_events: must be 1 to"},
      {"\"queue_depth\": 4", "\"priority_range\": [0.5, 2]",
       "programs[0].priority_range[0]: must be a whole number"},
  };
  for (const auto& c : cases) {
    std::string text = kGood;
    const size_t at = text.find(c.from);
    ASSERT_NE(at, text.npos) << c.from;
    text.replace(at, std::string(c.from).size(), c.to);
    const auto file = parse_workload(text);
    ASSERT_FALSE(file.ok()) << c.to;
    EXPECT_NE(file.error().message.find(c.place), std::string::npos)
        << c.to << " gave: " << file.error().message;
  }
}

TEST(JsonWorkload, SurvivesRubbish) {
  Random r(3);
  const std::string good = kGood;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good.substr(0, r.below(8) ? good.size() : r.below(good.size()));
    for (uint64_t n = r.between(1, 6); n-- > 0 && !text.empty();) {
      const size_t at = r.below(text.size());
      if (r.below(2))
        text[at] = static_cast<char>(r.next());
      else
        text.insert(at, std::string(1 + r.below(4), "[]{},:\"0e-"[r.below(10)]));
    }
    const auto file = parse_workload(text);
    if (file.ok())
      EXPECT_EQ(check_workload(file->workload), "");
    else
      EXPECT_FALSE(file.error().message.empty());
  }
  EXPECT_NE(parse_workload(std::string(100'000, '[')).error().message.find("deeper than 16"),
            std::string::npos);
}

std::string recorded(const Workload& w) {
  TraceRecorder recorder(w);
  auto policy = find_policy("rr")->make(engine_config(w));
  (void)simulate(w, *policy, {.observer = &recorder});
  return recorder.text();
}

TEST(Trace, WhatWasRecordedCanBeReplayed) {
  auto file = parse_workload(kGood);
  ASSERT_TRUE(file.ok());
  Workload w = std::move(file->workload);
  for (Program& p : w.programs) p.runs = 10;
  w.programs[0].arrival = ArrivalKind::kClosed;
  w.programs[0].think_ns = 3'000'000;
  w.horizon_ns = 0;
  const auto replayed = parse_trace(recorded(w));
  ASSERT_TRUE(replayed.ok()) << replayed.error().message;
  EXPECT_EQ(replayed->gpu.sm_count, 132u);
  ASSERT_EQ(replayed->vgpus.size(), 2u);
  EXPECT_EQ(replayed->vgpus[0].share.weight, 300u);
  EXPECT_EQ(replayed->programs[0].offsets_ns.size(), 10u) << "one run for each interval with work";
  double traced = 0, truth = 0;
  for (uint64_t t : replayed->programs[0].offset_alone_ns) traced += static_cast<double>(t);
  auto policy = find_policy("rr")->make(engine_config(w));
  truth = static_cast<double>(simulate(w, *policy, {}).vgpus[0].sm_ns) / 132;
  EXPECT_NEAR(traced / truth, 1, 1e-3);
  const auto report = evaluate(*replayed, "wfq", 1);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->mean.ending.unfinished_runs, 0u);
}

TEST(Trace, NamesTheLineOfWhatIsWrong) {
  const std::string head = "{\"trace\":\"sluice\",\"version\":1,\"sms\":4}\n";
  const auto line = [](const char* rest) {
    return std::string("{\"t\":5,\"vgpu\":\"a\",") + rest + "}\n";
  };
  const std::string arrival = line("\"event\":\"arrival\"");
  for (const std::string& wrong :
       {std::string(), std::string("x\n"), std::string("{\"trace\":\"other\"}\n"),
        std::string("{\"trace\":\"sluice\",\"version\":1,\"sms\":0}\n"), head + "{}\n",
        head + arrival + arrival, head + line("\"event\":\"idle\""),
        head + line("\"event\":\"left\""), head + line("\"event\":\"party\""),
        head + line("\"event\":\"grant\",\"sms\":[2,1]"),
        head + line("\"event\":\"grant\",\"sms\":[0,5]"),
        head + line("\"event\":\"grant\"") + line("\"event\":\"grant\""),
        head + line("\"event\":\"share\",\"weight\":0,\"priority\":0"),
        head + arrival + "{\"t\":4,\"vgpu\":\"a\",\"event\":\"idle\"}\n",
        head + "{\"t\":-1,\"vgpu\":\"a\",\"event\":\"idle\"}\n"}) {
    const auto w = parse_trace(wrong);
    ASSERT_FALSE(w.ok()) << wrong;
    EXPECT_NE(w.error().message.find("line"), std::string::npos) << w.error().message;
  }
  EXPECT_FALSE(parse_trace(head).ok()) << "a trace of nothing is no workload";
}

TEST(SvgPlot, EscapesNamesAndSurvivesOddNumbers) {
  const std::string svg =
      svg_plot("a <b> & \"c\"", {"x", "<y>"},
               {{"t", {"g1", "g2"}, {{1, std::nan("")}, {-1, INFINITY}}}, {"empty", {}, {}}});
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_EQ(svg.find("<y>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace sluice::policy::sim
