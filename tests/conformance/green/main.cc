// SPDX-License-Identifier: Apache-2.0
// One program of green-context calls, right and wrong ones, that says what each answered and how
// many SMs blocks were on. `green-calls LIBRARY`: libcuda.so.1 on a GPU, or libsluice-softcuda.so
// in the shape of that GPU. Everything printed is the same in every run. Each section is a process
// of its own, because a wrong call may end it.
#include <sys/wait.h>

#include "tests/conformance/green/calls.h"

namespace {

void resources() {
  CUdevResource r;
  CALL(cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_SM));
  NEED(cuInit(0));
  for (int type : {0, 1, 2, 3, 999}) {
    std::printf("type %d: ", type);
    CALL(cuDeviceGetDevResource(0, &r, static_cast<CUdevResourceType>(type)));
  }
  CALL(cuDeviceGetDevResource(1000, &r, CU_DEV_RESOURCE_TYPE_SM));
  CALL(cuDeviceGetDevResource(0, nullptr, CU_DEV_RESOURCE_TYPE_SM));
  set_up();
  show("device", all);
  CALL(cuCtxGetDevResource(nullptr, &r, CU_DEV_RESOURCE_TYPE_SM));
  CALL(cuCtxGetDevResource(primary, &r, CU_DEV_RESOURCE_TYPE_SM));
  show("context", r);
  CALL(cuCtxGetDevResource(primary, &r, CU_DEV_RESOURCE_TYPE_INVALID));
  CALL(cuGreenCtxGetDevResource(nullptr, &r, CU_DEV_RESOURCE_TYPE_SM));
}

void splits() {
  set_up();
  for (unsigned flags = 0; flags <= 4; ++flags) {
    for (unsigned wanted : {0u, 1u, 2u, 3u, 8u, 9u, 17u, 66u, 67u, 131u, 132u, 133u}) {
      unsigned asked = 0, count = 200;
      std::vector<CUdevResource> g(200);
      CUdevResource left;
      std::memset(&left, 0, sizeof left);
      const CUresult query =
          api.cuDevSmResourceSplitByCount(nullptr, &asked, &all, nullptr, flags, wanted);
      const CUresult made =
          api.cuDevSmResourceSplitByCount(g.data(), &count, &all, &left, flags, wanted);
      std::printf("flags %u, %u SMs: %d %d", flags, wanted, query, made);
      if (made == CUDA_SUCCESS) {
        std::printf(", %u %u groups, ", asked, count);
        show("first", g[0]);
        show("  left", left);
      } else {
        std::printf("\n");
      }
    }
  }
  CUdevResource r = nothing(), left = nothing();
  unsigned count = 1, none = 0;
  CALL(cuDevSmResourceSplitByCount(&r, nullptr, &all, nullptr, kFine, 2));
  CALL(cuDevSmResourceSplitByCount(&r, &count, nullptr, nullptr, kFine, 2));
  CALL(cuDevSmResourceSplitByCount(&r, &none, &all, &left, kFine, 2));
  show("no groups: left", left);
  CALL(cuDevSmResourceSplitByCount(&r, &count, &all, &left, kFine, 2));
  show("one group: left", left);
  CUdevResource again = nothing(), rest = nothing();
  CALL(cuDevSmResourceSplitByCount(&again, &count, &left, &rest, kFine, 2));
  show("left, split again: left", rest);
  CALL(cuDevSmResourceSplitByCount(&again, &count, &r, nullptr, kFine, 2));
  left = all;
  count = 0;
  CALL(cuDevSmResourceSplitByCount(nullptr, &count, &all, &left, kFine, 2));
  show("asked only: left", left);
  CUdevResource forged;
  std::memset(&forged, 0, sizeof forged);
  CALL(cuDevSmResourceSplitByCount(&r, &(count = 1), &forged, nullptr, kFine, 0));
}

void descriptors() {
  set_up();
  CUdevResource left;
  const auto a = groups_of(all, 4, &left), b = groups_of(all, 4);
  CUdevResource group = a[0];
  CUdevResourceDesc desc = nullptr;
  CALL(cuDevResourceGenerateDesc(nullptr, &group, 1));
  CALL(cuDevResourceGenerateDesc(&desc, nullptr, 1));
  say("the device's", describe_all({all}, &desc));
  say("two of a split", describe_all({a[1], a[0]}, &desc));
  say("all of a split", describe_all(a, &desc));
  say("one twice", describe_all({a[0], a[0]}, &desc));
  say("of two splits", describe_all({a[0], b[1]}, &desc));
  say("a group and all", describe_all({a[0], all}, &desc));
  say("all twice", describe_all({all, all}, &desc));
  CUdevResource none;
  std::memset(&none, 0, sizeof none);
  say("of no type", describe_all({none}, &desc));
  say("a group and one of no type", describe_all({a[0], none}, &desc));
}

void contexts() {
  NEED(cuInit(0));
  NEED(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  CUdevResourceDesc desc = nullptr;
  need("describe", describe_all({groups_of(all, 4)[0]}, &desc));
  CUgreenCtx green = nullptr, second = nullptr;
  unsigned flags = 0;
  int active = 0;
  CALL(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
  VALUE(active);
  CUcontext now = nullptr;
  NEED(cuCtxGetCurrent(&now));
  VALUE(now != nullptr);
  CALL(cuGreenCtxDestroy(green));
  NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
  VALUE(active);
  set_up();
  need("describe", describe_all({groups_of(all, 4)[0]}, &desc));
  CALL(cuGreenCtxCreate(nullptr, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CALL(cuGreenCtxCreate(&green, desc, 0, 0));
  CALL(cuGreenCtxCreate(&green, desc, 0, 2));
  CALL(cuGreenCtxCreate(&green, desc, 0, 3));
  CALL(cuGreenCtxCreate(&green, desc, 1000, CU_GREEN_CTX_DEFAULT_STREAM));
  CALL(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CALL(cuGreenCtxCreate(&second, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  VALUE(green == second);
  CUdevResource r;
  CALL(cuGreenCtxGetDevResource(green, &r, CU_DEV_RESOURCE_TYPE_SM));
  show("its", r);
  unsigned count = 1;
  CUdevResource half = nothing();
  CALL(cuDevSmResourceSplitByCount(&half, &count, &r, nullptr, kFine, 2));
  show("split", half);
  CUcontext view = nullptr, same = nullptr;
  CALL(cuCtxFromGreenCtx(&view, green));
  CALL(cuCtxFromGreenCtx(&same, green));
  VALUE(view == same);
  VALUE(view == primary);
  CALL(cuCtxFromGreenCtx(nullptr, green));
  CALL(cuCtxFromGreenCtx(&view, nullptr));
  CALL(cuCtxDestroy_v2(view));
  CALL(cuGreenCtxDestroy(nullptr));
}

void streams() {
  set_up();
  const CUgreenCtx green = green_of({groups_of(all, 4)[0]});
  CUstream stream = nullptr;
  CALL(cuGreenCtxStreamCreate(nullptr, green, CU_STREAM_NON_BLOCKING, 0));
  CALL(cuGreenCtxStreamCreate(&stream, nullptr, CU_STREAM_NON_BLOCKING, 0));
  CALL(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0));
  CALL(cuGreenCtxStreamCreate(&stream, green, 2, 0));
  CALL(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, -100));
  int priority = 0;
  CALL(cuStreamGetPriority(stream, &priority));
  VALUE(priority);
  CUcontext view = nullptr, of_stream = nullptr;
  CUgreenCtx its = nullptr;
  NEED(cuCtxFromGreenCtx(&view, green));
  CALL(cuStreamGetCtx(stream, &of_stream));
  VALUE(of_stream == view);
  CALL(cuStreamGetGreenCtx(stream, &its));
  VALUE(its == green);
  CALL(cuStreamGetGreenCtx(nullptr, &its));
  VALUE(its == nullptr);
  CALL(cuStreamGetGreenCtx(stream, nullptr));
  count_sms("its stream", stream);
  count_sms("the default stream", nullptr);
  CUstream plain = nullptr;
  NEED(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
  count_sms("another stream", plain);
  CALL(cuCtxSetCurrent(view));
  CUcontext now = nullptr;
  NEED(cuCtxGetCurrent(&now));
  VALUE(now == view);
  count_sms("made current: the default stream", nullptr);
  count_sms("made current: a stream of the primary context", plain);
  CALL(cuStreamGetGreenCtx(nullptr, &its));
  VALUE(its == green);
  CALL(cuStreamGetGreenCtx(CU_STREAM_PER_THREAD, &its));
  say("a launch in the thread's stream", launch_empty(CU_STREAM_PER_THREAD));
  CALL(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  CUstream blocking = nullptr;
  CALL(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  count_sms("made current: a stream made", blocking);
  int sms = 0, grid = 0, block = 0, blocks = 0;
  CALL(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  VALUE(sms);
  NEED(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, places, 1024, 0));
  VALUE(blocks);
  CALL(cuOccupancyMaxPotentialBlockSize(&grid, &block, places, nullptr, 0, 0));
  VALUE(grid / blocks);
  CUdeviceptr out = 0;
  NEED(cuMemAlloc(&out, 1 << 20));
  void* arguments[] = {&out};
  const unsigned most = static_cast<unsigned>(blocks) * 4;
  CALL(cuLaunchCooperativeKernel(places, most, 1, 1, 1024, 1, 1, 0, nullptr, arguments));
  CALL(cuLaunchCooperativeKernel(places, most + 1, 1, 1, 1024, 1, 1, 0, nullptr, arguments));
  CALL(cuCtxSetCurrent(primary));
  CALL(cuLaunchCooperativeKernel(places, most, 1, 1, 1024, 1, 1, 0, stream, arguments));
  CALL(cuLaunchCooperativeKernel(places, most + 1, 1, 1, 1024, 1, 1, 0, stream, arguments));
  CALL(cuCtxSetCurrent(reinterpret_cast<CUcontext>(green)));
}

void order() {
  set_up();
  const auto groups = groups_of(all, 4);
  const CUgreenCtx green = green_of({groups[0]});
  CUcontext view = nullptr;
  NEED(cuCtxFromGreenCtx(&view, green));
  CUstream its = stream_of(green), plain = nullptr, blocking = nullptr;
  NEED(cuStreamCreate(&plain, CU_STREAM_DEFAULT));
  NEED(cuCtxSetCurrent(view));
  NEED(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  NEED(cuCtxSetCurrent(primary));
  unsigned* flag = flag_word();
  CUevent event = nullptr, other = nullptr;
  NEED(cuEventCreate(&event, 0));
  NEED(cuEventCreate(&other, 0));

  need("spin", launch_spin(flag, blocking));
  need("empty", launch_empty(nullptr));
  say("the primary's default stream behind a blocking one of the green context",
      query_later(nullptr));
  need("empty", launch_empty(its));
  say("its non-blocking one", query_later(its));
  NEED(cuCtxSetCurrent(view));
  need("empty", launch_empty(nullptr));
  say("its default stream", query_later(nullptr));
  set(flag);
  CALL(cuCtxSynchronize());
  *flag = 0;
  need("spin", launch_spin(flag, nullptr));
  need("empty", launch_empty(blocking));
  say("a blocking one behind its default stream", query_later(blocking));
  NEED(cuCtxSetCurrent(primary));
  set(flag);
  CALL(cuCtxSynchronize());

  *flag = 0;
  need("spin", launch_spin(flag, plain));
  NEED(cuCtxSetCurrent(view));
  need("empty", launch_empty(nullptr));
  say("its default stream behind a blocking one of the primary context", query_later(nullptr));
  CALL(cuCtxSynchronize());
  NEED(cuCtxSetCurrent(primary));
  set(flag);
  CALL(cuCtxSynchronize());

  *flag = 0;
  need("spin", launch_spin(flag, its));
  CALL(cuGreenCtxRecordEvent(green, event));
  CALL(cuEventQuery(event));
  CALL(cuStreamWaitEvent(plain, event, 0));
  say("the primary's stream that waits for the event", query_later(plain));
  CALL(cuEventRecord(other, its));
  CALL(cuEventQuery(other));
  set(flag);
  CALL(cuEventSynchronize(event));
  CALL(cuEventSynchronize(other));

  *flag = 0;
  need("spin", launch_spin(flag, plain));
  NEED(cuEventRecord(event, plain));
  CALL(cuGreenCtxWaitEvent(green, event));
  need("empty", launch_empty(its));
  say("its stream after the wait", query_later(its));
  const CUstream late = stream_of(green);
  need("empty", launch_empty(late));
  say("a stream made later", query_later(late));
  set(flag);
  CALL(cuCtxSynchronize());
  CALL(cuGreenCtxRecordEvent(green, nullptr));
  CALL(cuGreenCtxWaitEvent(green, nullptr));
}

void ends() {
  set_up();
  const auto groups = groups_of(all, 4);
  CUgreenCtx green = green_of({groups[0]});
  CUstream its = stream_of(green), left = stream_of(green);
  CUcontext view = nullptr;
  NEED(cuCtxFromGreenCtx(&view, green));
  CALL(cuStreamDestroy_v2(its));
  CALL(cuGreenCtxDestroy(green));
  CALL(cuStreamQuery(left));
  say("a launch in a stream that was left", launch_empty(left));
  CALL(cuStreamSynchronize(left));
  CALL(cuStreamDestroy_v2(left));
  CALL(cuCtxSynchronize());
  // While work is under way.
  green = green_of({groups[1]});
  its = stream_of(green);
  unsigned* flag = flag_word();
  need("spin", launch_spin(flag, its));
  NEED(cuStreamDestroy_v2(its));
  set(flag);
  CALL(cuGreenCtxDestroy(green));
  CALL(cuCtxSynchronize());
}
void destroyed_twice() {
  set_up();
  const CUgreenCtx green = green_of({groups_of(all, 4)[0]});
  NEED(cuGreenCtxDestroy(green));
  CALL(cuGreenCtxDestroy(green));
  CUdevResource r;
  CALL(cuGreenCtxGetDevResource(green, &r, CU_DEV_RESOURCE_TYPE_SM));
}
void current_destroyed() {
  set_up();
  const CUgreenCtx green = green_of({groups_of(all, 4)[0]});
  CUcontext view = nullptr;
  NEED(cuCtxFromGreenCtx(&view, green));
  NEED(cuCtxSetCurrent(view));
  CALL(cuGreenCtxDestroy(green));
  CALL(cuCtxSynchronize());
  CALL(cuCtxSetCurrent(view));
}
void primary_released() {
  set_up();
  const CUgreenCtx green = green_of({groups_of(all, 4)[0]});
  const CUstream its = stream_of(green);
  CALL(cuDevicePrimaryCtxRelease_v2(0));
  say("a launch", launch_empty(its));
  CALL(cuStreamSynchronize(its));
  CALL(cuDevicePrimaryCtxReset_v2(0));
  CUstream late = nullptr;
  CALL(cuGreenCtxStreamCreate(&late, green, CU_STREAM_NON_BLOCKING, 0));
  CALL(cuGreenCtxDestroy(green));
}

// These end NVIDIA's driver (580).
void no_resources() {
  set_up();
  CUdevResource group = groups_of(all, 4)[0];
  CUdevResourceDesc desc = nullptr;
  CALL(cuDevResourceGenerateDesc(&desc, &group, 0));
}
void split_in_place() {
  set_up();
  unsigned count = 1;
  CALL(cuDevSmResourceSplitByCount(&all, &count, &all, nullptr, kFine, 2));
}
void no_descriptor() {
  set_up();
  CUgreenCtx green = nullptr;
  CUdevResource r = nothing();
  CALL(cuGreenCtxCreate(&green, nullptr, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  if (green == nullptr) return;
  CALL(cuGreenCtxGetDevResource(green, &r, CU_DEV_RESOURCE_TYPE_SM));
  show("its", r);
}

const struct {
  const char* name;
  void (*run)();
} kSections[] = {{"resources", resources},
                 {"splits", splits},
                 {"descriptors", descriptors},
                 {"contexts", contexts},
                 {"streams", streams},
                 {"order", order},
                 {"ends", ends},
                 {"destroyed_twice", destroyed_twice},
                 {"current_destroyed", current_destroyed},
                 {"primary_released", primary_released},
                 {"no_resources", no_resources},
                 {"split_in_place", split_in_place},
                 {"no_descriptor", no_descriptor}};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: green-calls LIBRARY [SECTION...]\n");
    return 2;
  }
  for (const auto& section : kSections) {
    bool wanted = argc == 2;
    for (int i = 2; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], section.name) == 0;
    if (!wanted) continue;
    std::printf("== %s\n", section.name);
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);  // a call that never comes back is an answer, too
      auto loaded = gpu::load_driver(argv[1]);
      if (!loaded) {
        std::printf("%s\n", loaded.error().message.c_str());
        std::fflush(stdout);
        std::_Exit(1);
      }
      api = *std::move(loaded);
      section.run();
      std::fflush(stdout);
      std::_Exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) std::printf("ended by signal %d\n", WTERMSIG(status));
    std::fflush(stdout);
  }
  return 0;
}
