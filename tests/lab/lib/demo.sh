# shellcheck shell=bash
# `lab demo`: an update on every host, and what the agents then do, read from their journals.

stages=(waiting requesting draining rebooting settling uncordoning releasing)
declare -A stage_ms stage_since began_ms ended_ms end_of seen      # by host; stage_ms by host/stage

demo() {
    local count='' version='' host started=
    while (($#)); do
        case $1 in
            --hosts) count=${2:-}; [[ $count =~ ^[1-9][0-9]?$ ]] || refuse "demo: --hosts takes a number"; shift ;;
            -*) refuse "demo: unknown argument '$1'" ;;
            *) version=$1 ;;
        esac
        shift
    done
    has_agent || die "there is no ignition/lockkeeper.bu in this tree, so there is no agent to watch"
    if [[ ! -e $LAB_DIR/run/up ]]; then
        setpriv --pdeathsig TERM "$lab_home/lab" up --hosts "${count:-3}" || exit
        started=yes
    fi
    : "${version:=43.$(date -u +%Y%m%d.%H%M%S)}"
    local -a names
    mapfile -t names < <(hosts)
    for host in "${names[@]}"; do
        is_on "$host" || die "$host is off; 'lab boot $host' turns it on"
        # After a boot each agent first gives back what it might still hold.
        wait_until "$seconds_settled" "the agent of $host is idle" agent_is "$host" idle ||
            die "the agent of $host is '$(agent_state "$host")'; 'lab exec $host lockkeeper why' says why"
    done

    local begin
    begin=$(now_ms)
    say "staging $version on ${names[*]}; $LAB_SLOTS of them at a time may be down (about $((60 * ${#names[@]})) s)"
    for host in "${names[@]}"; do
        command_stage "$host" "$version"
        print_line "$begin" "$(now_ms)" "$host" "staged $version"
    done
    watch_rollout "$begin" "${names[@]}" || true
    print_table "${names[@]}"
    [[ -z $started ]] || say "the lab is still up: 'lab status' shows it, 'lab down' ends it"
    verify_rollout "$version" "${names[@]}"
}

# watch_rollout BEGIN HOST...: prints each transition until every host has come to an end.
watch_rollout() {
    local begin=$1 host fresh=''
    shift
    while (($(running_hosts "$@") > 0)); do
        if (($(now_ms) - begin > seconds_demo * LAB_PATIENCE * 1000)); then
            say "error: not at an end after $seconds_demo s"
            return 1
        fi
        [[ $fresh ]] || sleep 0.3
        fresh=
        for host; do
            show_transitions "$begin" "$host" && fresh=yes
        done
    done
}

# show_transitions BEGIN HOST: the next one that was not shown yet; fails if there is none. Reads the
# journal from the host's disk each time: a journalctl that follows loses the thread at a reboot.
show_transitions() {
    local begin=$1 host=$2 time from to because target
    IFS=$'\x1f' read -r time from to because target < <(transitions "$begin" "$host" | tail -n +$((${seen[$host]:-0} + 1))) || return 1
    seen[$host]=$((${seen[$host]:-0} + 1))
    print_line "$begin" "$time" "$host" "$(printf '%-11s -> %-11s' "$from" "$to") ${because:+ $because}${target:+  [${target:0:22}]}"
    note_transition "$time" "$host" "$from" "$to"
}

# transitions BEGIN HOST: all since then. A unit separator between the fields: unlike a tab it keeps
# empty ones apart.
transitions() {
    journalctl --quiet --directory "$(host_root "$2")/var/log/journal" --since "@$(($1 / 1000))" --output json \
        SYSLOG_IDENTIFIER=lockkeeper 2>/dev/null |
        jq --raw-output --argjson begin "$1" 'select(.LOCKKEEPER_TO != null and (.__REALTIME_TIMESTAMP[:-3] | tonumber) >= $begin)
            | [.__REALTIME_TIMESTAMP[:-3], .LOCKKEEPER_FROM, .LOCKKEEPER_TO, .LOCKKEEPER_BECAUSE, .LOCKKEEPER_TARGET]
            | map(. // "" | tostring) | join("\u001f")' 2>/dev/null || true
}

running_hosts() {
    local host running=0
    for host; do
        [[ ${end_of[$host]:-} ]] || running=$((running + 1))
    done
    echo "$running"
}

note_transition() { # TIME HOST FROM TO
    local time=$1 host=$2 from=$3 to=$4 key=$2/$3
    [[ -z ${stage_since[$host]:-} ]] ||
        stage_ms[$key]=$((${stage_ms[$key]:-0} + time - ${stage_since[$host]}))
    stage_since[$host]=$time
    : "${began_ms[$host]:=$time}"
    case $to in
        # Idle after the slot was given back; a host may also yield and try again.
        idle) [[ $from != releasing ]] || end_of[$host]="done" ;;
        halted | stuck) end_of[$host]=$to ;;
    esac
    [[ -z ${end_of[$host]:-} ]] || ended_ms[$host]=$time
}

print_line() { # BEGIN TIME HOST TEXT
    local passed=$(($2 - $1))
    ((passed >= 0)) || passed=0
    printf '%5d.%d s  %-4s %s\n' $((passed / 1000)) $((passed % 1000 / 100)) "$3" "$4"
}

print_table() {
    local host stage
    printf '\n%-6s' host
    printf '%12s' "${stages[@]}" total
    printf '  %s\n' end
    for host; do
        printf '%-6s' "$host"
        for stage in "${stages[@]}"; do
            printf '%12s' "$(tenths "${stage_ms[$host/$stage]:-}")"
        done
        if [[ ${ended_ms[$host]:-} ]]; then
            printf '%12s' "$(tenths $((${ended_ms[$host]} - ${began_ms[$host]})))"
        else
            printf '%12s' -
        fi
        printf '  %s\n' "${end_of[$host]:-not at an end}"
    done
    echo
}

tenths() { # MS
    [[ -z $1 ]] && { echo -; return; }
    printf '%d.%d s' $(($1 / 1000)) $(($1 % 1000 / 100))
}

# What the journal says is the agents' word; this looks at the hosts.
verify_rollout() { # VERSION HOST...
    local version=$1 host failed=0
    shift
    for host; do
        if [[ ${end_of[$host]:-} != "done" ]]; then
            failed=1
        elif [[ $(inside "$host" sh -c '. /etc/os-release; echo "$OSTREE_VERSION $VERSION $VERSION_ID"' 2>/dev/null) != *"$version"* ]]; then
            say "error: $host runs another system than $version"
            failed=1
        elif [[ $(api "/api/v1/nodes/$host" | jq --raw-output '.spec.unschedulable // false') != false ]]; then
            say "error: $host is still cordoned"
            failed=1
        fi
    done
    ((failed == 0)) || die "the rollout did not go through"
}
