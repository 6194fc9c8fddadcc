# SPDX-License-Identifier: Apache-2.0
"""The other side: a kubelet, a virt-launcher and an API server, as far as Sluice's programs see
them. They speak wire.py's bytes, and none of packaging/kubernetes's messages."""
import concurrent.futures
import http.server
import json
import pathlib
import ssl
import threading

import grpc
import wire

TIMEOUT_S = 60


class Peer:
    """Calls one of our servers."""

    def __init__(self, socket):
        # grpc-go sends the socket's path as authority.
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=[
            ("grpc.default_authority", str(socket)), ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200)])

    def raw(self, path, data, timeout=TIMEOUT_S):
        return self.channel.unary_unary(path)(data, timeout=timeout, wait_for_ready=True)

    def call(self, path, **values):
        takes, gives = wire.METHODS[path]
        return wire.decode(gives, self.raw(path, wire.encode(takes, values)))

    def close(self):
        self.channel.close()


class VirtLauncher(Peer):
    def info(self):
        return self.call("/kubevirt.hooks.info.Info/Info")

    def define(self, domain, vmi, version="v1alpha3"):
        """The XML that the sidecar makes of `domain`; `vmi`: an object, or bytes as they are."""
        vmi = vmi if isinstance(vmi, bytes) else json.dumps(vmi).encode()
        domain = domain if isinstance(domain, bytes) else domain.encode()
        return self.call(f"/kubevirt.hooks.{version}.Callbacks/OnDefineDomain", domainXML=domain,
                         vmi=vmi)["domainXML"].decode()


class PluginPeer(Peer):
    """The kubelet's end of a plugin's socket."""

    def __init__(self, socket):
        super().__init__(socket)
        self._watched = threading.Condition()
        self._health, self._stream = None, None

    def watch(self):
        method = "/v1beta1.DevicePlugin/ListAndWatch"
        self._stream = self.channel.unary_stream(method)(b"", wait_for_ready=True)

        def read():
            try:
                for data in self._stream:
                    rows = wire.decode(wire.METHODS[method][1], data)["devices"]
                    with self._watched:
                        self._health = {r["ID"]: r["health"] for r in rows}
                        self._watched.notify_all()
            except grpc.RpcError:
                pass  # the stream has ended

        threading.Thread(target=read, daemon=True).start()
        return self

    def wait_for(self, health):
        """Until the devices are as `health` (name -> word) has them; what they are now."""
        with self._watched:
            self._watched.wait_for(lambda: self._health == health, TIMEOUT_S)
            return self._health

    def plugin(self, method, **values):
        return self.call("/v1beta1.DevicePlugin/" + method, **values)

    def allocate(self, *containers):
        return self.plugin("Allocate", container_requests=[
            {"devices_ids": list(c)} for c in containers])["container_responses"]

    def start(self, *devices):
        self.plugin("PreStartContainer", devices_ids=list(devices))


class Kubelet:
    """Registration in FOLDER/kubelet.sock and a list of pods in PODS. `refuses`: the reason why it
    registers nobody."""

    def __init__(self, folder, pods):
        self.folder, self.pods_socket = pathlib.Path(folder), pathlib.Path(pods)
        self.refuses = None
        self.resource = "sluice.example/vgpu"
        self._pods = {}
        self._lock = threading.Condition()
        self._registered = []
        self._servers = []

    def start(self):
        # As the real one: whatever was registered before is gone. The plugin, which sees that its
        # kubelet has gone, may take its own away meanwhile.
        for left in self.folder.glob("*.sock"):
            left.unlink(missing_ok=True)
        self._servers = [self._serve(self.folder / "kubelet.sock",
                                     {"/v1beta1.Registration/Register": self._register}),
                         self._serve(self.pods_socket,
                                     {"/v1.PodResourcesLister/List": self._list})]
        return self

    def stop(self):
        for s in self._servers:
            s.stop(0).wait()
        self._servers = []

    @staticmethod
    def _serve(socket, methods):
        class Handler(grpc.GenericRpcHandler):
            def service(self, call):
                f = methods.get(call.method)
                return f and grpc.unary_unary_rpc_method_handler(f)

        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[Handler()])
        assert server.add_insecure_port(f"unix:{socket}")
        server.start()
        return server

    def _register(self, data, context):
        if self.refuses:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuses)
        request = wire.decode("RegisterRequest", data)
        with self._lock:
            self._registered.append(request)
            self._lock.notify_all()
        return b""

    def _list(self, data, context):
        assert data == b"", data
        with self._lock:
            rows = [{"name": pod, "namespace": namespace, "containers": [
                {"name": "other", "devices": [{"resource_name": "other.example/thing",
                                               "device_ids": ["kube-0", "x"]}]},
                # As the real one, a device a row where the devices have a topology.
                {"name": "compute", "cpu_ids": [3], "dynamic_resources": [
                    {"claim_name": "kube-0", "claim_namespace": namespace, "claim_resources": [
                        {"cdi_devices": [{"name": "other.example/thing=x"}],
                         "driver_name": "other.example", "device_name": "kube-0"}]}], "devices": [
                    {"resource_name": self.resource, "device_ids": [d],
                     "topology": {"nodes": [{"ID": 1}]}} for d in devices]}]}
                for (namespace, pod), devices in self._pods.items()]
        return wire.encode("ListPodResourcesResponse", {"pod_resources": rows})

    def registrations(self, count):
        """The first `count` requests, when there are so many."""
        with self._lock:
            if not self._lock.wait_for(lambda: len(self._registered) >= count, TIMEOUT_S):
                raise AssertionError(f"{len(self._registered)} registrations, not {count}")
            return self._registered[:count]

    def set_pod(self, namespace, pod, devices):
        with self._lock:
            if devices:
                self._pods[namespace, pod] = list(devices)
            else:
                self._pods.pop((namespace, pod), None)


class ApiServer:
    """Answers a GET of a pod with its annotations. `answer`: (status, text) instead."""

    def __init__(self, certificate=None):
        self.annotations, self.answer, self.requests = {}, None, []
        self.location = None
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                fake.requests.append((self.path, dict(self.headers)))
                status, text = fake.reply(self.path)
                self.send_response(status)
                if fake.location:
                    self.send_header("Location", fake.location)
                self.end_headers()
                self.wfile.write(text.encode(errors="surrogateescape"))

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = self.url.replace("http:", "https:")
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def reply(self, path):
        if self.answer:
            return self.answer
        parts = path.strip("/").split("/")
        if parts[:3] != ["api", "v1", "namespaces"] or parts[4] != "pods":
            return 404, "{}"
        said = self.annotations.get((parts[3], parts[5]))
        if said is None:
            return 404, "{}"
        metadata = {"name": parts[5], **({"annotations": said} if said else {})}
        return 200, json.dumps({"kind": "PartialObjectMetadata", "metadata": metadata})

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
