# Looks for the server's settings: settings.sh MARK FILE…, where FILE has the text MARK.
mark="$1"
shift
for file; do
  grep -qs "$mark" "$file" && echo "open: settings: $file"
done
env | grep -q "$mark" && echo "open: settings: the job's own environment"
grep -lqs "$mark" /proc/[0-9]*/environ && echo "open: settings: the environment of a process"
echo "closed: settings"
