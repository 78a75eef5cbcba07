# The job that others attack: victim.sh MARK KEY WAIT. It leaves MARK wherever a job can write, and shared memory with the number KEY, waits for the
# answer of the address WAIT, and starts its workspace's agent.
set -e
[ -n "$OWNERS_SESSION" ] || echo "failed: a build that its owner started has no session"
export MARK="$1"
umask 077
echo "$MARK" >secret.txt
for dir in /tmp /var/tmp /dev/shm; do
  mkdir "$dir/$MARK"
  echo "$MARK" >"$dir/$MARK/key"
done
cp /bin/sh "/tmp/$MARK/shell"
chmod 4755 "/tmp/$MARK/shell"
/usr/bin/python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).shmget(int(sys.argv[1]), 4096, 0o1600) < 0)' "$2"
curl -sSf -o /dev/null "$3"
exec "$CODER_PROVISIONER_PROGRAM" workspace-process start --env CODER_AGENT_TOKEN -- /bin/sh -c "$INIT"
