// SPDX-License-Identifier: Apache-2.0
// Compilers in a process with libsluice-jit.so in front (LD_PRELOAD): machine code keeps its PTX.
// The compilers are fakes, and NVIDIA's where they are installed ($SLUICE_TEST_TOOLKIT). With
// SLUICE_JIT=off, for which the tests named Off are, everything is the compilers' own.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cubin/cubin.h"
#include "tests/jit/fakes.h"

namespace sluice {
namespace {

constexpr int kPtx = 2, kCubin = 1, kLtoIr = 3, kObject = 5;

std::string folder() { return ::getenv("SLUICE_TEST_FAKES"); }

// A library's functions by dlsym, as programs find them that load it themselves.
class Loaded {
 public:
  explicit Loaded(const std::string& path)
      : handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  explicit operator bool() const { return handle_ != nullptr; }
  template <class... A>
  int call(const char* name, A... a) const {
    auto* f = reinterpret_cast<int (*)(A...)>(::dlsym(handle_, name));
    if (f == nullptr) return -1;
    return f(a...);
  }

 private:
  void* handle_;
};

std::string ptx_of(const std::string& code) {
  const auto known = cubin::read(code);
  EXPECT_TRUE(known) << known.error().message;
  return known ? std::string(known->ptx) : "";
}

struct Compiled {
  int status;
  std::string code, ptx;
};
Compiled compile(const Loaded& nvrtc, const char* source,
                 const std::vector<const char*>& options = {"-arch=sm_90"}) {
  void* p = nullptr;
  Compiled made;
  EXPECT_EQ(nvrtc.call("nvrtcCreateProgram", &p, source, "a.cu", 0, static_cast<char**>(nullptr),
                       static_cast<char**>(nullptr)),
            0);
  made.status =
      nvrtc.call("nvrtcCompileProgram", p, static_cast<int>(options.size()), options.data());
  size_t bytes = 0;
  EXPECT_EQ(nvrtc.call("nvrtcGetPTXSize", p, &bytes), 0);
  made.ptx.resize(bytes);
  EXPECT_EQ(nvrtc.call("nvrtcGetPTX", p, made.ptx.data()), 0);
  made.ptx.resize(std::strlen(made.ptx.c_str()));
  EXPECT_EQ(nvrtc.call("nvrtcGetCUBINSize", p, &bytes), 0);
  made.code.resize(bytes);
  EXPECT_EQ(nvrtc.call("nvrtcGetCUBIN", p, made.code.data()), 0);
  EXPECT_EQ(nvrtc.call("nvrtcDestroyProgram", &p), 0);
  return made;
}

struct Input {
  int type;
  std::string bytes;
};
Compiled link(const Loaded& library, const std::vector<Input>& inputs,
              std::vector<const char*> options = {"-arch=sm_90"}, const std::string& version = "") {
  const auto name = [&](const char* plain) {
    return version.empty() ? plain : "__" + std::string(plain) + version;
  };
  void* h = nullptr;
  Compiled made;
  EXPECT_EQ(library.call(name("nvJitLinkCreate").c_str(), &h, static_cast<uint32_t>(options.size()),
                         options.data()),
            0);
  for (const Input& input : inputs)
    EXPECT_EQ(library.call(name("nvJitLinkAddData").c_str(), h, input.type, input.bytes.data(),
                           input.bytes.size(), "input"),
              0);
  made.status = library.call(name("nvJitLinkComplete").c_str(), h);
  size_t bytes = 0;
  if (library.call(name("nvJitLinkGetLinkedCubinSize").c_str(), h, &bytes) == 0) {
    made.code.resize(bytes);
    EXPECT_EQ(library.call(name("nvJitLinkGetLinkedCubin").c_str(), h, made.code.data()), 0);
  }
  EXPECT_EQ(library.call(name("nvJitLinkDestroy").c_str(), &h), 0);
  return made;
}

const Loaded& fake_nvrtc() {
  static const Loaded library(folder() + "/libnvrtc.so.13");
  return library;
}
const Loaded& fake_link() {
  static const Loaded library(folder() + "/libnvJitLink.so.13");
  return library;
}

TEST(Nvrtc, MachineCodeKeepsItsPtx) {
  const Compiled made = compile(fake_nvrtc(), "scale");
  ASSERT_EQ(made.status, 0);
  EXPECT_EQ(ptx_of(made.code), made.ptx);
  EXPECT_NE(made.ptx.find("// thirteen"), std::string::npos);
  const auto plain = test::scale_machine_code();
  EXPECT_EQ(cubin::read(made.code)->kernels[0].params.size(),
            cubin::read(plain)->kernels[0].params.size());
}

TEST(Nvrtc, WithoutPtxOrCodeTheAnswerIsTheCompilers) {
  EXPECT_EQ(compile(fake_nvrtc(), "no ptx").code, test::scale_machine_code());
  const Compiled made = compile(fake_nvrtc(), "#error");
  EXPECT_EQ(made.status, 6);
  EXPECT_EQ(made.code, "");
}

TEST(Nvrtc, WhoDoesNotAskForTheSizeGetsTheCompilersCode) {
  void* p = nullptr;
  char** none = nullptr;
  const Loaded& nvrtc = fake_nvrtc();
  ASSERT_EQ(nvrtc.call("nvrtcCreateProgram", &p, "scale", "a.cu", 0, none, none), 0);
  ASSERT_EQ(nvrtc.call("nvrtcCompileProgram", p, 0, none), 0);
  const std::string plain = test::scale_machine_code();
  const auto first = [&] {  // its first bytes, in front of what must not be written
    std::string to(plain.size() + 64, '?');
    EXPECT_EQ(nvrtc.call("nvrtcGetCUBIN", p, to.data()), 0);
    return to;
  };
  EXPECT_EQ(first(), plain + std::string(64, '?'));
  size_t bytes = 0;
  ASSERT_EQ(nvrtc.call("nvrtcGetCUBINSize", p, &bytes), 0);
  EXPECT_GT(bytes, plain.size());
  // Compiled once more, its size is not known any more.
  ASSERT_EQ(nvrtc.call("nvrtcCompileProgram", p, 0, none), 0);
  EXPECT_EQ(first(), plain + std::string(64, '?'));
  ASSERT_EQ(nvrtc.call("nvrtcDestroyProgram", &p), 0);
}

TEST(Nvrtc, TwoLibrariesAreTwo) {
  const Loaded twelve(folder() + "/twelve/libnvrtc.so.12");
  ASSERT_TRUE(twelve);
  EXPECT_NE(ptx_of(compile(fake_nvrtc(), "scale").code).find("// thirteen"), std::string::npos);
  EXPECT_NE(ptx_of(compile(twelve, "scale").code).find("// twelve"), std::string::npos);
  EXPECT_NE(ptx_of(compile(fake_nvrtc(), "scale").code).find("// thirteen"), std::string::npos);
}

TEST(Linked, NamesComeFromTheLoader) {
  void* library = ::dlopen((folder() + "/libjit-linked-caller.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  auto* make = reinterpret_cast<size_t (*)(char*, size_t)>(::dlsym(library, "linked_compile"));
  auto* link = reinterpret_cast<size_t (*)(const char*, size_t, char*, size_t)>(
      ::dlsym(library, "linked_link"));
  ASSERT_TRUE(make != nullptr && link != nullptr);
  std::string code(1 << 16, '\0');
  code.resize(make(code.data(), code.size()));
  EXPECT_NE(ptx_of(code).find("// twelve"), std::string::npos) << "the one that it is linked with";
  const std::string ptx = test::scale_ptx();
  code.resize(1 << 16);
  code.resize(link(ptx.data(), ptx.size(), code.data(), code.size()));
  EXPECT_EQ(ptx_of(code), ptx);
}

TEST(JitLink, OneTextIsKept) {
  const std::string ptx = test::scale_ptx();
  for (const char* version : {"", "_13_0"}) {
    EXPECT_EQ(ptx_of(link(fake_link(), {{kPtx, ptx}}, {"-arch=sm_90"}, version).code), ptx);
    EXPECT_EQ(ptx_of(link(fake_link(), {{kPtx, ptx + '\0'}}, {"-arch=sm_90"}, version).code), ptx);
  }
}

TEST(JitLink, SeveralTextsAreJoined) {
  const std::string one = test::scale_ptx("one"), carried = compile(fake_nvrtc(), "scale").code;
  const std::string ptx = ptx_of(link(fake_link(), {{kPtx, one}, {kCubin, carried}}).code);
  EXPECT_NE(ptx.find(".entry one"), std::string::npos);
  EXPECT_NE(ptx.find(".entry scale"), std::string::npos);
  // Twice the same cannot be joined: then the code is nvJitLink's.
  EXPECT_EQ(link(fake_link(), {{kPtx, one}, {kPtx, one}}).code, test::scale_machine_code());
}

TEST(JitLink, IntermediateCodeIsLinkedOnceMore) {
  const std::string ptx =
      ptx_of(link(fake_link(), {{kLtoIr, "ir"}, {kPtx, test::scale_ptx()}}, {"-lto"}).code);
  EXPECT_NE(ptx.find("// linked of 2"), std::string::npos);
}

TEST(JitLink, AFileIsKeptAndAPipeIsLeftAlone) {
  char name[] = "/tmp/sluice-jit-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string at(name), file = at + "/a.ptx", pipe = at + "/pipe", ptx = test::scale_ptx();
  std::ofstream(file) << ptx;
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto linked = [&](const std::string& path) {
    const Loaded linker = fake_link();
    void* handle = nullptr;
    size_t bytes = 0;
    EXPECT_EQ(linker.call("nvJitLinkCreate", &handle, 0u, static_cast<const char**>(nullptr)), 0);
    EXPECT_EQ(linker.call("nvJitLinkAddFile", handle, kPtx, path.c_str()), 0);
    EXPECT_EQ(linker.call("nvJitLinkComplete", handle), 0);
    EXPECT_EQ(linker.call("nvJitLinkGetLinkedCubinSize", handle, &bytes), 0);
    std::string code(bytes, '\0');
    EXPECT_EQ(linker.call("nvJitLinkGetLinkedCubin", handle, static_cast<void*>(code.data())), 0);
    linker.call("nvJitLinkDestroy", &handle);
    return code;
  };
  EXPECT_EQ(ptx_of(linked(file)), ptx);
  // The compiler has read it: what comes next there is for somebody else.
  std::thread writer([&] { std::ofstream(pipe) << "next"; });
  EXPECT_EQ(linked(pipe), test::scale_machine_code());
  const int fd = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  pollfd comes{.fd = fd, .events = POLLIN, .revents = 0};
  ::poll(&comes, 1, 10'000);
  char text[8];
  EXPECT_EQ(::read(fd, text, sizeof text), 4);
  writer.join();
  ::close(fd);
  std::filesystem::remove_all(at);
}

TEST(JitLink, WhatHasNoPtxAndWhatDoesNotLink) {
  const std::string plain = test::scale_machine_code();
  EXPECT_EQ(link(fake_link(), {{kPtx, test::scale_ptx()}, {kObject, "object"}}).code, plain);
  EXPECT_EQ(link(fake_link(), {{kCubin, plain}}).code, plain);
  EXPECT_EQ(link(fake_link(), {{kPtx, "no text at all"}}).code, plain);
  EXPECT_EQ(link(fake_link(), {}).code, plain);
  const Compiled made = link(fake_link(), {{kPtx, test::scale_ptx()}, {kPtx, "bad"}});
  EXPECT_EQ(made.status, 4);
  EXPECT_EQ(made.code, plain);
}

TEST(Dlsym, OtherNamesAreTheLoaders) {
  void* self = ::dlopen(nullptr, RTLD_NOW);
  EXPECT_NE(::dlsym(RTLD_DEFAULT, "malloc"), nullptr);
  EXPECT_EQ(::dlsym(self, "malloc"), ::dlsym(RTLD_DEFAULT, "malloc"));
  ::dlerror();
  EXPECT_EQ(::dlsym(self, "no such name"), nullptr);
  EXPECT_NE(::dlerror(), nullptr);
  EXPECT_EQ(::dlsym(self, "nvrtcNoSuchFunction"), nullptr);
  // RTLD_NEXT goes by who asks: the program comes first, so what it finds is not its own.
  void* next = ::dlsym(RTLD_NEXT, "dlsym");
  EXPECT_NE(next, nullptr);
  // A function that we have nothing to do with keeps its address.
  const Loaded& nvrtc = fake_nvrtc();
  ASSERT_TRUE(nvrtc);
  void* fake = ::dlopen((folder() + "/libnvrtc.so.13").c_str(), RTLD_NOW);
  Dl_info info;
  ASSERT_NE(::dladdr(::dlsym(fake, "nvrtcGetPTX"), &info), 0);
  EXPECT_NE(std::string(info.dli_fname).find("libnvrtc"), std::string::npos);
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// ptxas in a folder of its own, with a.ptx and b.ptx. Its status; "signal 6".
class Ptxas : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/jit-test.XXXXXX";
    work_ = ::mkdtemp(name);
    for (const char* file : {"a", "b"}) std::ofstream(work_ + '/' + file + ".ptx") << kText;
  }
  void TearDown() override { run("rm -rf '" + work_ + "'"); }
  static std::string run(const std::string& command) {
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? std::to_string(WEXITSTATUS(status)) : "none";
  }
  std::string ptxas(const std::string& arguments) {
    return run("cd " + work_ + " && " + assembler_ + " " + arguments);
  }
  std::string output(const char* file = "a.cubin") { return contents(work_ + '/' + file); }

  const std::string kText = test::scale_ptx();
  std::string work_, assembler_ = folder() + "/ptxas";
};

TEST_F(Ptxas, OutputKeepsItsPtx) {
  EXPECT_EQ(ptxas("-v --gpu-name=sm_90 a.ptx -o a.cubin"), "0");
  EXPECT_EQ(ptx_of(output()), kText);
  EXPECT_EQ(ptxas("a.ptx"), "0");
  EXPECT_EQ(ptx_of(output("elf.o")), kText);
}

TEST_F(Ptxas, OtherCommandsAreAsEver) {
  const std::string plain = test::scale_machine_code();
  EXPECT_EQ(ptxas("-c a.ptx -o a.cubin"), "0");
  EXPECT_EQ(output(), plain);
  EXPECT_EQ(ptxas("a.ptx b.ptx -o a.cubin"), "0");
  EXPECT_EQ(output(), plain);
  EXPECT_EQ(ptxas("--version -o a.cubin"), "0");
  EXPECT_EQ(output(), plain);
}

TEST_F(Ptxas, FailuresAreItsOwn) {
  EXPECT_EQ(ptxas("--fail a.ptx -o a.cubin"), "3");
  EXPECT_EQ(output(), "");
  EXPECT_EQ(ptxas("--abort a.ptx -o a.cubin 2>/dev/null"), "134") << "by a signal, as a shell says";
}

// ---- NVIDIA's, where they are ----

std::string toolkit() {
  const char* path = ::getenv("SLUICE_TEST_TOOLKIT");
  return path != nullptr ? path : "";
}
constexpr char kSource[] = R"(
__device__ float offset;
extern "C" __global__ void scale(float* out, float factor, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = out[i] * factor + offset;
})";

TEST(Toolkit, Nvrtc) {
  const Loaded nvrtc(toolkit() + "/lib64/libnvrtc.so.13");
  if (!nvrtc) GTEST_SKIP() << "no toolkit";
  const Compiled made = compile(nvrtc, kSource);
  ASSERT_EQ(made.status, 0);
  EXPECT_EQ(ptx_of(made.code), made.ptx);
  EXPECT_NE(made.ptx.find(".target sm_90"), std::string::npos);
  const auto known = cubin::read(made.code);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->kernels.size(), 1u);
  EXPECT_EQ(known->kernels[0].params.size(), 3u);
  // To be linked: nvJitLink takes machine code that carries its PTX, and so does what it makes.
  const Compiled part = compile(nvrtc, kSource, {"-arch=sm_90", "-rdc=true"});
  EXPECT_EQ(ptx_of(part.code), part.ptx);
  const Loaded linker(toolkit() + "/lib64/libnvJitLink.so.13");
  ASSERT_TRUE(linker);
  const Compiled linked = link(linker, {{kCubin, part.code}});
  EXPECT_EQ(linked.status, 0);
  EXPECT_EQ(ptx_of(linked.code), part.ptx);
}

TEST(Toolkit, JitLink) {
  const Loaded nvrtc(toolkit() + "/lib64/libnvrtc.so.13"),
      linker(toolkit() + "/lib64/libnvJitLink.so.13");
  if (!nvrtc || !linker) GTEST_SKIP() << "no toolkit";
  const std::string ptx = compile(nvrtc, kSource).ptx;
  const Compiled linked = link(linker, {{kPtx, ptx}}, {"-arch=sm_90"}, "_13_0");
  EXPECT_EQ(linked.status, 0);
  EXPECT_EQ(ptx_of(linked.code), ptx);
}

TEST_F(Ptxas, Toolkit) {
  assembler_ = toolkit() + "/bin/ptxas";
  if (::access(assembler_.c_str(), X_OK) != 0) GTEST_SKIP() << "no toolkit";
  EXPECT_EQ(ptxas("-lineinfo -v --gpu-name=sm_90a a.ptx -o a.cubin 2>/dev/null"), "0");
  EXPECT_EQ(ptx_of(output()), kText);
  EXPECT_EQ(ptxas("--gpu-name=sm_1 a.ptx -o b.cubin 2>/dev/null"), "255");
}

// ---- SLUICE_JIT=off ----

TEST(Off, NothingIsAttached) {
  const std::string plain = test::scale_machine_code();
  EXPECT_EQ(compile(fake_nvrtc(), "scale").code, plain);
  EXPECT_EQ(link(fake_link(), {{kPtx, test::scale_ptx()}}).code, plain);
}
using OffPtxas = Ptxas;
TEST_F(OffPtxas, NothingIsAttached) {
  EXPECT_EQ(ptxas("a.ptx -o a.cubin"), "0");
  EXPECT_EQ(output(), test::scale_machine_code());
}

}  // namespace
}  // namespace sluice
