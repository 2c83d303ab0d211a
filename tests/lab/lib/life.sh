# shellcheck shell=bash
# `lab up` and `lab down`, and the keeper between them: one process that holds the machine's lock
# while the lab lives and takes it down when `up` is killed half way or the state folder is removed.

require_lab() { [[ -e $LAB_DIR/run/up ]] || die "no lab is up in $LAB_DIR; start one with 'lab up'"; }

# up ARGS...: becomes a process that carries the lab's mark, like all that it starts: whoever takes
# the lab down then also finds what a killed `up` left running.
up() {
    need_root
    LOCKKEEPER_LAB=$LAB_DIR exec "$lab_home/lab" __up "$@"
}

bring_up() {
    local count=3 host begin=$SECONDS pids=() failed=
    local -a names=()
    local agent=yes workload=yes
    while (($#)); do
        case $1 in
            --hosts) count=${2:-}; shift ;;
            --slots) LAB_SLOTS=${2:-}; shift ;;
            --no-agent) agent= ;;
            --no-workload) workload= ;;
            *) refuse "up: unknown argument '$1'" ;;
        esac
        shift || refuse "up: a value is missing"
    done
    [[ $count =~ ^[1-9][0-9]?$ ]] && ((count <= hosts_max)) || refuse "up: --hosts takes a number from 1 to $hosts_max, not '$count'"
    [[ $LAB_SLOTS =~ ^[1-9][0-9]*$ ]] || refuse "up: --slots takes a number from 1, not '$LAB_SLOTS'"

    build
    start_keeper
    # From here on the keeper cleans up if this command is killed; on an error we do it ourselves.
    trap 'leave_half_way' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    require_ports
    [[ -n $agent ]] || touch "$LAB_DIR/run/no-agent"
    for ((i = 1; i <= count; i++)); do names+=("n$i"); done
    say "bringing up a control plane and $count host(s): about $((10 + 4 * count)) s on an idle machine"

    make_authority
    for host in "${names[@]}"; do
        add_address "$host"
        require_port "the kubelet of $host" "$(address_of "$host")" "$LAB_PORT_KUBELET"
    done
    start_control_plane &
    pids+=($!)
    for host in "${names[@]}"; do
        { make_root "$host" && turn_on "$host" && await_boot "$host"; } &
        pids+=($!)
    done
    for host in "${pids[@]}"; do wait "$host" || failed=1; done
    [[ -z $failed ]] || die "the lab did not come up"
    say "control plane and hosts have booted ($((SECONDS - begin)) s)"
    start_coordinator || die "the coordinator did not come up"
    for host in "${names[@]}"; do await_ready "$host" || die "$host did not become Ready"; done
    say "all nodes are Ready ($((SECONDS - begin)) s)"
    if [[ -n $workload ]]; then
        apply_workload || die "the workload did not come up"
    fi
    if [[ -n $agent ]] && has_agent; then
        for host in "${names[@]}"; do
            wait_until 60 "the agent runs on $host" agent_runs "$host" || agent_trouble "$host"
        done
    elif [[ -n $agent ]]; then
        say "no ignition/lockkeeper.bu yet: the hosts have no agent"
    fi
    touch "$LAB_DIR/run/up"
    trap - EXIT INT TERM HUP
    say "up: $count host(s) in $((SECONDS - begin)) s; 'lab status' shows them, 'lab down' ends it"
}

leave_half_way() {
    local status=$?
    trap '' INT TERM HUP
    trap - EXIT
    ((status == 0)) || say "taking down what was brought up; logs stay in $LAB_DIR/log"
    disown -a       # their ends are ours, and no news
    tear_down
    exit "$status"
}

agent_runs() { inside "$1" systemctl --quiet is-active lockkeeper.service; }

agent_trouble() { # HOST
    say "the agent's journal on $1:"
    inside "$1" journalctl --no-pager -q -u lockkeeper -n 10 2>&1 | sed 's/^/    /' >&2 || true
    die "the agent does not run on $1"
}

add_address() { # HOST: recorded first, so that it goes away again whatever happens in between
    local address
    address=$(address_of "$1")
    [[ -z $(ip -o addr show to "$address/32") ]] ||
        die "the address $address, which $1 needs, is in use on this machine; LAB_NODE_NET chooses others"
    echo "$address" >>"$LAB_DIR/run/addresses"
    ip addr add "$address/32" dev lo
}

remove_addresses() {
    local address
    for address in $(cat "$LAB_DIR/run/addresses" 2>/dev/null || echo "$known_addresses"); do
        ip addr del "$address/32" dev lo 2>/dev/null || true
    done
    rm -f "$LAB_DIR/run/addresses"
}

known_addresses=    # what the keeper remembers, should the file go away

# === the keeper ===

start_keeper() {
    local other
    if [[ -e $LAB_DIR/run/up ]] && runs keeper; then
        die "a lab is up in $LAB_DIR already; 'lab down' ends it"
    fi
    mkdir -p "$LAB_DIR/run" "$LAB_DIR/log"
    exec 9>>"$machine_lock"
    if ! flock --nonblock 9; then
        other=$(head -n 1 "$machine_lock")
        die "a lab runs on this machine already, in ${other:-an unknown folder}; end it with: LAB_DIR=$other lab down"
    fi
    # We hold the lock, so whatever is here is of a lab that was killed.
    tear_down
    rm -rf --one-file-system "$LAB_DIR"
    mkdir -p "$LAB_DIR"/{run,log,hosts}
    ln -s "$(cache_path controlplane "$(controlplane_inputs)")" "$LAB_DIR/programs"
    echo "$LAB_DIR" >"$machine_lock"
    # The keeper takes the lock over: it inherits the open file, and we close ours.
    setsid "$lab_home/lab" __keeper $$ "$(start_time $$)" </dev/null >>"$LAB_DIR/log/keeper.log" 2>&1 7>&- 8>&- &
    disown $!
    record keeper $! || die "the keeper did not start"
    exec 9>&-
}

# keep PID START: the body of the keeper, for an `up` of that process.
keep() {
    local why
    while sleep 0.5; do
        [[ ! -e $LAB_DIR/run/addresses ]] || known_addresses=$(<"$LAB_DIR/run/addresses")
        if [[ ! -d $LAB_DIR/run ]]; then
            why="the state folder is gone"
        elif [[ ! -e $LAB_DIR/run/up && $(start_time "$1") != "$2" ]]; then
            why="'lab up' ended before the lab was up"
        else
            continue
        fi
        echo "$(date -Is) $why: taking the lab down"
        tear_down
        return 0
    done
}

# tear_down: leaves no process, address, mount or cgroup of this lab. Can be repeated.
tear_down() {
    local name
    kill_strays
    for name in $(machines); do
        kill_machine "$name" || true
    done
    remove_addresses
    remove_cgroups
    release_mounts
    rm -f "$LAB_DIR/run/up" "$LAB_DIR/run/no-agent"
    keep_journals
}

# machines: those that have a cgroup, whatever is recorded.
machines() {
    local mount
    for mount in $(cgroup_mounts); do
        ls "$mount/$cgroup" 2>/dev/null || true
    done | grep -x 'n[0-9]*' | sort -u || true
}

# nspawn mounts in a namespace of its own; this is for what a person has mounted there by hand.
release_mounts() {
    local mount
    findmnt --raw --noheadings --output TARGET | grep -F "$LAB_DIR/" | sort -r | while read -r mount; do
        umount --lazy "$mount" 2>/dev/null || true
    done || true
}

# The hosts' systems are big and made anew each time; their journals are what a person comes back for.
keep_journals() {
    local host
    for host in $(hosts); do
        if [[ -d $LAB_DIR/hosts/$host/var/log/journal ]]; then
            mkdir -p "$LAB_DIR/log/journal"
            rm -rf "$LAB_DIR/log/journal/$host"
            mv "$LAB_DIR/hosts/$host/var/log/journal" "$LAB_DIR/log/journal/$host"
        fi
        rm -rf --one-file-system "$LAB_DIR/hosts/$host"
    done
    rm -rf --one-file-system "$LAB_DIR/etcd"
}

down() {
    (($# == 0)) || refuse "down takes no arguments"
    need_root
    tear_down
    local left
    left=$(strays; for left in $(machines); do machine_processes "$left"; done)
    [[ -z $left ]] || die "these processes did not end: ${left//$'\n'/ }"
}

# === the workload ===

apply_workload() {
    local begin=$SECONDS host
    cat "$lab_home"/workload/*.yaml | kubectl apply --filename - >/dev/null || return 1
    # A pod without a controller is refused for good while the account of its namespace is not there.
    wait_until 30 "namespace shop has its service account" \
        api /api/v1/namespaces/shop/serviceaccounts/default --output /dev/null || return 1
    for host in $(hosts); do
        echo ---
        sed "s|@HOST@|$host|" "$lab_home/workload/pinned.yaml.in"
    done | kubectl apply --filename - >/dev/null || return 1
    wait_until "$seconds_workload" "every pod of the workload runs" workload_runs ||
        { kubectl get pods --all-namespaces --output wide >&2 || true; return 1; }
    say "the workload runs ($((SECONDS - begin)) s)"
}

# Each controller has as many ready pods as it wants, and no pod waits.
workload_runs() {
    api /apis/apps/v1/deployments | jq --exit-status 'all(.items[]; .spec.replicas == (.status.readyReplicas // 0))' &&
        api /apis/apps/v1/daemonsets | jq --exit-status \
            'all(.items[]; .status.desiredNumberScheduled > 0 and .status.desiredNumberScheduled == .status.numberReady)' &&
        api /api/v1/pods | jq --exit-status 'all(.items[]; .status.phase == "Running")'
} >/dev/null 2>&1
