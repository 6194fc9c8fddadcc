// SPDX-License-Identifier: Apache-2.0
// Run time of the rewritten form over the original's, never evicted; with the papers' ways of
// checking for evictions, and with kernel slicing, beside it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "tests/bench/preempt/measure.h"
#include "tests/bench/preempt/slice.h"

namespace sluice::bench {

namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Form {
  std::string name;
  CloneLaunch::Settings settings;
  int most_rounds = 1000;
  std::uint32_t window_us = 0;  // launched in windows of so long; 0: not
  bool choose = true;           // of two clones as the worker does, by what they took
};

// "NAME:key=value,..." on top of `form`.
Form variant_of(Form form, const std::string& text) {
  std::stringstream fields(text.substr(text.find(':') + 1));
  form.name = text.substr(0, text.find(':'));
  for (std::string field; std::getline(fields, field, ',');) {
    const std::size_t at = field.find('=');
    if (at == std::string::npos) die("no value in --variant " + text);
    const std::string key = field.substr(0, at);
    const int n = std::atoi(field.c_str() + at + 1);
    CloneLaunch::Settings& s = form.settings;
    if (key == "shift")
      s.loop.batch_shift = static_cast<std::uint8_t>(n);
    else if (key == "target")
      s.loop.target_us = static_cast<std::uint32_t>(n);
    else if (key == "max")
      s.loop.chunk_max = static_cast<std::uint16_t>(n);
    else if (key == "fixed")
      s.loop.fixed_chunk = static_cast<std::uint16_t>(n);
    else if (key == "first")
      s.first_chunk = static_cast<std::uint32_t>(n);
    else if (key == "signal")
      s.signal = static_cast<Signal>(n);
    else if (key == "clamp")
      s.clamp = n != 0;
    else if (key == "once") {
      s.one_task = n != 0;
      form.choose = false;
    } else if (key == "window_us")
      s.loop.window_us = static_cast<std::uint32_t>(n);
    else if (key == "lead")
      s.loop.window_lead_us = static_cast<std::uint32_t>(n);
    else if (key == "admission")
      s.loop.admission_us = static_cast<std::uint32_t>(n);
    else if (key == "window") {
      form.window_us = static_cast<std::uint32_t>(n);
      form.choose = false;
    } else if (key == "record")
      s.record = n != 0;
    else
      die("--variant knows no " + key);
  }
  return form;
}

class Ratio {
 public:
  Ratio(Gpu& gpu, const MeasureOptions& options) : gpu_(gpu), options_(options) {
    CU(gpu.api.cuEventCreate(&begin_, CU_EVENT_DEFAULT));
    CU(gpu.api.cuEventCreate(&end_, CU_EVENT_DEFAULT));
    Form ours{"adaptive", {}, 1000};
    ours.settings.loop.batch_shift = static_cast<std::uint8_t>(options.batch_shift);
    ours.settings.loop.target_us = options.target_us;
    forms_.push_back(ours);
    for (const std::string& v : options.variants) forms_.push_back(variant_of(ours, v));
    if (options.papers) {
      const auto add = [&](const char* name, Signal signal, std::uint16_t chunk) {
        Form f{name, {}, signal == Signal::kHost ? 2 : 3, false};
        f.settings.signal = signal;
        f.settings.loop.fixed_chunk = chunk;
        forms_.push_back(f);
      };
      add("effisha-1 every block polls the host", Signal::kHost, 1);
      add("effisha-2 proxy", Signal::kProxy, 1);
      // effisha-3, proxy and adaptive checking, is "adaptive" above.
      for (std::uint16_t l : {10, 50, 100, 200}) {
        static std::string names[4];
        std::string& name = names[l == 10 ? 0 : l == 50 ? 1 : l == 100 ? 2 : 3];
        name = "flep L=" + std::to_string(l);
        add(name.c_str(), Signal::kHost, l);
      }
      add("one ticket, device flag by stream write", Signal::kWrite, 1);
      Form w = ours;
      w.name = "adaptive, device flag (stream write or copy)";
      w.settings.signal = Signal::kWrite;
      forms_.push_back(w);
    }
  }

  void run(const CaseMaker& maker) {
    const suite::Case work = maker.make();
    const Module module = gpu_.load(work.ptx);
    CUmodule sliced = nullptr;
    if (options_.slicing) {
      auto text = add_slices(work.ptx);
      if (!text) die(text.error().message);
      CU(gpu_.api.cuModuleLoadDataEx(&sliced, text->c_str(), 0, nullptr, nullptr));
    }
    {
      Memory memory(gpu_, work);
      std::map<std::string, int> seen;
      for (const suite::Step& step : work.steps) {
        const auto* launch = std::get_if<suite::Launch>(&step);
        if (launch == nullptr) {
          memory.step(module, step);
          continue;
        }
        const Kernel& kernel = module.kernels.at(launch->kernel);
        auto params = memory.params(*launch);
        // The first launch of each kernel and grid.
        if (++seen[launch->kernel + "/" +
                   std::to_string(launch->grid[0] * launch->grid[1] * launch->grid[2])] <= 1)
          one(maker.name, memory, *launch, kernel, sliced);
        launch_original(gpu_, kernel.original, *launch, params, gpu_.stream);
        CU(gpu_.api.cuCtxSynchronize());
      }
    }
    if (sliced) CU(gpu_.api.cuModuleUnload(sliced));
    CU(gpu_.api.cuModuleUnload(module.cu));
  }

 private:
  // Milliseconds of what `queue` puts into the stream, memory having been restored.
  template <class F>
  double timed(Memory& memory, F queue) {
    memory.restore();
    gpu_.zero_control(0);
    CU(gpu_.api.cuStreamSynchronize(gpu_.stream));
    CU(gpu_.api.cuEventRecord(begin_, gpu_.stream));
    queue();
    CU(gpu_.api.cuEventRecord(end_, gpu_.stream));
    CU(gpu_.api.cuStreamSynchronize(gpu_.stream));
    float ms = 0;
    CU(gpu_.api.cuEventElapsedTime(&ms, begin_, end_));
    return ms;
  }

  void one(const std::string& name, Memory& memory, const suite::Launch& launch,
           const Kernel& kernel, CUmodule sliced) {
    memory.save();
    auto params = memory.params(launch);
    const auto original = [&] {
      launch_original(gpu_, kernel.original, launch, params, gpu_.stream);
    };
    timed(memory, original);
    const double first = timed(memory, original);
    // The shortest count too where they are asked for by name.
    if (first < 0.05 && options_.only.empty()) return memory.restore();
    std::vector<double> base{first};
    struct Timed {
      const Form* form;
      std::unique_ptr<CloneLaunch> last;
      std::vector<double> quotients;
    };
    std::vector<Timed> timings;
    for (const Form& form : forms_) timings.push_back({&form, nullptr, {}});
    for (Form& form : forms_)
      if (form.choose) {  // what the launch before took
        form.settings.one_task = false;
        form.settings.windows = {};
      }
    if (!CloneLaunch(gpu_, kernel, launch, params, 0, forms_[0].settings).evictable()) {
      std::printf(
          "{\"ratio\":\"%s\",\"kernel\":\"%s\",\"us\":%.1f,\"evictable\":false,\"why\":\"%s\"}\n",
          name.c_str(), launch.kernel.c_str(), 1000 * first,
          kernel.clone ? "fits at once" : std::string(kernel.report.code).c_str());
      timings.clear();
    }
    for (Form& form : forms_) {
      if (form.window_us == 0) continue;
      const auto tasks_in = [&](std::uint32_t us) {
        return static_cast<std::uint32_t>(
            worker::task_count(launch.grid[0], launch.grid[1], launch.grid[2]) * us /
            (1000 * first));
      };
      const auto resident =
          static_cast<std::uint32_t>(gpu_.resident(kernel.original, launch, launch.dynamic_shared));
      const std::uint32_t tasks = std::max(resident, tasks_in(form.window_us));
      const double task_ns = 1e6 * first * resident /
                             worker::task_count(launch.grid[0], launch.grid[1], launch.grid[2]);
      form.settings.windows = {
          tasks, static_cast<std::uint64_t>(tasks * task_ns / resident),
          static_cast<std::uint64_t>(task_ns + 1000.0 * form.settings.loop.window_lead_us)};
    }
    for (Form& form : forms_)
      if (form.choose && !timings.empty()) choose(form, memory, launch, kernel, params, first);
    // The forms of one round stand beside the same run of the original.
    for (int r = -1; r < options_.rounds && !timings.empty(); ++r) {
      const double o = timed(memory, original);
      base.push_back(o);
      for (Timed& t : timings) {
        if (r >= t.form->most_rounds) continue;
        CloneLaunch::Settings settings = t.form->settings;
        t.last = std::make_unique<CloneLaunch>(gpu_, kernel, launch, params, 0, settings);
        const double ms = timed(memory, [&] { t.last->queue(); });
        if (!t.last->done()) die("a launch that nobody evicted is not done: " + launch.kernel);
        // Round -1 warms up; very slow forms are not run again.
        if (r >= 0 || ms > 100) t.quotients.push_back(ms / o);
      }
      std::erase_if(timings, [&](Timed& t) {
        const bool slow = r < 0 && !t.quotients.empty();
        if (slow) print(name, launch, kernel, *t.form, *t.last, base, t.quotients);
        return slow;
      });
    }
    for (Timed& t : timings) print(name, launch, kernel, *t.form, *t.last, base, t.quotients);
    if (sliced) slices(name, memory, launch, kernel, sliced, params);
    memory.restore();
    CU(gpu_.api.cuCtxSynchronize());
  }

  // Which of two clones, as the worker learns it from its first launches.
  void choose(Form& form, Memory& memory, const suite::Launch& launch, const Kernel& kernel,
              const std::vector<std::byte>& params, double original_ms) {
    using worker::FormChoice, worker::FormKind;
    const std::uint32_t tasks = worker::task_count(launch.grid[0], launch.grid[1], launch.grid[2]);
    const auto resident =
        static_cast<std::uint32_t>(gpu_.resident(kernel.original, launch, launch.dynamic_shared));
    const auto task_ns = static_cast<std::uint64_t>(original_ms * 1e6 * resident / tasks);
    unsigned may = 0;
    if (kernel.one_task &&
        FormChoice::allowed(tasks, launch.block[0] * launch.block[1] * launch.block[2], task_ns,
                            kernel.report.in_order, form.settings.loop))
      may |= 1u << static_cast<int>(FormKind::kOneTask);
    const WindowPlan windows =
        FormChoice::windows(launch.grid.data(), resident, task_ns, form.settings.loop);
    if (kernel.window && windows.tasks != 0) may |= 1u << static_cast<int>(FormKind::kWindows);
    const auto take = [&](FormKind kind) {
      form.settings.one_task = kind == FormKind::kOneTask;
      form.settings.windows = kind == FormKind::kWindows ? windows : WindowPlan{};
    };
    FormChoice choice;
    for (int i = 0; i < 6 * worker::kForms && may != 0; ++i) {
      const auto kind = static_cast<FormKind>(i % worker::kForms);
      if (kind != FormKind::kLoop && (may & 1u << i % worker::kForms) == 0) continue;
      take(kind);
      CloneLaunch::Settings settings = form.settings;
      CloneLaunch clone(gpu_, kernel, launch, params, 0, settings);
      const double ms = timed(memory, [&] { clone.queue(); });
      if (i >= worker::kForms) choice.observe(kind, tasks, static_cast<std::uint64_t>(ms * 1e6));
    }
    take(may == 0 ? FormKind::kLoop : choice.next(may, kernel.report.in_order));
  }

  void print(const std::string& name, const suite::Launch& launch, const Kernel& kernel,
             const Form& form, CloneLaunch& last, const std::vector<double>& base,
             std::vector<double> quotients) {
    std::printf(
        "{\"ratio\":\"%s\",\"kernel\":\"%s\",\"form\":\"%s\",\"us\":%.1f,\"quotient\":%.4f,\"min\":"
        "%.4f,"
        "\"max\":%.4f,\"tasks\":%u,\"workers\":%u,\"registers\":%d,\"clone_registers\":%d,"
        "\"clamped_registers\":%d,\"one_task_registers\":%d,\"in_order\":%d,\"once\":%d,"
        "\"windows\":%u,\"resident\":%d}\n",
        name.c_str(), launch.kernel.c_str(), form.name.c_str(), 1000 * median(base),
        median(quotients), *std::min_element(quotients.begin(), quotients.end()),
        *std::max_element(quotients.begin(), quotients.end()), last.tasks(), last.workers(),
        kernel.registers, kernel.clone_registers, last.clamped() ? kernel.clamped_registers : 0,
        kernel.one_task_registers, kernel.report.in_order, last.one_task(),
        last.windows() ? last.settings().windows.tasks : 0,
        gpu_.resident(kernel.original, launch, launch.dynamic_shared));
  }

  // Slices of about `options_.target_us`, back to back and with a decision of the host after each.
  void slices(const std::string& name, Memory& memory, const suite::Launch& launch,
              const Kernel& kernel, CUmodule module, std::vector<std::byte> params) {
    CUfunction f = nullptr;
    if (gpu_.api.cuModuleGetFunction(&f, module, (launch.kernel + kSliceSuffix).c_str()) !=
        CUDA_SUCCESS)
      return;
    const std::uint32_t tasks = worker::task_count(launch.grid[0], launch.grid[1], launch.grid[2]);
    const auto wave =
        static_cast<std::uint32_t>(gpu_.resident(kernel.original, launch, launch.dynamic_shared));
    if (tasks <= wave || kernel.report.in_order) return;
    std::vector<std::byte> plain = params;
    const auto original = [&] {
      launch_original(gpu_, kernel.original, launch, plain, gpu_.stream);
    };
    const double whole_us = 1000 * timed(memory, original);
    const double wave_us = whole_us * wave / tasks;
    const auto waves = static_cast<std::uint32_t>(std::max(1.0, options_.target_us / wave_us));
    params.resize((params.size() + 3) / 4 * 4 + sizeof(SliceParams));
    suite::Launch slice = launch;
    const auto run = [&](bool wait) {
      for (std::uint32_t first = 0; first < tasks; first += wave * waves) {
        const SliceParams p{{launch.grid[0], launch.grid[1], launch.grid[2]}, first};
        std::memcpy(params.data() + params.size() - sizeof p, &p, sizeof p);
        slice.grid = {std::min(wave * waves, tasks - first), 1, 1};
        launch_original(gpu_, f, slice, params, gpu_.stream);
        if (wait) CU(gpu_.api.cuStreamSynchronize(gpu_.stream));
      }
    };
    for (bool wait : {false, true}) {
      std::vector<double> quotients;
      for (int r = 0; r < 3; ++r) {
        const double o = timed(memory, original);
        quotients.push_back(timed(memory, [&] { run(wait); }) / o);
      }
      std::printf(
          "{\"ratio\":\"%s\",\"kernel\":\"%s\",\"form\":\"%s\",\"us\":%.1f,\"quotient\":%.4f,"
          "\"slice_us\":%.1f,\"tasks\":%u}\n",
          name.c_str(), launch.kernel.c_str(),
          wait ? "slicing, a decision after each" : "slicing, back to back", whole_us,
          median(quotients), wave_us * waves, tasks);
    }
  }

  Gpu& gpu_;
  const MeasureOptions& options_;
  CUevent begin_ = nullptr, end_ = nullptr;
  std::vector<Form> forms_;
};

}  // namespace

void measure_ratio(Gpu& gpu, const MeasureOptions& options) {
  Ratio ratio(gpu, options);
  for (const CaseMaker& maker : cases_of(options)) {
    ratio.run(maker);
    std::fflush(stdout);
  }
}

}  // namespace sluice::bench
