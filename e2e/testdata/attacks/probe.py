"""Tries what breaks out of a sandbox: probe.py SERVER SECRETS ABSTRACT SOCKETS FOLDER.

SERVER is the process id of the server, SECRETS are files of it, ABSTRACT is the name of an abstract socket of the host, and SOCKETS are sockets of
the server, lists separated by commas. Where the sandbox has a folder of its own in place of FOLDER, it says nothing of the file "planted" in it.
"""
import os
import socket
import stat
import subprocess
import sys

server, abstract = sys.argv[1], sys.argv[3]
secrets, sockets = sys.argv[2].split(","), sys.argv[4].split(",")


def attempt(what, reach):
    try:
        if reach():
            print("open: probe:", what, flush=True)
    except OSError:
        pass


def read(path):
    with open(path, "rb") as f:
        return f.read(4096)


def write(path, flags=0):
    os.close(os.open(path, os.O_WRONLY | flags))
    return True


def create(path):
    write(path, os.O_CREAT | os.O_EXCL)
    os.unlink(path)
    return True


def connect(address):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(address)
        return True


def family(number, kind, protocol):
    socket.socket(number, kind, protocol).close()
    return True


def runs(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def device():
    os.mknod("device", 0o600 | stat.S_IFBLK, os.makedev(7, 0))
    os.unlink("device")
    return True


def link(path):
    os.link(path, "linked")
    os.unlink("linked")
    return True


def root():
    if os.fork():
        return os.wait()[1] == 0
    try:
        os.chroot("/")
    except OSError:
        os._exit(1)
    os._exit(0)


for path in ["/etc/shadow", "/proc/kcore", "/proc/1/mem", "/root/.bashrc", *secrets]:
    attempt("reads " + path, lambda path=path: read(path))
attempt("reads the server's environment", lambda: b"CODER_" in read(f"/proc/{server}/environ"))
attempt("reads the server's files", lambda: b"coder" in os.readlink(f"/proc/{server}/exe").encode())
attempt("signals the server", lambda: os.kill(int(server), 0) is None)
for path in ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/etc/passwd", "/usr/bin/env", os.environ.get("CODER_PROVISIONER_PROGRAM", "")]:
    attempt("writes " + path, lambda path=path: write(path))
for folder in ["/etc", "/usr", "/usr/bin", "/run", "/home", "/root"]:
    attempt("creates a file in " + folder, lambda folder=folder: create(folder + "/planted"))
attempt(sys.argv[5], lambda: write(sys.argv[5] + "/planted", os.O_CREAT) and False)
attempt("an abstract socket", lambda: connect("\0" + abstract))
for path in sockets:
    attempt("the socket " + path, lambda path=path: connect(path))
for what, number, kind, protocol in [
    ("packets", 17, socket.SOCK_RAW, 3),
    ("raw addresses", 2, socket.SOCK_RAW, 1),
    ("firewall rules", 16, socket.SOCK_RAW, 12),
    ("virtual machines", 40, socket.SOCK_STREAM, 0),
    ("the kernel's ciphers", 38, socket.SOCK_SEQPACKET, 0),
]:
    attempt("a socket for " + what, lambda number=number, kind=kind, protocol=protocol: family(number, kind, protocol))
for command in ["unshare --user", "unshare --mount", "unshare --net", "mount -t tmpfs none /mnt"]:
    attempt(command, lambda command=command: runs(*command.split(), *(["true"] if "unshare" in command else [])))
attempt("a device", device)
attempt("a link to a file of the host", lambda: link("/etc/passwd"))
attempt("another root", root)
print("closed: probe")
