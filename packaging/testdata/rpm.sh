# Runs as root in a booted container: installs, upgrades and removes the rpm package. Debian's rpm knows none of the machine's packages, so
# dependencies are left out.
PS4='+$(date +%T) '
set -eux

not() { # COMMAND…: set -e ignores the status of "! COMMAND"
	if "$@"; then exit 1; fi
}
rpm --initdb
rpm --install --nodeps /test/one.rpm
not systemctl is-active codermesh
[ "$(stat -c '%U:%G %a' /etc/codermesh/server.env)" = 'root:root 600' ]
sed -i 's|^#CODER_ACCESS_URL=.*|CODER_ACCESS_URL=http://127.0.0.1:3000|' /etc/codermesh/server.env
systemctl enable codermesh
systemctl start codermesh
before=$(systemctl show --value --property MainPID codermesh)
[ "$before" != 0 ]

chown root:codermesh /etc/codermesh/server.env # as earlier versions installed it
chmod 640 /etc/codermesh/server.env
rpm --upgrade --nodeps /test/two.rpm
[ "$(stat -c '%U:%G %a' /etc/codermesh/server.env)" = 'root:root 600' ]
[ "$(rpm --query codermesh)" = codermesh-2.31.10002-1.x86_64 ]
systemctl is-active codermesh
[ "$(systemctl show --value --property MainPID codermesh)" != "$before" ]
grep '^CODER_ACCESS_URL=http://127.0.0.1:3000$' /etc/codermesh/server.env

rpm --erase codermesh
not systemctl is-active codermesh
not systemctl is-enabled codermesh
not [ -e /usr/bin/coder ]
[ -d /var/lib/codermesh ]
grep "^CODER_ACCESS_URL=http://127.0.0.1:3000$" /etc/codermesh/server.env.rpmsave 
echo complete
