// SPDX-License-Identifier: Apache-2.0
// sluice-libvirt-hook DOMAIN OPERATION SUB EXTRA: libvirt's hook for QEMU domains (hook.h). Its
// settings are environment variables: what libvirt passes may look like options.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "mediator/libvirt/hook.h"
#include "mediator/libvirt/standard_input.h"

namespace {

const char* environment(const char* name, const std::string& otherwise) {
  const char* value = ::getenv(name);
  return value && *value ? value : otherwise.c_str();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: sluice-libvirt-hook DOMAIN OPERATION SUB [EXTRA] < DOMAIN_XML\n", stderr);
    return 2;
  }
  sluice::libvirt::HookPaths paths;
  paths.admin_socket = environment("SLUICE_ADMIN_SOCKET", paths.admin_socket);
  paths.sockets = environment("SLUICE_VGPU_SOCKETS", paths.sockets);
  const auto done =
      sluice::libvirt::run_hook(paths, argv[2], argv[3], sluice::libvirt::read_standard_input());
  if (done) return 0;
  std::fprintf(stderr, "Sluice: %s\n", done.error().message.c_str());
  return 1;
}
