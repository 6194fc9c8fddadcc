# SPDX-License-Identifier: Apache-2.0
"""Which pod has which devices, as the kubelet tells, and what a pod's annotations say, as the API
server tells. Nobody tells a device plugin that a pod has ended: who is not in the kubelet's list
has."""
import dataclasses
import http.client
import json
import pathlib
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request

import grpc

from . import podresources_v1_pb2 as messages
from . import podresources_v1_pb2_grpc as service

DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT_S = 10  # the kubelet gives a PreStartContainer 30
MOST_BYTES = 4 << 20
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# Of a pod only its metadata; an old API server sends the whole pod instead.
METADATA = ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
            "application/json;q=0.9")


class PodsError(Exception):
    """The kubelet or the API server was not reached, or answers what cannot be."""


class Unreachable(PodsError):
    """The API server: it is of no use to ask for the next pod now."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """A container that has devices of ours."""
    namespace: str
    pod: str
    container: str
    devices: tuple

    def __str__(self):
        return f"pod {self.namespace}/{self.pod}, container {self.container}"


def holders(socket, resource):
    """All containers of the node that have devices of `resource`."""
    try:
        with grpc.insecure_channel("unix:" + socket, options=[
                ("grpc.max_receive_message_length", 16 << 20)]) as channel:
            answer = service.PodResourcesListerStub(channel).List(
                messages.ListPodResourcesRequest(), timeout=TIMEOUT_S)
    except grpc.RpcError as e:
        raise PodsError(f"the kubelet does not list pods at {socket}: {e.details()}") from None
    found = []
    for pod in answer.pod_resources:
        for container in pod.containers:
            devices = sorted({d for row in container.devices if row.resource_name == resource
                              for d in row.device_ids})
            if devices:
                found.append(Holder(pod.namespace, pod.name, container.name, tuple(devices)))
    return found


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token is for the API server alone."""

    def redirect_request(self, *_):
        return None


class ApiServer:
    """Reads annotations. In a pod the place and the credentials are where Kubernetes puts them."""

    def __init__(self, url, account=ACCOUNT):
        self.url, self.account = url.rstrip("/"), pathlib.Path(account)

    def annotations(self, holder):
        """Those of a pod; None: it is gone."""
        for name in (holder.namespace, holder.pod):
            if not NAME.fullmatch(name):
                raise PodsError(f"'{name}' is no name of Kubernetes")
        where = f"{self.url}/api/v1/namespaces/{holder.namespace}/pods/{holder.pod}"
        request = urllib.request.Request(where, headers={"Accept": METADATA})
        try:
            token = self.account / "token"  # made anew every hour
            if token.exists():
                request.add_header("Authorization", "Bearer " + token.read_text().strip())
            context = None
            if self.url.startswith("https:"):
                context = ssl.create_default_context(cafile=self.account / "ca.crt")
            # A proxy of the environment is not for the cluster's own server.
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), NoRedirect(),
                *([urllib.request.HTTPSHandler(context=context)] if context else []))
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                pod = json.loads(answer.read(MOST_BYTES))
            return pod["metadata"].get("annotations") or {}
        except urllib.error.HTTPError as e:
            if e.code == 404:
                return None
            hint = "; the service account may not get pods (RBAC)" if e.code in (401, 403) else ""
            raise PodsError(f"{where}: {e.code} {e.reason}{hint}") from None
        except (OSError, http.client.HTTPException) as e:
            raise Unreachable(f"{where}: {e}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise PodsError(f"{where}: {e}") from None
