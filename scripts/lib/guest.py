# SPDX-License-Identifier: Apache-2.0
"""One guest: its serial lines and the jobs in it. How QEMU was started (by hand or by libvirt) is
somebody else's; this class has the path of the Unix socket behind the guest's second serial
line."""
import queue
import shlex
import socket
import threading
import time


class GuestError(Exception):
    pass


class Job:
    """A command that runs in the guest. Lines arrive as they are printed."""

    def __init__(self, command):
        self.command = command
        self.lines = []
        self.status = None
        self._queue = queue.Queue()
        self._ended = threading.Event()

    def wait(self, timeout):
        """Returns the exit status; GuestError with what was printed so far after `timeout` s."""
        if not self._ended.wait(timeout):
            raise GuestError(f"no end of '{self.command}' within {timeout} s; it printed:\n"
                             + "\n".join(self.lines[-50:]))
        if self.status is None:
            raise GuestError(f"the guest went away during '{self.command}'")
        return self.status

    def done(self):
        return self._ended.is_set()

    def _line(self, text, on_line):
        self.lines.append(text)
        if on_line:
            on_line(text)

    def _end(self, status):
        self.status = status
        self._ended.set()


class Guest:
    def __init__(self, name, job_socket):
        self.name = name
        self._path = job_socket
        self._sock = None
        self._jobs = {}
        self._next = 1
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._gone = threading.Event()

    def connect(self, timeout=60, alive=lambda: True, booted=False):
        """Waits until the guest's job server says that it is ready. `booted`: it did so before, to
        somebody who has hung up; it is asked again."""
        end = time.monotonic() + timeout
        while self._sock is None:
            try:
                s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                s.connect(str(self._path))
                self._sock = s
            except OSError as e:
                if time.monotonic() > end or not alive():
                    raise GuestError(f"{self.name}: no serial line at {self._path}: {e}") from e
                time.sleep(0.05)
        threading.Thread(target=self._read, daemon=True).start()
        if booted:
            self._sock.sendall(b"hello\n")
        while not self._ready.wait(0.2):
            if time.monotonic() > end or not alive() or self._gone.is_set():
                raise GuestError(f"{self.name}: did not boot within {timeout} s")

    def _read(self):
        try:
            for raw in self._sock.makefile("rb"):
                line = raw.decode(errors="replace").rstrip("\r\n")
                # A firmware may have written on this line before.
                if line.endswith("@@ready"):
                    self._ready.set()
                elif line.startswith("@@out ") or line.startswith("@@end "):
                    kind, ident, *rest = line.split(" ", 2)
                    with self._lock:
                        job, on_line = self._jobs.get(ident, (None, None))
                    if job is None:
                        continue
                    if kind == "@@out":
                        job._line(rest[0] if rest else "", on_line)
                    else:
                        job._end(int(rest[0]))
        except (OSError, ValueError):
            pass
        self._gone.set()
        with self._lock:
            for job, _ in self._jobs.values():
                if not job.done():
                    job._end(None)

    def start(self, command, on_line=None):
        """Starts a shell command in the guest and returns its Job."""
        if not isinstance(command, str):
            command = shlex.join(map(str, command))
        if "\n" in command:
            raise GuestError("a job is one line")
        job = Job(command)
        with self._lock:
            ident = str(self._next)
            self._next += 1
            self._jobs[ident] = (job, on_line)
        self._sock.sendall(f"run {ident} {command}\n".encode())
        return job

    def run(self, command, timeout=120):
        """Runs a command to its end; returns (status, text)."""
        job = self.start(command)
        status = job.wait(timeout)
        return status, "\n".join(job.lines)

    def reboot(self, timeout):
        """Has the guest start anew, on the same serial line, and waits for its job server."""
        self._ready.clear()
        self.start("systemctl reboot")
        if not self._ready.wait(timeout):
            raise GuestError(f"{self.name}: did not start anew within {timeout} s")
        with self._lock:
            jobs, self._jobs = self._jobs, {}
        for job, _ in jobs.values():
            if not job.done():
                job._end(None)

    def close(self):
        if self._sock:
            try:
                # The reading thread holds the socket too: only a shutdown hangs up.
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self._sock.close()
