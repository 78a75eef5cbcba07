#!/bin/sh
# Boots a copy of this machine's file system as a container, in namespaces of its own, and runs a script in it as the last service.
#
#   unshare --mount --net --pid --fork --mount-proc --propagation private boot.sh FOLDER SCRIPT
#
# FOLDER appears in the container as /test. Nothing that the container writes elsewhere remains. The exit status is the script's.
set -eu
folder=$1 script=$2
# A network with nothing behind it: nodes of the mesh wait for an interface.
ip link set lo up
ip link add eth0 type veth peer name wire
ip address add 192.0.2.1/24 dev eth0
ip link set wire up
ip link set eth0 up
ip route add default via 192.0.2.2

memory=$(mktemp -d)
mount -t tmpfs tmpfs "$memory"
mkdir "$memory/upper" "$memory/work" "$memory/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$memory/upper,workdir=$memory/work" "$memory/root"
root=$memory/root
# Only the services of the test start. The container has an identity of its own: without one, systemd would enable all services.
rm -rf "$root"/etc/systemd/system/*.wants
tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants" "$root/test"
cat >"$root/etc/systemd/system/test.service" <<END
[Unit]
After=network.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/bin/sh /test/$script >/test/output 2>&1; echo \$\$? >/test/status; systemctl exit'
END
ln -s ../test.service "$root/etc/systemd/system/multi-user.target.wants/test.service"
systemd-nspawn --quiet --keep-unit --register=no --bind="$folder:/test" --directory="$root" --boot >"$folder/console" 2>&1 || true
rm -rf "${root:?}/test" 2>/dev/null || true
exit "$(cat "$folder/status" 2>/dev/null || echo 1)"
