# SPDX-License-Identifier: Apache-2.0
"""The KubeVirt hook sidecar: virt-launcher hands it a domain's XML and the VMI, and defines what
comes back. It runs in the pod of the virtual machine, as any user, and needs nothing else there.

It adds the device, on the socket that the device plugin has mounted beside QEMU, a virtual IOMMU
where that can be, and the settings as metadata. The plugin, on the node, is who puts them into
force.
"""
import argparse
import concurrent.futures
import json
import logging
import os
import signal

import grpc

from . import (ENDS, POD_FOLDER, QEMU_SOCKET, RESOURCE, block_ends, hooks_info_pb2,
               hooks_info_pb2_grpc, hooks_v1alpha2_pb2, hooks_v1alpha2_pb2_grpc,
               hooks_v1alpha3_pb2, hooks_v1alpha3_pb2_grpc, settings)

NAME = "sluice-vgpu"
VERSIONS = ("v1alpha3", "v1alpha2")
# Not PreCloudInitIso, although it is answered: virt-launcher asks the first sidecar that wants it
# and no other.
HOOK_POINTS = ("OnDefineDomain", "Shutdown")
DEFAULT_SOCKET = "/var/run/kubevirt-hooks/sluice-vgpu.sock"

log = logging.getLogger("sluice-kubevirt-hook")


class NoShare(Exception):
    """The virtual machine wants a vGPU and asks for no share of a GPU."""


def shares_asked(vmi, resource):
    """Whether the compute container asks for shares: without one it has no socket."""
    resources = vmi.get("spec", {}).get("domain", {}).get("resources", {})
    # A kind that is there may be null.
    kinds = [k for k in map(resources.get, ("limits", "requests")) if k is not None]
    quantities = [kind.get(resource) for kind in kinds]
    return any(str(q) not in ("None", "0", "") for q in quantities)


class Hook:
    """What is asked of every version. Several calls at once."""

    def __init__(self, tool, resource, socket):
        self.tool, self.resource, self.socket = tool, resource, socket

    def define(self, domain_xml, vmi_json):
        try:
            vmi = json.loads(vmi_json)
            annotations = vmi.get("metadata", {}).get("annotations")
            name = f"{vmi['metadata'].get('namespace')}/{vmi['metadata'].get('name')}"
            asked = shares_asked(vmi, self.resource)
        except (ValueError, KeyError, AttributeError, RecursionError) as e:
            raise settings.SettingsError(f"the VMI is not the JSON of a VMI: {e!r}") from None
        if not asked:
            raise NoShare(f"VMI {name} asks for no GPU; add {self.resource}: \"1\" to "
                          "spec.domain.resources.limits, or take the sidecar out")
        wanted, device = settings.split(settings.named(annotations))
        xml = self.tool.domain(domain_xml, self.socket, wanted, device)
        log.info("VMI %s: vGPU on %s, %s", name, self.socket, wanted or "no settings")
        return xml


class Callbacks(hooks_v1alpha2_pb2_grpc.CallbacksServicer,
                hooks_v1alpha3_pb2_grpc.CallbacksServicer):
    """One version's callbacks."""

    def __init__(self, hook, messages):
        self.hook, self.messages = hook, messages

    def OnDefineDomain(self, request, context):
        try:
            xml = self.hook.define(request.domainXML, request.vmi)
            return self.messages.OnDefineDomainResult(domainXML=xml)
        except settings.SettingsError as e:
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, e)
        except NoShare as e:
            refuse(context, grpc.StatusCode.FAILED_PRECONDITION, e)
        except (RuntimeError, OSError) as e:
            refuse(context, grpc.StatusCode.INTERNAL, e)
        raise AssertionError("unreachable")

    def PreCloudInitIso(self, request, context):
        return self.messages.PreCloudInitIsoResult(
            cloudInitNoCloudSource=request.cloudInitNoCloudSource,
            cloudInitData=request.cloudInitData)

    def Shutdown(self, request, context):
        os.kill(os.getpid(), signal.SIGTERM)
        return self.messages.ShutdownResult()


class Info(hooks_info_pb2_grpc.InfoServicer):
    def Info(self, request, context):
        points = [hooks_info_pb2.HookPoint(name=n) for n in HOOK_POINTS]
        return hooks_info_pb2.InfoResult(name=NAME, versions=VERSIONS, hookPoints=points)


def refuse(context, code, error):
    log.error("refused: %s", error)
    context.abort(code, f"Sluice: {error}")


def serve(socket, hook):
    """Starts the server; returns it."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    hooks_info_pb2_grpc.add_InfoServicer_to_server(Info(), server)
    hooks_v1alpha2_pb2_grpc.add_CallbacksServicer_to_server(
        Callbacks(hook, hooks_v1alpha2_pb2), server)
    hooks_v1alpha3_pb2_grpc.add_CallbacksServicer_to_server(
        Callbacks(hook, hooks_v1alpha3_pb2), server)
    if server.add_insecure_port("unix:" + socket) == 0:
        raise OSError(f"{socket}: cannot be listened on")
    server.start()
    return server


def main():
    p = argparse.ArgumentParser(
        prog="sluice-kubevirt-hook", allow_abbrev=False, description="KubeVirt hook sidecar: gives "
        "a virtual machine its vGPU (docs/operating/kubernetes.md).")
    p.add_argument("--socket", default=DEFAULT_SOCKET, help="of this sidecar (%(default)s)")
    p.add_argument("--vgpu-socket", default=f"{POD_FOLDER}/{QEMU_SOCKET}",
                   help="of the vGPU, as QEMU finds it (%(default)s)")
    p.add_argument("--resource", default=RESOURCE, help="what the VMI asks for (%(default)s)")
    p.add_argument("--tool", default=os.environ.get("SLUICE_DOMAIN_ATTACH", settings.DEFAULT_TOOL),
                   help=argparse.SUPPRESS)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    block_ends()
    try:
        server = serve(a.socket, Hook(settings.Tool(a.tool), a.resource, a.vgpu_socket))
    except (OSError, RuntimeError) as e:
        p.exit(1, f"sluice-kubevirt-hook: {e}\n")
    log.info("listening on %s", a.socket)
    signal.sigwait(ENDS)
    # The answer to Shutdown goes out first.
    server.stop(1).wait()
