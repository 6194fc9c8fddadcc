# SPDX-License-Identifier: Apache-2.0
"""The published messages of Kubernetes and KubeVirt as a table, and protobuf's encoding by hand.

Nothing here comes from packaging/kubernetes: what its messages put on the wire is compared with
this. Encoding: a field is (number << 3 | type), type 0 a varint, type 2 a length and so many bytes.
"""
STRING, BYTES, BOOL, INT32 = "string", "bytes", "bool", "int32"
MAP = "map"  # of strings; on the wire repeated messages of key 1 and value 2

# message -> number -> (name, type, repeated); a type that is no word above is a message.
MESSAGES = {
    # kubevirt.hooks.info
    "InfoParams": {},
    "InfoResult": {1: ("name", STRING, False), 3: ("hookPoints", "HookPoint", True),
                   4: ("versions", STRING, True)},
    "HookPoint": {1: ("name", STRING, False), 2: ("priority", INT32, False)},
    # kubevirt.hooks.v1alpha2, v1alpha3
    "OnDefineDomainParams": {1: ("domainXML", BYTES, False), 2: ("vmi", BYTES, False)},
    "OnDefineDomainResult": {1: ("domainXML", BYTES, False)},
    "PreCloudInitIsoParams": {1: ("cloudInitNoCloudSource", BYTES, False), 2: ("vmi", BYTES, False),
                              3: ("cloudInitData", BYTES, False)},
    "PreCloudInitIsoResult": {1: ("cloudInitNoCloudSource", BYTES, False),
                              3: ("cloudInitData", BYTES, False)},
    "ShutdownParams": {},
    "ShutdownResult": {},
    # v1beta1 of the kubelet's device plugins
    "Empty": {},
    "DevicePluginOptions": {1: ("pre_start_required", BOOL, False),
                            2: ("get_preferred_allocation_available", BOOL, False)},
    "RegisterRequest": {1: ("version", STRING, False), 2: ("endpoint", STRING, False),
                        3: ("resource_name", STRING, False),
                        4: ("options", "DevicePluginOptions", False)},
    "NUMANode": {1: ("ID", INT32, False)},
    "TopologyInfo": {1: ("nodes", "NUMANode", True)},
    "Device": {1: ("ID", STRING, False), 2: ("health", STRING, False),
               3: ("topology", "TopologyInfo", False)},
    "ListAndWatchResponse": {1: ("devices", "Device", True)},
    "PreferredAllocationRequest": {
        1: ("container_requests", "ContainerPreferredAllocationRequest", True)},
    "ContainerPreferredAllocationRequest": {1: ("available_deviceIDs", STRING, True),
                                            2: ("must_include_deviceIDs", STRING, True),
                                            3: ("allocation_size", INT32, False)},
    "PreferredAllocationResponse": {
        1: ("container_responses", "ContainerPreferredAllocationResponse", True)},
    "ContainerPreferredAllocationResponse": {1: ("deviceIDs", STRING, True)},
    "AllocateRequest": {1: ("container_requests", "ContainerAllocateRequest", True)},
    "ContainerAllocateRequest": {1: ("devices_ids", STRING, True)},
    "AllocateResponse": {1: ("container_responses", "ContainerAllocateResponse", True)},
    "ContainerAllocateResponse": {1: ("envs", MAP, True), 2: ("mounts", "Mount", True),
                                  3: ("devices", "DeviceSpec", True),
                                  4: ("annotations", MAP, True),
                                  5: ("cdi_devices", "CDIDevice", True)},
    "Mount": {1: ("container_path", STRING, False), 2: ("host_path", STRING, False),
              3: ("read_only", BOOL, False)},
    "DeviceSpec": {1: ("container_path", STRING, False), 2: ("host_path", STRING, False),
                   3: ("permissions", STRING, False)},
    "CDIDevice": {1: ("name", STRING, False)},
    "PreStartContainerRequest": {1: ("devices_ids", STRING, True)},
    "PreStartContainerResponse": {},
    # v1 of the kubelet's pod resources
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {1: ("pod_resources", "PodResources", True)},
    "PodResources": {1: ("name", STRING, False), 2: ("namespace", STRING, False),
                     3: ("containers", "ContainerResources", True)},
    "ContainerResources": {1: ("name", STRING, False), 2: ("devices", "ContainerDevices", True),
                           3: ("cpu_ids", INT32, True),
                           5: ("dynamic_resources", "DynamicResource", True)},
    "DynamicResource": {2: ("claim_name", STRING, False), 3: ("claim_namespace", STRING, False),
                        4: ("claim_resources", "ClaimResource", True)},
    "ClaimResource": {1: ("cdi_devices", "CDIDevice", True), 2: ("driver_name", STRING, False),
                      3: ("pool_name", STRING, False), 4: ("device_name", STRING, False)},
    "ContainerDevices": {1: ("resource_name", STRING, False), 2: ("device_ids", STRING, True),
                         3: ("topology", "TopologyInfo", False)},
}
# What each method takes and gives, by its path on the wire.
METHODS = {
    "/kubevirt.hooks.info.Info/Info": ("InfoParams", "InfoResult"),
    "/v1beta1.Registration/Register": ("RegisterRequest", "Empty"),
    "/v1beta1.DevicePlugin/GetDevicePluginOptions": ("Empty", "DevicePluginOptions"),
    "/v1beta1.DevicePlugin/ListAndWatch": ("Empty", "ListAndWatchResponse"),
    "/v1beta1.DevicePlugin/GetPreferredAllocation": ("PreferredAllocationRequest",
                                                     "PreferredAllocationResponse"),
    "/v1beta1.DevicePlugin/Allocate": ("AllocateRequest", "AllocateResponse"),
    "/v1beta1.DevicePlugin/PreStartContainer": ("PreStartContainerRequest",
                                                "PreStartContainerResponse"),
    "/v1.PodResourcesLister/List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
}
for _version in ("v1alpha2", "v1alpha3"):
    for _method in ("OnDefineDomain", "PreCloudInitIso"):
        METHODS[f"/kubevirt.hooks.{_version}.Callbacks/{_method}"] = (_method + "Params",
                                                                      _method + "Result")
METHODS["/kubevirt.hooks.v1alpha3.Callbacks/Shutdown"] = ("ShutdownParams", "ShutdownResult")


def varint(n):
    n &= (1 << 64) - 1  # negative numbers have ten bytes
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _piece(kind, number, value):
    if kind in (BOOL, INT32):
        return varint(number << 3) + varint(int(value))
    data = value.encode() if kind == STRING else value if kind == BYTES else encode(kind, value)
    return varint(number << 3 | 2) + varint(len(data)) + data


def encode(message, values):
    """`values`: by name; a repeated field is a list, a map a dictionary, a message a
    dictionary."""
    numbers = {name: (n, kind, many) for n, (name, kind, many) in MESSAGES[message].items()}
    out = b""
    for name, value in values.items():
        number, kind, many = numbers[name]
        if kind == MAP:
            for k, v in value.items():
                pair = _piece(STRING, 1, k) + _piece(STRING, 2, v)
                out += varint(number << 3 | 2) + varint(len(pair)) + pair
            continue
        for one in value if many else [value]:
            out += _piece(kind, number, one)
    return out


def _read_varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        n |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return n, at


def fields(data):
    """(number, wire type, value) of each field, in order."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == 0:
            value, at = _read_varint(data, at)
        elif key & 7 == 2:
            size, at = _read_varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size, "cut short"
        else:
            raise AssertionError(f"wire type {key & 7}")
        yield key >> 3, key & 7, value


def decode(message, data):
    """By name; a field that the table does not have, or of another wire type, is an error. What
    is not there is empty."""
    empty = {BOOL: False, INT32: 0, STRING: "", BYTES: b""}
    out = {name: {} if kind == MAP else [] if many else empty.get(kind)
           for name, kind, many in MESSAGES[message].values()}
    for number, wire_type, value in fields(data):
        name, kind, many = MESSAGES[message][number]
        assert wire_type == (0 if kind in (BOOL, INT32) else 2), f"{message}.{name}: {wire_type}"
        if kind == MAP:
            pair = {n: v.decode() for n, _, v in fields(value)}
            out[name][pair.get(1, "")] = pair.get(2, "")
            continue
        if kind == STRING:
            value = value.decode()
        elif kind == BOOL:
            value = bool(value)
        elif kind not in (BYTES, INT32):
            value = decode(kind, value)
        if many:
            out[name].append(value)
        else:
            out[name] = value
    return out
