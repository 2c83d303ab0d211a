# shellcheck shell=bash
# The root file system of a host: a copy of its release's base, with identity, kubelet, stand-in
# and agent put in.

host_root() { echo "$LAB_DIR/hosts/$1"; }
release_of() { echo "${releases[$(((${1#n} - 1) % ${#releases[@]}))]}"; }
address_of() { echo "$LAB_NODE_NET.$((10 + ${1#n}))"; }

make_root() { # HOST
    local host=$1 root base
    root=$(host_root "$host")
    base=$(cache_path "$(release_of "$host")" "$(release_inputs "$(release_of "$host")")")/root
    cp -a --reflink=auto "$base" "$root" || return 1
    give_identity "$host" "$root" || return 1
    quieten "$root" || return 1
    put_kubelet "$host" "$root" || return 1
    put_standin "$root" || return 1
    if [[ ! -e $LAB_DIR/run/no-agent ]]; then
        put_agent "$root" || return 1
    fi
}

give_identity() { # HOST ROOT
    local host=$1 root=$2
    echo "$host" >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n%s %s\n' "$(address_of "$host")" "$host" >"$root/etc/hosts"
    # Made here and not by the first boot, which would then also enable every unit by its preset,
    # among them a networkd that would clear the machine's routing rules.
    tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
    rm -f "$root/var/lib/dbus/machine-id"
    # Nobody resolves anything here, but the kubelet makes no pod without the file.
    echo 'nameserver 127.0.0.1' >"$root/etc/resolv.conf"
    mkdir -p "$root/var/log/journal/$(<"$root/etc/machine-id")" "$root/etc/systemd/journald.conf.d"
    printf '[Journal]\nStorage=persistent\nRateLimitIntervalSec=0\nSyncIntervalSec=1s\n' \
        >"$root/etc/systemd/journald.conf.d/lab.conf"
}

# What makes noise or would touch the shared network.
quieten() { # ROOT
    local unit
    for unit in systemd-networkd.service systemd-networkd.socket systemd-network-generator.service \
        systemd-resolved.service systemd-timesyncd.service console-getty.service getty.target \
        apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer; do
        ln -sf /dev/null "$1/etc/systemd/system/$unit"
    done
}

put_kubelet() { # HOST ROOT
    local host=$1 root=$2 file
    mkdir -p "$root/etc/kubernetes" "$root/opt/lab" "$root/usr/local/sbin"
    for file in kubelet.service fakecri.service; do
        fill "$host" "$lab_home/host/$file" >"$root/etc/systemd/system/$file"
    done
    fill "$host" "$lab_home/host/kubelet.yaml" >"$root/etc/kubernetes/kubelet.yaml"
    install -m 755 "$lab_home/host/kubelet-stand-ins" "$root/usr/local/sbin/"
    kubeconfig /var/lib/kubelet/pki/kubelet-client-current.pem /var/lib/kubelet/pki/kubelet-client-current.pem \
        >"$root/etc/kubernetes/kubelet.conf"
    chmod 600 "$root/etc/kubernetes/kubelet.conf"
    node_certificate "$host" || return 1
    systemctl --quiet --root="$root" enable kubelet.service fakecri.service 2>/dev/null
}

fill() { # HOST TEMPLATE
    sed -e "s|@ADDRESS@|$(address_of "$1")|; s|@PORT@|$LAB_PORT_KUBELET|; s|@IMAGES@|${images[*]}|" "$2"
}

put_standin() { # ROOT
    if [[ -x $lab_home/standin/install ]]; then
        "$lab_home/standin/install" "$1" "$(standin_binary)" >&2 || { say "error: standin/install failed"; return 1; }
    fi
}

has_agent() { [[ -f $repository/ignition/lockkeeper.bu ]]; }

# The agent as a real host gets it: what ignition/lockkeeper.bu names, put where it says.
put_agent() { # ROOT [BINARY]
    local root=$1 binary=${2:-$(agent_binary)} units unit
    has_agent || return 0
    units=$("$(bin ignite)" "$root" "$repository/ignition/lockkeeper.bu" "$repository" lockkeeper="$(realpath "$binary")") || return 1
    for unit in $units; do
        # A unit of the operating system that Debian does not have is no part of the agent.
        [[ -e $root/etc/systemd/system/$unit || -e $root/usr/lib/systemd/system/$unit ]] || continue
        systemctl --quiet --root="$root" enable "$unit" || return 1
    done
    if grep -q '^VERSION_CODENAME=bookworm' "$root/etc/os-release"; then
        install -D -m 644 "$lab_home/host/lockkeeper-boot-id.conf" \
            "$root/etc/systemd/system/lockkeeper.service.d/lab-boot-id.conf"
        echo 'C /run/lab-boot-id 0444 root root - /proc/sys/kernel/random/boot_id' >"$root/etc/tmpfiles.d/lab-boot-id.conf"
    fi
    [[ -e $root/etc/lockkeeper/config.d/90-lab.toml ]] ||
        sed "s|@PORT@|$LAB_PORT_COORDINATOR|" "$lab_home/host/agent.toml" >"$root/etc/lockkeeper/config.d/90-lab.toml"
}
