# shellcheck shell=bash
# `lab build`: everything that `lab up` needs, each part only if it is missing.

declare -A extra_packages=(
    [bookworm]=policykit-1
    [trixie]=polkitd
)
base_packages=systemd,systemd-sysv,dbus,libpam-systemd,ca-certificates,tzdata
releases=(bookworm trixie)      # of n1, n2, n1 again, ...

# command -> Debian package
declare -A needed=(
    [systemd-nspawn]=systemd-container [debootstrap]=debootstrap [dbus-daemon]=dbus [openssl]=openssl
    [ip]=iproute2 [ss]=iproute2 [nsenter]=util-linux [setpriv]=util-linux [curl]=curl [jq]=jq
    [cc]=build-essential
)

build() {
    need_root
    install_packages
    need_compilers
    local begin=$SECONDS release
    cached controlplane "$(controlplane_inputs)" build_controlplane
    for release in "${releases[@]}"; do
        cached "$release" "$(release_inputs "$release")" build_release "$release"
    done
    build_binaries
    say "build: all there ($((SECONDS - begin)) s)"
}

need_root() { ((EUID == 0)) || die "needs root (hosts are containers with a real init)"; }

install_packages() {
    local command missing=()
    for command in "${!needed[@]}"; do
        command -v "$command" >/dev/null || missing+=("${needed[$command]}")
    done
    [[ -e /etc/ssl/certs/ca-certificates.crt ]] || missing+=(ca-certificates)
    [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || missing+=(debian-archive-keyring)
    ((${#missing[@]})) || return 0
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    command -v apt-get >/dev/null || die "missing: ${missing[*]}; and no apt-get to install them with"
    local log
    log=$(mktemp)
    say "installing ${missing[*]} (about half a minute)"
    apt_install "${missing[@]}" >"$log" 2>&1 ||
        { apt-get update >>"$log" 2>&1 && apt_install "${missing[@]}" >>"$log" 2>&1; } ||
        { tail_of "$log"; die "apt-get could not install ${missing[*]}; the whole output is in $log"; }
    rm -f "$log"
}

apt_install() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" </dev/null; }

need_compilers() {
    local tool
    for tool in go cargo; do
        command -v "$tool" >/dev/null && continue
        # A plain root shell often lacks the places where their installers put them.
        [[ -x /usr/local/go/bin/go && $tool = go ]] && PATH=$PATH:/usr/local/go/bin
        [[ -x $HOME/.cargo/bin/cargo && $tool = cargo ]] && PATH=$PATH:$HOME/.cargo/bin
        command -v "$tool" >/dev/null || die "$tool is not in PATH; the lab needs Go 1.26 and Rust 1.95"
    done
}

# === the control plane ===

go_flags=(-trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes_version")
programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet fakecri ignite)

controlplane_inputs() {
    cat "$lab_home"/controlplane/{go.mod,go.sum,main.go,ignite.go}
    go version
    echo "${go_flags[*]} ${programs[*]}"
}

build_controlplane() { # FOLDER
    local program
    say "control plane: building Kubernetes $kubernetes_version and etcd: about 8 minutes on 2 idle cores," \
        "10 s when Go has them in its cache"
    with_progress "control plane" packages_compiled "$1/build.log" \
        env -C "$lab_home/controlplane" CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local \
        nice go build -v "${go_flags[@]}" -o "$1/controlplane" . || return 1
    for program in "${programs[@]}"; do
        ln -s controlplane "$1/$program"
    done
}

packages_compiled() { echo "$(grep -c / || true) of about 1900 packages"; }

# === the hosts' systems ===

release_inputs() { # RELEASE
    echo "$1 $base_packages,${extra_packages[$1]} $LAB_MIRROR"
    declare -f build_release
}

build_release() { # RELEASE FOLDER
    local release=$1 root=$2/root
    say "$release: installing Debian $release with systemd for the hosts: about a minute"
    with_progress "$release" last_step "$2/build.log" \
        nice debootstrap --variant=minbase --include="$base_packages,${extra_packages[$release]}" \
        "$release" "$root" "$LAB_MIRROR" || return 1
    # What no host reads is not worth copying for each of them.
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale,info}/*
}

last_step() { tail -n 1 | cut -c1-60; }

# === our own binaries ===

cargo_target() { echo "${CARGO_TARGET_DIR:-$repository/target}/$([[ $LAB_PROFILE == dev ]] && echo debug || echo "$LAB_PROFILE")"; }
agent_binary() { echo "$(cargo_target)/lockkeeper"; }
standin_binary() { echo "$(cargo_target)/standin"; }

build_binaries() {
    say "agent and stand-in: cargo build, profile $LAB_PROFILE (cold about 5 minutes on 2 cores, else seconds)"
    local quiet=()
    [[ -t 2 ]] || quiet=(--quiet)
    # Cargo takes its configuration from the working folder.
    (cd "$repository" && cargo build --locked "${quiet[@]}" --profile "$LAB_PROFILE" -p lockkeeper -p standin --bins) >&2 ||
        die "cargo build failed"
}
