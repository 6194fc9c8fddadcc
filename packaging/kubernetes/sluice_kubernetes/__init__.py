# SPDX-License-Identifier: Apache-2.0
"""Sluice in Kubernetes: a device plugin that offers shares of a node's GPU (plugin), and a KubeVirt
hook sidecar that gives a virtual machine its vGPU (hook). docs/operating/kubernetes.md.

    settings   what annotations say of a vGPU         admin      sluiced's admin socket
    vgpus      a node's vGPUs: made, linked, removed  pods       the kubelet's and the API's view
    plugin     the kubelet's calls; following pods    hook       virt-launcher's calls

The messages (*_pb2) are made from the .proto files beside these when Sluice is built.
"""
# A name of the project's own domain, as the XML namespace is, so that no vendor's is taken.
RESOURCE = "sluice.example/vgpu"
ANNOTATIONS = "vgpu.sluice.example/"
# What a container that has a vGPU finds below POD_FOLDER.
POD_FOLDER = "/run/sluice-vgpu"
QEMU_SOCKET = "vgpu.sock"
LOCAL_SOCKET = "vgpu.local"
