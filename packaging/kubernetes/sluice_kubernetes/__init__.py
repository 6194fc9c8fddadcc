# SPDX-License-Identifier: Apache-2.0
"""Sluice in Kubernetes: a device plugin that offers shares of a node's GPU (plugin), and a KubeVirt
hook sidecar that gives a virtual machine its vGPU (hook). docs/operating/kubernetes.md.

    settings   what annotations say of a vGPU         admin      sluiced's admin socket
    vgpus      a node's vGPUs: made, linked, removed  pods       the kubelet's and the API's view
    plugin     the kubelet's calls; following pods    hook       virt-launcher's calls

The messages (*_pb2) are made from the .proto files beside these when Sluice is built.
"""
import signal

# A name of the project's own domain, as the XML namespace is, so that no vendor's is taken.
RESOURCE = "sluice.example/vgpu"
ANNOTATIONS = "vgpu.sluice.example/"
# What a container that has a vGPU finds below POD_FOLDER.
POD_FOLDER = "/run/sluice-vgpu"
QEMU_SOCKET = "vgpu.sock"
LOCAL_SOCKET = "vgpu.local"

# What ends a program. It waits for these signals and handles none: a handler runs between any two
# steps of the main thread, which may hold the lock that the handler needs.
ENDS = (signal.SIGTERM, signal.SIGINT)


def block_ends():
    """Before any other thread is there: each has the mask of the one that started it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)


def end_is_asked():
    """Whether one of ENDS has come. (Not by sigtimedwait: Python's returns nonsense instead of None
    where the process was stopped and continued and the time is over meanwhile.)"""
    return not signal.sigpending().isdisjoint(ENDS)
