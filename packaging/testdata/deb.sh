# Runs as root in a booted container: installs, upgrades, removes and purges the deb package as an administrator does.
PS4='+$(date +%T) '
set -eux
state=/var/lib/codermesh

trap '[ $? = 0 ] || journalctl --no-pager --unit codermesh --unit codermesh-provisionerd | tail -30' EXIT
not() { # COMMAND…: set -e ignores the status of "! COMMAND"
	if "$@"; then exit 1; fi
}
serving() {
	set +x
	for _ in $(seq 300); do
		if curl -fs http://127.0.0.1:3000/healthz >/dev/null; then set -x && return; fi
		systemctl is-failed --quiet codermesh && return 1
		sleep 0.2
	done
	echo 'the server does not serve'
	return 1
}
provisioning() { # since $since
	set +x
	until journalctl --unit codermesh-provisionerd --since "$since" | grep -q 'provisioner started'; do
		if systemctl is-failed --quiet codermesh-provisionerd; then return 1; fi
		sleep 0.2
	done
	set -x
}
as_ada() { timeout 60 runuser --user ada -- coder "$@"; }

# The test found Terraform or OpenTofu somewhere.
for program in terraform tofu; do
	if [ -e /test/$program ]; then install -m 755 /test/$program /usr/bin/$program; fi
done

# Installation starts nothing, and creates the account.
dpkg --install /test/one.deb
not systemctl is-active codermesh
not systemctl is-enabled codermesh
[ "$(stat -c '%U:%G %a' /etc/codermesh/server.env)" = 'root:root 600' ]
[ "$(stat -c '%U:%G %a' /etc/codermesh/provisionerd.env)" = 'root:root 600' ]
id codermesh
id codermesh-provisionerd

# What the administrator is told to do starts the server, confined, as its user.
sed -i 's|^#CODER_ACCESS_URL=.*|CODER_ACCESS_URL=http://127.0.0.1:3000|' /etc/codermesh/server.env
systemctl enable --now codermesh
serving
[ "$(stat -c %U "/proc/$(systemctl show --value --property MainPID codermesh)")" = codermesh ]
[ "$(stat -c '%U %a' $state)" = 'codermesh 700' ]
systemd-analyze security --no-pager codermesh | tail -1

# A workspace is built and reached.
useradd --create-home ada
not as_ada login http://127.0.0.1:3000 --first-user-username ada --first-user-email ada@example.com --first-user-password Correct-Horse-9-Battery
as_ada login http://127.0.0.1:3000 --setup-code "$(cat $state/setup-code)" --first-user-username ada --first-user-email ada@example.com --first-user-password Correct-Horse-9-Battery
cd /home/ada
as_ada templates init --id process process
as_ada templates push process -d process -y
as_ada create dev -t process -y
as_ada ssh dev -- echo reached | grep reached
not as_ada ssh dev -- cat /etc/codermesh/server.env
not as_ada ssh dev -- ls /etc/codermesh
isolated() { # UNIT SINCE; the journal stores what it is given a moment later
	journalctl --sync
	journalctl --unit "$1" --since "$2" | grep '"\?isolation"\?[=:]"namespaces by bubblewrap'
}
isolated codermesh today

# A provisioner on the same machine runs jobs without root, confined, under its own account.
as_ada provisioner keys create rack --tag rack=one >/test/key
printf 'CODER_URL=http://127.0.0.1:3000\nCODER_PROVISIONER_DAEMON_KEY=%s\n' "$(tail -1 /test/key)" >/etc/codermesh/provisionerd.env
since=$(date '+%F %T')
systemctl start codermesh-provisionerd
provisioning
systemd-analyze security --no-pager codermesh-provisionerd | tail -1
daemon=$(systemctl show --value --property MainPID codermesh-provisionerd)
[ "$(stat -c %U "/proc/$daemon")" = codermesh-provisionerd ]
grep '^CapBnd:[[:space:]]*0*$' "/proc/$daemon/status"
isolated codermesh-provisionerd "$since" >/test/isolation
not grep 'an account per job' /test/isolation
[ "$(stat -c '%U %a' /var/lib/codermesh-provisionerd)" = 'codermesh-provisionerd 700' ]
as_ada templates push rack -d process -y --provisioner-tag rack=one >/test/push
not grep 'Warning' /test/push
as_ada create far -t rack -y
[ "$(as_ada ssh far -- id -u)" = "$(id -u codermesh-provisionerd)" ]
as_ada ssh far -- nice true
not as_ada ssh far -- ls /var/lib/codermesh-provisionerd/provisionerd
not as_ada ssh far -- cat /etc/codermesh/provisionerd.env
as_ada delete far -y

# With the drop-in, the same provisioner runs jobs as root's, under an account each.
install -D -m 644 /usr/share/codermesh/account-per-job.conf -t /etc/systemd/system/codermesh-provisionerd.service.d
systemctl daemon-reload
since=$(date '+%F %T')
systemctl restart codermesh-provisionerd
provisioning
[ "$(stat -c %U "/proc/$(systemctl show --value --property MainPID codermesh-provisionerd)")" = root ]
isolated codermesh-provisionerd "$since" | grep 'an account per job'
as_ada create far -t rack -y
[ "$(as_ada ssh far -- id -u)" != 0 ]
[ "$(as_ada ssh far -- id -u)" != "$(id -u codermesh-provisionerd)" ]
as_ada ssh far -- nice true
as_ada delete far -y
rm -r /etc/systemd/system/codermesh-provisionerd.service.d
systemctl daemon-reload
systemctl stop codermesh-provisionerd

# An upgrade restarts the server with the new program and keeps data, settings and sessions.
before=$(systemctl show --value --property MainPID codermesh)
chown root:codermesh /etc/codermesh/server.env # as earlier versions installed it
chmod 640 /etc/codermesh/server.env
dpkg --install /test/two.deb
[ "$(stat -c '%U:%G %a' /etc/codermesh/server.env)" = 'root:root 600' ]
[ "$(dpkg-query -W -f '${Version}' codermesh)" = 2.31.10002-1 ]
serving
[ "$(systemctl show --value --property MainPID codermesh)" != "$before" ]
grep '^CODER_ACCESS_URL=http://127.0.0.1:3000$' /etc/codermesh/server.env
as_ada list | grep dev

# With a drop-in, the server serves a port below 1024 itself, and keeps the right to do so from what it starts.
mkdir /etc/systemd/system/codermesh.service.d
cat >/etc/systemd/system/codermesh.service.d/ports.conf <<END
[Service]
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
PrivateUsers=no
END
sed -i 's|^CODER_HTTP_ADDRESS=.*|CODER_HTTP_ADDRESS=127.0.0.1:80|' /etc/codermesh/server.env
systemctl daemon-reload
since=$(date '+%F %T')
systemctl restart codermesh
set +x
until curl -fs http://127.0.0.1/healthz >/dev/null; do
	if systemctl is-failed --quiet codermesh; then exit 1; fi
	sleep 0.2
done
set -x
isolated codermesh "$since"
# A program has what its parent leaves ambient. A child that has not begun its program yet still has the server's own rights.
server=$(systemctl show --value --property MainPID codermesh)
[ -z "$(grep --no-messages --files-without-match '^CapAmb:[[:space:]]*0*$' /proc/"$server"/task/*/status)" ]
grep '^CapPrm:[[:space:]]*0*400$' "/proc/$server/status"
for process in $(pgrep --parent "$server" postgres); do
	grep '^CapPrm:[[:space:]]*0*$' "/proc/$process/status"
done | grep CapPrm
rm -r /etc/systemd/system/codermesh.service.d
sed -i 's|^CODER_HTTP_ADDRESS=.*|CODER_HTTP_ADDRESS=127.0.0.1:3000|' /etc/codermesh/server.env
systemctl daemon-reload
systemctl restart codermesh
serving

# Removal stops the server and keeps data and settings; the next installation continues with them.
dpkg --remove codermesh
not systemctl is-active codermesh
not [ -e /usr/bin/coder ]
[ -s /etc/codermesh/server.env ]
[ -d $state/postgres/data ]
dpkg --install /test/one.deb
systemctl enable --now codermesh
serving
as_ada list | grep dev

# Purging ends what still runs under the account, here a program that goes on writing, and deletes everything.
as_ada delete dev -y
uid=$(id -u codermesh)
ls -la $state $state/workspaces
runuser --user codermesh -- sh -c 'while mkdir -p /var/lib/codermesh/workspaces/left/left; do rmdir /var/lib/codermesh/workspaces/left/left; done' &
dpkg --purge codermesh
not pgrep --uid "$uid"
not [ -e $state ]
not [ -e /etc/codermesh ]
not [ -e /var/cache/codermesh ]
not [ -e /var/lib/codermesh-provisionerd ]
not [ -e /var/lib/codermesh-provisionerd-root ]
for name in codermesh codermesh-provisionerd; do
	not id $name
	not getent group $name
done
echo complete
