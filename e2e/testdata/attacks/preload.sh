# Has the daemon start a process with variables that make the loader write FILE: preload.sh FILE. Bubblewrap, or whatever the daemon starts outside of
# the sandbox, would write it with the daemon's rights. The script cannot see that; who runs it looks for the file.
file="$1"
LD_DEBUG=libs LD_DEBUG_OUTPUT="$file" LD_PRELOAD="$file" LD_AUDIT="$file" BASH_ENV="$file" GODEBUG=gctrace=1 \
  "$CODER_PROVISIONER_PROGRAM" workspace-process start \
  --env LD_DEBUG --env LD_DEBUG_OUTPUT --env LD_PRELOAD --env LD_AUDIT --env BASH_ENV --env GODEBUG -- /bin/sleep 60 >/dev/null 2>&1 &&
  echo "closed: preload"
