# Ends the processes of directory $1 and removes it, when standard input closes.
# Whoever started this holds the other end of that pipe and never writes to it.
trap '' HUP INT QUIT TERM
dir=$1
while read -r _; do :; done

# A pid file may name a process that ended long ago and whose number is somebody
# else's now. Ours have the directory among their arguments.
ours() {
	if [ -d /proc/self ]; then
		args=$(tr '\0' ' ' <"/proc/$1/cmdline")
	else
		args=$(ps -ww -o args= -p "$1")
	fi 2>/dev/null
	case $args in
	*"$dir"*) return 0 ;;
	esac
	return 1
}

for file in "$dir"/pids/*; do
	pid=
	[ -f "$file" ] && read -r pid <"$file"
	[ -n "$pid" ] || continue
	tries=0
	while ours "$pid"; do
		sig=QUIT # PostgreSQL: immediate shutdown
		[ "$tries" -lt 50 ] || sig=KILL
		kill -s "$sig" "$pid" 2>/dev/null
		kill -s CONT "$pid" 2>/dev/null # a test may have stopped it
		tries=$((tries + 1))
		[ "$tries" -lt 100 ] || break
		sleep 0.1
	done
done

# Children of a killed postmaster may still be writing.
rm -rf "$dir" 2>/dev/null || { sleep 1; rm -rf "$dir"; }
