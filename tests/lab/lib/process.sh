# shellcheck shell=bash
# Processes that outlive the command that started them. Each is recorded by its id together with
# its start time, since an id alone may belong to a stranger by the time we want to end it; and
# each carries the lab's folder in its environment as a mark, which finds those without a record.

# start_time PID: in clock ticks since the boot of the machine; empty when there is no such process.
start_time() {
    local line
    { line=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
    line=${line##*) }               # the name before it may contain anything
    read -ra line <<<"$line"
    [[ ${line[0]} != [ZX] ]] || return 1
    echo "${line[19]}"
}

record() { # NAME PID
    local time
    time=$(start_time "$2") || return 1
    echo "$2 $time" >"$LAB_DIR/run/.$1.$$"
    mv "$LAB_DIR/run/.$1.$$" "$LAB_DIR/run/$1.pid"
}

# recorded NAME: prints the id of a process that still is the recorded one.
recorded() {
    local pid time
    { read -r pid time <"$LAB_DIR/run/$1.pid"; } 2>/dev/null || return 1
    [[ $(start_time "$pid") == "$time" ]] || return 1
    echo "$pid"
}

runs() { recorded "$1" >/dev/null; }

# spawn NAME CMD...: runs CMD away from this terminal and this command, output in log/NAME.log.
spawn() {
    local name=$1
    shift
    LOCKKEEPER_LAB=$LAB_DIR setsid "$@" </dev/null >>"$LAB_DIR/log/$name.log" 2>&1 7>&- 8>&- 9>&- &
    disown $!
    record "$name" $! || true       # it may have ended already; whoever waits for it will see that
}

# stop NAME [SECONDS]: SIGTERM, and SIGKILL when it has not ended by then. Fine when nothing runs.
stop() {
    local pid begin=$SECONDS grace=${2:-$((seconds_stop * LAB_PATIENCE))}
    if pid=$(recorded "$1"); then
        kill -TERM "$pid" 2>/dev/null || true
        while runs "$1"; do
            if ((SECONDS - begin >= grace)); then
                kill -KILL "$pid" 2>/dev/null || true
                begin=$SECONDS
            fi
            sleep 0.05
        done
    fi
    rm -f "$LAB_DIR/run/$1.pid"
}

not() { ! "$@"; }

# strays: ids of processes that carry this lab's mark, this command and those that wait for it aside.
strays() {
    local file pid own=" $BASHPID " parent=$$
    while ((parent > 1)); do
        own+="$parent "
        parent=$(awk '/^PPid:/ { print $2 }' "/proc/$parent/status" 2>/dev/null) || break
    done
    for file in /proc/[0-9]*/environ; do
        pid=${file//[!0-9]/}
        [[ $own != *" $pid "* ]] || continue
        if grep -qzxF "LOCKKEEPER_LAB=$LAB_DIR" "$file" 2>/dev/null && start_time "$pid" >/dev/null; then
            echo "$pid"
        fi
    done
    return 0
}

# kill_strays: until there are none, since one may start another before its own end.
kill_strays() {
    local round pid
    local -a left
    for ((round = 0; round < 50; round++)); do
        mapfile -t left < <(strays)
        ((${#left[@]})) || return 0
        for pid in "${left[@]}"; do
            kill -KILL "$pid" 2>/dev/null || true
        done
        sleep 0.1
    done
    say "error: these processes do not end: ${left[*]}"
}
