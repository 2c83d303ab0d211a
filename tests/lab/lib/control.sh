# shellcheck shell=bash
# The control plane and the coordinator: processes of the machine, all on loopback, each of which
# can be stopped and started by itself.

components=(etcd apiserver controller-manager scheduler coordinator)

bin() { echo "$LAB_DIR/programs/$1"; }

kubectl() { KUBECONFIG=$LAB_DIR/admin.kubeconfig "$(bin kubectl)" "$@"; }

# api PATH [CURL ARGS]: one request as the administrator; a tenth of kubectl's price.
api() {
    local path=$1
    shift
    curl --silent --fail --max-time 5 --cacert "$(pki ca.crt)" --cert "$(pki admin.crt)" --key "$(pki admin.key)" \
        "$@" "https://127.0.0.1:$LAB_PORT_API$path" 2>/dev/null
}

is_component() { [[ " ${components[*]} " == *" $1 "* ]]; }

port_of() { # COMPONENT
    case $1 in
        etcd) echo "$LAB_PORT_ETCD" ;;
        apiserver) echo "$LAB_PORT_API" ;;
        controller-manager) echo "$LAB_PORT_CONTROLLERS" ;;
        scheduler) echo "$LAB_PORT_SCHEDULER" ;;
        coordinator) echo "$LAB_PORT_COORDINATOR" ;;
    esac
}

# require_port NAME ADDRESS PORT: fails, naming who sits there, when the port is taken.
require_port() {
    local taken
    taken=$(ss -Hltnp "sport = :$3" | awk -v own="$2" '
        { at = $4; sub(/:[0-9]+$/, "", at)
          if (at == own || at == "0.0.0.0" || at == "*" || at == "[::]") { print at, $6; exit } }')
    [[ -z $taken ]] || die "port $3 on $2, which $1 needs, is taken: ${taken//users:/by }"
}

require_ports() {
    local component
    for component in "${components[@]}"; do
        require_port "$component" 127.0.0.1 "$(port_of "$component")"
    done
    require_port etcd 127.0.0.1 "$LAB_PORT_ETCD_PEER"
}

start_component() { # COMPONENT: returns at once
    local admin=$LAB_DIR/admin.kubeconfig peer=http://127.0.0.1:$LAB_PORT_ETCD_PEER
    local etcd=http://127.0.0.1:$LAB_PORT_ETCD
    case $1 in
        etcd)
            spawn etcd "$(bin etcd)" --name lab --data-dir "$LAB_DIR/etcd" --log-level warn \
                --listen-client-urls "$etcd" --advertise-client-urls "$etcd" --listen-peer-urls "$peer" \
                --initial-advertise-peer-urls "$peer" --initial-cluster "lab=$peer" --unsafe-no-fsync
            ;;
        apiserver)
            spawn apiserver "$(bin kube-apiserver)" --etcd-servers "$etcd" \
                --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --endpoint-reconciler-type none \
                --secure-port "$LAB_PORT_API" --service-cluster-ip-range 10.0.0.0/24 \
                --tls-cert-file "$(pki apiserver.crt)" --tls-private-key-file "$(pki apiserver.key)" \
                --client-ca-file "$(pki ca.crt)" --service-account-key-file "$(pki accounts.pub)" \
                --service-account-signing-key-file "$(pki accounts.key)" \
                --service-account-issuer "https://127.0.0.1:$LAB_PORT_API" \
                --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
                --audit-policy-file "$lab_home/host/audit-policy.yaml" --audit-log-path "$LAB_DIR/audit.log" \
                --audit-log-format json --audit-log-maxsize 4096 --shutdown-delay-duration 0s
            ;;
        controller-manager)
            spawn controller-manager "$(bin kube-controller-manager)" --kubeconfig "$admin" --leader-elect=false \
                --bind-address 127.0.0.1 --secure-port "$LAB_PORT_CONTROLLERS" --root-ca-file "$(pki ca.crt)" \
                --service-account-private-key-file "$(pki accounts.key)" --use-service-account-credentials \
                --authorization-always-allow-paths /healthz
            ;;
        scheduler)
            spawn scheduler "$(bin kube-scheduler)" --kubeconfig "$admin" --leader-elect=false \
                --bind-address 127.0.0.1 --secure-port "$LAB_PORT_SCHEDULER" --authorization-always-allow-paths /healthz
            ;;
        coordinator)
            spawn coordinator "$(agent_binary)" coordinator --config "$LAB_DIR/coordinator.toml"
            ;;
    esac
}

# An API server waits a minute for requests that its clients never end; who stops it wants it gone.
stop_component() {
    case $1 in
        apiserver) stop "$1" 2 ;;
        *) stop "$1" ;;
    esac
}

answers() { # COMPONENT: it is up; 2 when it has died
    runs "$1" || return 2
    case $1 in
        etcd) curl --silent --fail --max-time 2 "http://127.0.0.1:$LAB_PORT_ETCD/health" ;;
        apiserver) api /readyz ;;
        controller-manager | scheduler)
            curl --silent --fail --insecure --max-time 2 "https://127.0.0.1:$(port_of "$1")/healthz" ;;
        # Any HTTP answer will do: what the paths mean is the coordinator's business.
        coordinator) curl --silent --max-time 2 --output /dev/null "http://127.0.0.1:$LAB_PORT_COORDINATOR/" ;;
    esac >/dev/null 2>&1 || return 1
}

await_component() {
    wait_until "$seconds_control_plane" "$1 answers" answers "$1" && return 0
    runs "$1" || say "error: $1 ended by itself"
    say "the end of $LAB_DIR/log/$1.log:"
    tail_of "$LAB_DIR/log/$1.log"
    return 1
}

# Without a coordinator in the binary there is none to start; hosts then wait for their slot.
has_coordinator() { "$(agent_binary)" coordinator --help 2>/dev/null | grep -q -e --config; }

start_control_plane() {
    start_component etcd
    await_component etcd || return 1
    start_component apiserver
    await_component apiserver || return 1
    start_component controller-manager
    start_component scheduler
    await_component controller-manager && await_component scheduler
}

start_coordinator() {
    mkdir -p "$LAB_DIR/coordinator/run"
    sed -e "s|@PORT@|$LAB_PORT_COORDINATOR|; s|@STATE@|$LAB_DIR/coordinator|; s|@SLOTS@|$LAB_SLOTS|" \
        "$lab_home/host/coordinator.toml" >"$LAB_DIR/coordinator.toml"
    # A group for each host beside the common one, for whoever wants hosts that do not wait for each other.
    hosts | sed 's/.*/\n[[coordinator.groups]]\nname = "&"\nslots = 1/' >>"$LAB_DIR/coordinator.toml"
    if has_coordinator; then
        start_component coordinator
        await_component coordinator
    else
        say "this lockkeeper has no coordinator yet: hosts get no slot"
    fi
}
