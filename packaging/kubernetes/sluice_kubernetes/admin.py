# SPDX-License-Identifier: Apache-2.0
"""sluiced's admin socket: JSON-RPC, a line each way. A connection a call: sluiced may have been
restarted since the last."""
import json
import socket

DEFAULT_SOCKET = "/run/sluice/admin.sock"
TIMEOUT_S = 20
MOST_BYTES = 8 << 20


class AdminError(Exception):
    """sluiced was not reached, or its answer is none."""


class Refused(AdminError):
    """sluiced was reached and says no; the text is its reason."""


class Admin:
    def __init__(self, path=DEFAULT_SOCKET):
        self.path = path

    def call(self, method, **params):
        request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(TIMEOUT_S)
                s.connect(self.path)
                s.sendall(request.encode() + b"\n")
                with s.makefile("rb") as lines:
                    line = lines.readline(MOST_BYTES)
        except TimeoutError:
            raise AdminError(f"sluiced has not answered within {TIMEOUT_S} s at {self.path}; "
                             "'systemctl status sluiced' on the node") from None
        except OSError as e:
            raise AdminError(f"sluiced is not reached at {self.path} ({e.strerror or e}); "
                             "'systemctl start sluiced' on the node") from None
        try:
            answer = json.loads(line)
            if "error" in answer:
                raise Refused(f"sluiced: {answer['error']['message']}")
            return answer["result"]
        except (ValueError, KeyError, TypeError):
            raise AdminError("sluiced's answer is no JSON-RPC") from None
