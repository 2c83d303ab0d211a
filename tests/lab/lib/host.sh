# shellcheck shell=bash
# Hosts: each a systemd-nspawn container under a small supervisor that boots it again whenever it
# reboots. What runs under which record: nK is the supervisor, nK.nspawn the machine itself.

hosts() { # all hosts of this lab, up or not
    local path
    for path in "$LAB_DIR"/hosts/n*; do
        [[ -d $path ]] && basename "$path"
    done | sort -V
}

require_host() {
    require_lab
    [[ $1 =~ ^n[1-9][0-9]?$ && -d $LAB_DIR/hosts/$1 ]] ||
        refuse "no host named '$1'; there are: $(hosts | tr '\n' ' ')"
}

# supervise HOST: the body of the supervisor. Ends when the host is powered off or cut.
supervise() {
    local host=$1 root programs status
    root=$(host_root "$host")
    programs=$(readlink -f "$LAB_DIR/programs")
    while [[ -d $root ]]; do
        echo "=== $(date -Is) boot of $host"
        status=0
        (
            own_cgroup "$host" || exit 1
            SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 exec setpriv --pdeathsig KILL systemd-nspawn --quiet \
                --keep-unit --register=no --link-journal=no --resolv-conf=off --timezone=off \
                --directory="$root" --machine="$host" --hostname="$host" --bind-ro="$programs":/opt/lab \
                --kill-signal=SIGRTMIN+3 --boot
        ) &
        record "$host.nspawn" $! || true
        wait $! || status=$?
        rm -f "$LAB_DIR/run/$host.nspawn.pid"
        # Without nspawn its init would live on.
        ((status == 0 || status == 133)) || kill_machine "$host"
        echo "=== $(date -Is) nspawn of $host ended with $status"
        # 133 is a reboot; everything else (0 power-off, 137 power cut) leaves it off.
        ((status == 133)) || return 0
    done 2>&1
}

# Each machine has a cgroup of its own: under a common one the hosts would share one `system.slice`,
# and it is what reliably finds, and ends at once, everything that the machine consists of.
cgroup_mounts() {
    findmnt --noheadings --output TARGET --types cgroup2 || true
    findmnt --noheadings --output TARGET --types cgroup --options name=systemd || true
}

own_cgroup() { # HOST
    local mount joined=
    for mount in $(cgroup_mounts); do
        mkdir -p "$mount/$cgroup_name/$1" || return 1
        echo "$BASHPID" >"$mount/$cgroup_name/$1/cgroup.procs" || return 1
        joined=yes
    done
    [[ $joined ]] || { echo "this machine has no cgroup tree that systemd could use"; return 1; }
}

remove_cgroups() {
    local mount
    for mount in $(cgroup_mounts); do
        [[ -d $mount/$cgroup_name ]] || continue
        find "$mount/$cgroup_name" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
}

# machine_processes HOST: ids of all processes of the machine, nspawn included.
machine_processes() {
    local mount
    for mount in $(cgroup_mounts); do
        [[ -d $mount/$cgroup_name/$1 ]] || continue
        find "$mount/$cgroup_name/$1" -name cgroup.procs -exec cat {} + 2>/dev/null || true
    done | sort -un
}

machine_is_gone() { [[ -z $(machine_processes "$1") ]]; }

# kill_machine HOST: all of it at once, as a power cut does, and wait until it is gone.
kill_machine() {
    local mount
    local -a processes
    for mount in $(cgroup_mounts); do
        { echo 1 >"$mount/$cgroup_name/$1/cgroup.kill"; } 2>/dev/null || true
    done
    mapfile -t processes < <(machine_processes "$1")
    ((${#processes[@]})) && kill -KILL "${processes[@]}" 2>/dev/null
    wait_until "$seconds_stop" "no process of $1 is left" machine_is_gone "$1" || return 1
    # A cgroup that was killed once is not used again: processes that systemd 257 puts into new cgroups
    # below it are killed at birth, since the kernel compares its count of kills with theirs.
    for mount in $(cgroup_mounts); do
        find "$mount/$cgroup_name/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
}

# leader HOST: the process that is the host's init, seen from the machine.
leader() {
    local machine child ids
    machine=$(recorded "$1.nspawn") || return 1
    for child in $(<"/proc/$machine/task/$machine/children"); do
        ids=$(grep -s ^NSpid: "/proc/$child/status") || continue
        [[ ${ids##*[[:space:]]} == 1 && $ids =~ [0-9]+[[:space:]]+1$ ]] && echo "$child" && return 0
    done
    return 1
}

is_on() { leader "$1" >/dev/null 2>&1; }

# inside HOST CMD...: runs it in the host, with stdin, output and exit status passed through. The shell
# stays outside and waits: a host that goes down stops all its processes before it kills them, and an
# nsenter that waits itself stops too, for good; the dead process then keeps the host from ending.
inside() {
    local pid
    pid=$(leader "$1") || { say "error: $1 is off; 'lab boot $1' turns it on"; return 125; }
    shift
    # shellcheck disable=SC2154  # `exec_limit` is the caller's, if it has one
    "${exec_limit[@]}" nsenter --target "$pid" --all --no-fork -- /usr/bin/env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" /bin/sh -c '"$@"; exit $?' sh "$@"
}

# exec_in HOST CMD...: as `inside`, but bounded where no person sits at the terminal.
exec_in() {
    local -a exec_limit=()
    [[ -t 0 ]] || exec_limit=(timeout --kill-after=5 "$LAB_EXEC_SECONDS")
    inside "$@"
}

boot_id_of() { inside "$1" cat /proc/sys/kernel/random/boot_id 2>/dev/null; }

# has_booted HOST: init has gone through its start jobs, with failed units or without.
has_booted() {
    runs "$1" || return 2
    is_on "$1" || return 1
    [[ $(inside "$1" timeout 10 systemctl is-system-running 2>/dev/null) =~ ^(running|degraded)$ ]]
}

# node_is_ready HOST [BOOT]: the kubelet of the running boot says so, not of the one before.
node_is_ready() {
    local boot
    boot=${2:-$(boot_id_of "$1")} || return 1
    [[ -n $boot ]] || return 1
    api "/api/v1/nodes/$1" | jq --exit-status --arg boot "$boot" '.status.nodeInfo.bootID == $boot
        and any(.status.conditions[]?; .type == "Ready" and .status == "True")' >/dev/null 2>&1
}

turn_on() { # HOST: returns at once
    runs "$1" || spawn "$1" "$lab_home/lab" __host "$1"
}

await_boot() { # HOST
    wait_until "$seconds_boot" "$1 has booted" has_booted "$1" && return 0
    runs "$1" || say "error: $1 went off by itself"
    if is_on "$1"; then
        say "jobs of $1 that have not ended:"
        inside "$1" systemctl --no-pager --no-legend list-jobs 2>&1 | sed 's/^/    /' >&2 || true
    fi
    say "the end of $LAB_DIR/log/$1.log:"
    tail_of "$LAB_DIR/log/$1.log"
    return 1
}

await_ready() { # HOST
    wait_until "$seconds_ready" "node $1 is Ready under its running boot" node_is_ready "$1" && return 0
    say "the end of the kubelet's journal on $1:"
    inside "$1" journalctl --no-pager -q -u kubelet -n 8 2>&1 | cut -c1-240 | sed 's/^/    /' >&2 || true
    return 1
}

# cut_power HOST: as if the plug were pulled.
cut_power() {
    local pid
    # The supervisor may be just about to boot it again: it is stopped before its child is looked for.
    if pid=$(recorded "$1"); then
        kill -STOP "$pid"
        # shellcheck disable=SC2046  # one word each
        kill -KILL $(<"/proc/$pid/task/$pid/children") "$pid" 2>/dev/null || true
    fi
    kill_machine "$1" || return 1
    wait_until "$seconds_stop" "the supervisor of $1 has ended" not runs "$1" || return 1
    rm -f "$LAB_DIR/run/$1.pid" "$LAB_DIR/run/$1.nspawn.pid"
    echo "=== $(date -Is) power of $1 cut" >>"$LAB_DIR/log/$1.log"
}
