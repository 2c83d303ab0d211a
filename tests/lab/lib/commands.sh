# shellcheck shell=bash
# The front desk: one function a command.

usage() {
    cat <<'END'
lab: a Kubernetes control plane and hosts that really reboot, on this machine

  lab build                        make everything that is slow to make, once
  lab up [--hosts N] [--slots N] [--no-agent] [--no-workload]
                                   control plane, hosts n1 to nN (3), workload, agents
  lab down                         end it all; logs and journals stay in target/lab/log
  lab status                       the hosts and what runs
  lab demo [--hosts N] [VERSION]   stage an update on every host and show the rollout

  lab stage HOST VERSION [--fault KIND] [--commit] [--layered] [--unlocked]
                                   KIND: finalize-fails boot-fails unhealthy reboot-never boot-full
                                   slow-activation
  lab unstage HOST                 withdraw it
  lab fault HOST KIND|clear        a fault without an update
  lab exec HOST CMD...             run CMD in the host; its exit status is ours
  lab journal HOST [ARGS...]       journalctl of the host, also when it is off
  lab cut HOST                     power loss
  lab boot HOST                    turn on a host that is off; until its node is Ready
  lab wait HOST ready|off|agent|STATE [SECONDS]
                                   until the node is Ready, the host off, the agent running, or the
                                   agent in that state (idle, waiting, draining, ...)
  lab agent HOST start|stop|restart|kill
  lab install-agent HOST [BINARY]  put the agent that was built last, or BINARY, and restart it
  lab rotate-certificate HOST      a new client certificate for the host's kubelet

  lab kubectl ARGS...              as administrator
  lab start|stop|restart COMPONENT etcd, apiserver, controller-manager, scheduler or coordinator
  lab logs [NAME]                  log of a component or of a host's console

  lab report [PART...]             every proof and benchmark, or these, and what they saw: tests/REPORT.md

Settings are environment variables; lib/settings.sh lists them.
END
}

main() {
    local command=${1:-help}
    (($#)) && shift
    case $command in
        help | -h | --help) usage; return ;;
    esac
    need_root
    case $command in
        build) (($# == 0)) || refuse "build takes no arguments"; build ;;
        up) up "$@" ;;
        down) down "$@" ;;
        demo) demo "$@" ;;
        status | stage | unstage | fault | exec | journal | cut | boot | wait | agent | logs | start | stop | restart | \
            install-agent | rotate-certificate | report) "command_${command//-/_}" "$@" ;;
        kubectl) require_lab; kubectl "$@" ;;
        __up) bring_up "$@" ;;
        __host) supervise "$@" ;;
        __keeper) keep "$@" ;;
        *) refuse "unknown command '$command'; 'lab help' lists them" ;;
    esac
}

command_exec() {
    (($# >= 2)) || refuse "exec takes HOST CMD..."
    require_host "$1"
    exec_in "$@"
}

command_stage() {
    local host=${1:-} version=${2:-} origin=--container lock=--locked
    local -a arguments=()
    [[ -n $host && -n $version && $version != -* ]] || refuse "stage takes HOST VERSION [--fault KIND]"
    shift 2
    while (($#)); do
        case $1 in
            --fault)
                require_fault "${2:-}"
                arguments+=(--fault "$2")
                shift
                ;;
            --commit) origin= ;;
            --container | --layered) arguments+=("$1") ;;
            --locked | --unlocked) lock=$1 ;;
            *) refuse "stage: unknown argument '$1'" ;;
        esac
        shift
    done
    require_host "$host"
    [[ $origin != --container || " ${arguments[*]} " == *" --container "* ]] || arguments+=(--container)
    inside "$host" test -x /usr/lib/standin/standin || die "$host has no stand-in for rpm-ostree"
    standin "$host" stage "$version" "${arguments[@]}" "$lock"
}

standin() { # HOST ARGS...
    local answer host=$1
    shift
    answer=$(inside "$host" timeout "$((seconds_stage * LAB_PATIENCE))" /usr/lib/standin/standin "$@" </dev/null 2>&1) ||
        die "$host: standin $*: $answer"
}

command_unstage() {
    (($# == 1)) || refuse "unstage takes HOST"
    require_host "$1"
    standin "$1" unstage
}

command_fault() {
    (($# == 2)) || refuse "fault takes HOST KIND|clear"
    require_host "$1"
    if [[ $2 == clear ]]; then
        standin "$1" fault clear
    else
        require_fault "$2"
        standin "$1" fault set "$2"
    fi
}

require_fault() {
    [[ " ${fault_kinds[*]} " == *" $1 "* ]] || refuse "no fault '$1'; there are: ${fault_kinds[*]}"
}

# Inside a running host, whose message catalog it then uses; from its disk when it is off.
command_journal() {
    (($#)) || refuse "journal takes HOST [journalctl arguments]"
    require_host "$1"
    local host=$1
    shift
    if is_on "$host"; then
        inside "$host" journalctl --quiet "$@"
    else
        journalctl --quiet --directory "$(host_root "$host")/var/log/journal" "$@"
    fi
}

command_cut() {
    (($# == 1)) || refuse "cut takes HOST"
    require_host "$1"
    runs "$1" || die "$1 is off already"
    cut_power "$1"
}

command_boot() {
    (($# == 1)) || refuse "boot takes HOST"
    require_host "$1"
    turn_on "$1"
    await_boot "$1" || die "$1 did not boot"
    await_ready "$1" || die "$1 did not become Ready"
}

command_wait() {
    (($# == 2 || $# == 3)) || refuse "wait takes HOST ready|off|agent|STATE [SECONDS]"
    local host=$1 what=$2 limit=${3:-300}
    [[ $limit =~ ^[0-9]+$ ]] || refuse "wait: '$limit' is no number of seconds"
    require_host "$host"
    case $what in
        ready) wait_until "$limit" "node $host is Ready under its running boot" node_is_ready "$host" ;;
        off) wait_until "$limit" "$host is off" not runs "$host" ;;
        agent) wait_until "$limit" "the agent runs on $host" agent_runs "$host" ;;
        idle | waiting | requesting | draining | rebooting | settling | uncordoning | releasing | yielding | halted | stuck)
            wait_until "$limit" "the agent of $host is $what" agent_is "$host" "$what"
            ;;
        *) refuse "wait: '$what' is nothing to wait for" ;;
    esac || exit 1
}

# agent_state HOST: where its last transition went, read from the host's disk.
agent_state() {
    journalctl --quiet --directory "$(host_root "$1")/var/log/journal" SYSLOG_IDENTIFIER=lockkeeper --reverse \
        --output json --output-fields LOCKKEEPER_TO 2>/dev/null |
        jq --raw-output --unbuffered '.LOCKKEEPER_TO // empty' 2>/dev/null | head -n 1 || true
}

agent_is() { [[ $(agent_state "$1") == "$2" ]]; }

command_agent() {
    (($# == 2)) || refuse "agent takes HOST start|stop|restart|kill"
    require_host "$1"
    case $2 in
        start | restart)
            inside "$1" systemctl "$2" lockkeeper.service || die "the agent of $1 did not $2"
            ;;
        stop) inside "$1" systemctl stop lockkeeper.service ;;
        kill) inside "$1" systemctl kill --signal KILL lockkeeper.service ;;
        *) refuse "agent: '$2' is not start, stop, restart or kill" ;;
    esac
}

command_install_agent() {
    (($# == 1 || $# == 2)) || refuse "install-agent takes HOST [BINARY]"
    require_host "$1"
    has_agent || die "there is no ignition/lockkeeper.bu in this tree"
    [[ -z ${2:-} || -x $2 ]] || refuse "install-agent: '$2' is no program"
    put_agent "$(host_root "$1")" "${2:-}" || die "the agent could not be put into $1"
    if is_on "$1"; then
        inside "$1" systemctl daemon-reload
        inside "$1" systemctl restart lockkeeper.service || die "the agent of $1 did not start"
    fi
}

command_rotate_certificate() {
    (($# == 1)) || refuse "rotate-certificate takes HOST"
    require_host "$1"
    node_certificate "$1" || die "no new certificate for $1"
}

require_component() {
    (($# == 1)) && is_component "$1" || refuse "which component? There are: ${components[*]}"
    require_lab
}

command_start() {
    require_component "$@"
    runs "$1" && return 0
    start_component "$1"
    await_component "$1"
}

command_stop() {
    require_component "$@"
    stop_component "$1"
}

command_restart() {
    require_component "$@"
    stop_component "$1"
    start_component "$1"
    await_component "$1"
}

command_logs() {
    (($# <= 1)) || refuse "logs takes at most one NAME"
    local file=$LAB_DIR/log/${1:-}.log
    [[ -n ${1:-} && -f $file ]] || refuse "which log? There are: $(cd "$LAB_DIR/log" 2>/dev/null && printf '%s ' *.log | sed 's/\.log//g')"
    cat "$file"
}

command_status() {
    local name host
    require_lab
    printf '%-20s %s\n' COMPONENT STATE
    for name in keeper "${components[@]}"; do
        printf '%-20s %s\n' "$name" "$(recorded "$name" | sed 's/^/runs, process /' || true)"
    done | sed 's/ *$//; /^[a-z-]*$/s/$/ (not running)/'
    echo
    printf '%-5s %-9s %-6s %-9s %-9s %-12s %s\n' HOST RELEASE POWER NODE CORDONED AGENT SYSTEM
    for host in $(hosts); do
        status_of_host "$host"
    done
}

status_of_host() {
    local host=$1 power=off ready=- cordoned=- system=-
    if is_on "$host"; then
        power=on
        system=$(inside "$host" sh -c '. /etc/os-release; echo "$PRETTY_NAME"' 2>/dev/null || true)
    fi
    if node_is_ready "$host"; then ready=Ready; else ready=NotReady; fi
    cordoned=$(api "/api/v1/nodes/$host" | jq --raw-output 'if .spec.unschedulable then "yes" else "no" end' || true)
    local agent
    agent=$(agent_state "$host")
    printf '%-5s %-9s %-6s %-9s %-9s %-12s %s\n' "$host" "$(release_of "$host")" "$power" "$ready" "${cordoned:--}" "${agent:--}" "$system"
}
