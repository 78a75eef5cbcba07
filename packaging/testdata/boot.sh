#!/bin/sh
# Boots a copy of this machine's file system as a container, in namespaces of its own, and runs a script in it as the last service.
#
#   unshare --mount --net --pid --fork --mount-proc --propagation private boot.sh FOLDER SCRIPT MEMORY
#
# FOLDER appears in the container as /test. What the container writes elsewhere is kept in memory, which is mounted at the empty folder MEMORY
# and ends with the namespaces. FOLDER/groups lists control groups, which the caller removes. The exit status is the script's.
set -eu
folder=$1 script=$2 memory=$3
# A network with nothing behind it: nodes of the mesh wait for an interface.
ip link set lo up
ip link add eth0 type veth peer name wire
ip address add 192.0.2.1/24 dev eth0
ip link set wire up
ip link set eth0 up
ip route add default via 192.0.2.2

mount -t tmpfs tmpfs "$memory"
mkdir "$memory/upper" "$memory/work" "$memory/root"
# Not what this machine's own server has, or other tests, which change it meanwhile: device 0/0 hides it.
mkdir -p "$memory/upper/var/lib"
mknod "$memory/upper/var/lib/codermesh" c 0 0
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

# Containers that run at the same time have a control group each: in a common one, one systemd would end the services of another.
mine=$(cat /proc/self/cgroup) # it changes below
own=$(mktemp --dry-run test.XXXXXXXXXX)
while IFS=: read -r _ name path; do
	case $name in
	'') tree=/sys/fs/cgroup/unified && [ -d $tree ] || tree=/sys/fs/cgroup ;;
	name=systemd) tree=/sys/fs/cgroup/systemd ;;
	*) continue ;;
	esac
	[ -d "$tree$path" ] || path= # this machine is itself a container that sees only its own part of the tree
	mkdir "$tree$path/$own"
	echo "$tree$path/$own" >>"$folder/groups"
	echo 0 >"$tree$path/$own/cgroup.procs"
done <<END
$mine
END
systemd-nspawn --quiet --keep-unit --register=no --bind="$folder:/test" --directory="$root" --boot >"$folder/console" 2>&1 || true
exit "$(cat "$folder/status" 2>/dev/null || echo 1)"
