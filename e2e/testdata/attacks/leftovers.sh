# Collects what an ended job has left: leftovers.sh MARK KEY.
for dir in /tmp /var/tmp /dev/shm; do
  [ -e "$dir/$1" ] && echo "open: leftovers: $(ls -ld "$dir/$1")"
done
grep -qs "$1" /tmp/*/key /var/tmp/*/key /dev/shm/*/key && echo "open: leftovers: a file with the mark"
awk -v key="$2" '$1 == key { found = 1 } END { exit !found }' /proc/sysvipc/shm 2>/dev/null && echo "open: leftovers: shared memory"
echo "closed: leftovers"
