# SPDX-License-Identifier: Apache-2.0
"""sluice-device-plugin's command line."""
import argparse
import logging
import os
import re
import threading
import time

from . import RESOURCE, admin, block_ends, end_is_asked, plugin, pods, settings, vgpus

KUBELET_FOLDER = "/var/lib/kubelet/device-plugins"
FOLDER = "/run/sluice/pods"
LOOK_AT_KUBELET_S = 1
QUALIFIED = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/"
                       r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def arguments():
    p = argparse.ArgumentParser(
        prog="sluice-device-plugin", allow_abbrev=False, description="Kubernetes device plugin: "
        "offers shares of this node's GPU (docs/operating/kubernetes.md).")
    p.add_argument("--shares", type=int, default=10, help="that this node offers (%(default)s)")
    p.add_argument("--weight-per-share", type=int, default=100, help="%(default)s")
    p.add_argument("--memory-per-share", metavar="SIZE",
                   help="device memory, such as 8G; default: not limited")
    p.add_argument("--default", action="append", default=[], metavar="NAME=VALUE",
                   help="a setting of vGPUs whose pods do not say it; may be repeated")
    p.add_argument("--allow", metavar="NAME,...",
                   help="annotations that pods may have; default: all; empty: none")
    p.add_argument("--no-annotations", action="store_true", help="ask no API server")
    p.add_argument("--resource", default=RESOURCE, help="%(default)s")
    p.add_argument("--prefix", default="kube", help="of devices' and vGPUs' names (%(default)s)")
    p.add_argument("--admin-socket", default=admin.DEFAULT_SOCKET, help="sluiced's (%(default)s)")
    p.add_argument("--folder", default=FOLDER, help="for links to sockets, on their file system "
                   "and the same path on the node (%(default)s)")
    p.add_argument("--kubelet-folder", default=KUBELET_FOLDER, help="%(default)s")
    p.add_argument("--pod-resources", default=pods.DEFAULT_SOCKET, metavar="SOCKET",
                   help="%(default)s")
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    host = f"[{host}]" if ":" in host else host
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    p.add_argument("--api-server", default=f"https://{host}:{port}" if host else "", metavar="URL",
                   help="default: the one that this pod's environment names")
    p.add_argument("--account", default=pods.ACCOUNT, metavar="FOLDER",
                   help="of token and ca.crt (%(default)s)")
    p.add_argument("--grace", type=float, default=30, metavar="SECONDS",
                   help="how long a vGPU that no pod has is kept (%(default)s)")
    p.add_argument("--interval", type=float, default=5, metavar="SECONDS",
                   help="between two looks at the node's pods (%(default)s)")
    p.add_argument("--tool", default=os.environ.get("SLUICE_DOMAIN_ATTACH", settings.DEFAULT_TOOL),
                   help=argparse.SUPPRESS)
    a = p.parse_args()
    if not 1 <= a.shares <= vgpus.MOST_SHARES:
        p.error(f"--shares must be 1 to {vgpus.MOST_SHARES}")
    if a.weight_per_share < 1 or a.weight_per_share * a.shares > vgpus.MOST_WEIGHT:
        p.error(f"--weight-per-share times --shares must be 1 to {vgpus.MOST_WEIGHT}")
    if a.grace < 0 or not a.interval > 0:
        p.error("--grace must be 0 seconds or more, --interval more than 0")
    if not QUALIFIED.fullmatch(a.resource) or "kubernetes.io/" in a.resource:
        p.error("--resource must be DOMAIN/NAME, and no domain of Kubernetes itself")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,30}", a.prefix):
        p.error("--prefix must be letters, digits, '.' and '-', at most 31")
    if not a.no_annotations and not a.api_server:
        p.error("no API server is known here: --api-server URL, or --no-annotations")
    return p, a


def memory_bytes(p, tool, text):
    if text is None:
        return 0
    try:
        return tool.request({"memory": text})["memory_bytes"]
    except settings.SettingsError as e:
        return p.error(f"--memory-per-share: {str(e).rpartition(settings.ANNOTATIONS)[2]}")


def defaults(p, tool, words):
    for word in words:
        if "=" not in word or word.startswith(("=", "-")):
            p.error(f"--default {word}: must be NAME=VALUE")
    said = dict(w.split("=", 1) for w in words)
    if "weight" in said or "memory" in said:
        p.error("--default: a share's are --weight-per-share and --memory-per-share")
    try:
        return tool.request(said)
    except settings.SettingsError as e:
        return p.error(f"--default: {str(e).rpartition(settings.ANNOTATIONS)[2]}")


def main():
    p, a = arguments()
    block_ends()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    tool = settings.Tool(a.tool)
    shares = vgpus.Shares(a.shares, a.prefix, a.weight_per_share,
                          memory_bytes(p, tool, a.memory_per_share), defaults(p, tool, a.default))
    made = vgpus.Vgpus(admin.Admin(a.admin_socket), shares, a.folder, f"kubernetes:{a.resource}")
    devices = plugin.Devices(shares.ids())
    api = None if a.no_annotations else pods.ApiServer(a.api_server, a.account)
    allowed = None if a.allow is None else {w for w in a.allow.split(",") if w}
    follower = plugin.Follower(made, devices, tool, a.resource, a.pod_resources, api, allowed,
                               a.grace)
    server = plugin.Server(a.kubelet_folder, a.resource,
                           lambda: plugin.Plugin(made, devices, follower, 2 * a.interval))
    ended = threading.Event()

    def follow():
        while not ended.is_set():
            try:
                if not server.waits:
                    follower.look()
            except Exception:  # a bug of ours must not end it unseen
                plugin.log.exception("a look failed")
            ended.wait(a.interval)

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    pause = min(LOOK_AT_KUBELET_S, a.interval)
    try:
        while not end_is_asked():
            server.keep()
            time.sleep(pause)
    except (RuntimeError, OSError) as e:
        plugin.log.error("%s", e)
        return 1
    finally:
        # vGPUs stay: their pods run on, and the next plugin finds them.
        ended.set()
        server.stop()
        following.join(30)
    return 0
