"""Facts and free ports of a host of a machine; runs on the host and answers through its standard output.

    python -I probe.py     standard input: a request in JSON, one line; then one line for each reading of the clock
    python -I -S probe.py NUMBER     prints free ports as a JSON list, and holds them until it is ended

It imports only the standard library, and `study.core.cores` by its path, so that it can tell which packages are
missing. `study.machines.host_check` starts it, compares the answers and measures the clock's offset.
"""

import fcntl
import hashlib
import json
import os
import platform
import runpy
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B  # ioctl requests: an interface's IPv4 address and its netmask
VISIBLE_S = 5.0  # a network file system may show a new file late
BLOCKS, BLOCK = 16, 1 << 16  # of each data file that are compared


def main() -> None:
    """Hold as many ports as the command line says; without a number, answer the request, then lines with the time."""
    if sys.argv[1:]:
        hold_until_ended(int(sys.argv[1]))
        return
    request = json.loads(sys.stdin.readline())
    print(json.dumps(make_answer(request)), flush=True)
    for _ in sys.stdin:
        print(time.time_ns(), flush=True)


def make_answer(request: dict) -> dict:
    """Facts of this host. request: ``folder`` of the project, ``token``, a new file of the run, and ``data``, paths."""
    name = socket.gethostname()
    reached = os.environ.get("SSH_CONNECTION", "").split()  # addresses and ports of both ends
    return {
        "hostname": name,
        "resolves": is_own_name(name),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "cpu": _read_cpu_model(),
        **runpy.run_path(str(Path(__file__).parents[1] / "core" / "cores.py"))["describe_host"](),
        "interfaces": dict(list_interfaces()),
        "congestion_control": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "reached_from": reached[:1],
        "reached_at": reached[2:3],
        "commit": _read_commit(request["folder"]),
        "code": _digest_code(Path(request["folder"])),
        "packages": _list_packages(),
        "sees_token": _wait_for_file(request["token"]),
        "data": {path: _digest_file(path) for path in request["data"]},
    }


def is_own_name(name: str) -> bool:
    """Whether a name leads to an address of this host: Gloo binds to the first one that it can."""
    try:
        addresses = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    address = next((address for family, _, _, _, address in addresses if _can_bind(family, address)), ("0.0.0.0",))  # noqa: S104
    return address[0] not in ("0.0.0.0", "::")  # noqa: S104  a name that stands for no address


def _can_bind(family: int, address: tuple) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.bind(address)
    except OSError:
        return False
    return True


def _read_cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "cpu"):
            return value.strip()
    return platform.processor()


def list_interfaces() -> list:
    """(name, [IPv4 address, netmask]) of each interface that has one."""
    addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                both = [fcntl.ioctl(any_socket, number, request)[20:24] for number in (SIOCGIFADDR, SIOCGIFNETMASK)]
            except OSError:
                continue
            addresses.append((name, [socket.inet_ntoa(each) for each in both]))
    return addresses


def _read_commit(folder: str) -> str:
    try:
        line = ["git", f"--git-dir={folder}/.git", "rev-parse", "HEAD"]  # never that of a folder above
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _digest_code(folder: Path) -> str:
    """A digest of the code: it may differ between equal commits."""
    total = hashlib.sha256()
    for path in sorted(path for path in (folder / "scripts").rglob("*.py") if path.is_file()):
        total.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:12]


def _list_packages() -> list:
    """``name-version`` of each package of this Python."""
    folder = Path(sysconfig.get_paths()["purelib"])
    return [f"python-{platform.python_version()}", *sorted(path.stem for path in folder.glob("*.dist-info"))]


def _wait_for_file(path: str) -> bool:
    deadline, file = time.monotonic() + VISIBLE_S, Path(path)
    while not file.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
        if file.parent.is_dir():
            list(file.parent.iterdir())  # a network file system then asks its server again
    return True


def _digest_file(path: str) -> str:
    """A digest of the size and of blocks from all over the file; the reason in words if it cannot be read."""
    try:
        with open(path, "rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            total = hashlib.sha256(str(size).encode())
            for number in range(BLOCKS):
                handle.seek(max(0, size - BLOCK) * number // (BLOCKS - 1))
                total.update(handle.read(BLOCK))
    except OSError as error:
        return str(error.strerror)
    return total.hexdigest()[:12]


def hold_ports(number: int) -> list[socket.socket]:
    """Reserve free ports of all interfaces: sockets that are bound to them but do not listen.

    With SO_REUSEADDR another socket with that option may listen on the port as long as this one does not.
    """
    sockets = []
    for _ in range(number):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("", 0))
        sockets.append(one)
    return sockets


def list_ports(sockets: list[socket.socket]) -> list[int]:
    """Ports of the sockets."""
    return [each.getsockname()[1] for each in sockets]


def hold_until_ended(number: int) -> None:
    """Print so many free ports, and hold them until this process is ended."""
    sockets = hold_ports(number)
    print(json.dumps(list_ports(sockets)), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
