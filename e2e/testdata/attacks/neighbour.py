"""Reaches for the job that runs beside this one: neighbour.py MARK FOLDER PIDS SOCKETS, each list separated by commas.

FOLDER is where the other job works; its processes have MARK in their environment, and its files in their text.
"""
import os
import socket
import sys

mark, folder = sys.argv[1].encode(), sys.argv[2]
pids = [int(pid) for pid in sys.argv[3].split(",")]
sockets = sys.argv[4].split(",")


def attempt(what, reach):
    try:
        if reach():
            print("open: neighbour:", what, flush=True)
    except OSError:
        pass


def read(path):
    with open(path, "rb") as f:
        return f.read(1 << 20)


def connect(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(path)
        return True


def signal(pid):
    os.kill(pid, 0)
    return mark in read(f"/proc/{pid}/environ") or os.stat(f"/proc/{pid}").st_uid != os.getuid()


def create(path):
    with open(path, "w"):
        return True


def rename(path):
    os.rename(path, path + "-moved")
    os.rename(path + "-moved", path)
    return True


attempt("its files", lambda: mark in read(folder + "/secret.txt"))
attempt("its folder", lambda: os.listdir(folder))
attempt("a new file in its folder", lambda: create(folder + "/planted"))
attempt("another folder in its place", lambda: rename(folder))
for path in sockets:
    attempt("its socket " + path, lambda path=path: connect(path))
for pid in pids:
    attempt(f"a signal to process {pid}", lambda pid=pid: signal(pid))
    attempt(f"the memory of process {pid}", lambda pid=pid: mark in read(f"/proc/{pid}/environ") and os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)) is None)
    attempt(f"the folder of process {pid}", lambda pid=pid: mark in read(f"/proc/{pid}/cwd/secret.txt"))
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        attempt(f"the environment of process {name}", lambda name=name: mark in read(f"/proc/{name}/environ"))
print("closed: neighbour")
