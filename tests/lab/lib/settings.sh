# shellcheck shell=bash
# shellcheck disable=SC2034  # read by the other parts
# Every setting in one place. Each can be set in the environment by the name used here.

# --- where things are ---
LAB_DIR=$(realpath -m "${LAB_DIR:-$repository/target/lab}")   # state of the running lab
export LAB_DIR
LAB_CACHE=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lockkeeper-lab}   # what is slow to build
LAB_MIRROR=${LAB_MIRROR:-http://deb.debian.org/debian}        # Debian mirror of the hosts' systems
LAB_PROFILE=${LAB_PROFILE:-dev}                               # cargo profile of agent and stand-in

# --- the world that it builds ---
LAB_SLOTS=${LAB_SLOTS:-1}                 # how many hosts of group `default` may be down at once
LAB_NODE_NET=${LAB_NODE_NET:-10.99.0}     # host nK gets the address .(10+K) of it on `lo`
LAB_PORT_API=${LAB_PORT_API:-6443}
LAB_PORT_ETCD=${LAB_PORT_ETCD:-2379}
LAB_PORT_ETCD_PEER=${LAB_PORT_ETCD_PEER:-2380}
LAB_PORT_CONTROLLERS=${LAB_PORT_CONTROLLERS:-10257}
LAB_PORT_SCHEDULER=${LAB_PORT_SCHEDULER:-10259}
LAB_PORT_KUBELET=${LAB_PORT_KUBELET:-10250}          # on each host's own address
LAB_PORT_COORDINATOR=${LAB_PORT_COORDINATOR:-3333}

# --- how long a wait may last, in seconds; a loaded 2-core machine is the measure ---
LAB_PATIENCE=${LAB_PATIENCE:-1}           # factor on every limit below, for a slower machine
seconds_control_plane=90                  # from start to /readyz: 5 s when idle
seconds_stop=20                           # from SIGTERM to SIGKILL
seconds_boot=90                           # from nspawn to "booted": 2 s when idle
seconds_ready=180                         # from "booted" to a Ready node: 8 s when idle
seconds_workload=180                      # until every pod of the workload runs
seconds_stage=150                         # slow-activation alone may take a minute and more
seconds_demo=1200                         # a whole rollout
LAB_EXEC_SECONDS=${LAB_EXEC_SECONDS:-600} # of a command inside a host; no limit on a terminal

kubernetes_version=v1.36.3
hosts_max=20
fault_kinds=(finalize-fails boot-fails unhealthy reboot-never boot-full slow-activation)

# What the workload may ask for: the fake runtime knows these images and no other.
images=(registry.invalid/web:1 registry.invalid/queue:1 registry.invalid/logs:1 registry.invalid/job:1
    registry.invalid/pause:1)

# Of this lab alone: whoever takes a lab down kills what it finds in there, and labs with addresses and
# ports of their own may be side by side.
cgroup=lockkeeper-lab-$(sha256sum <<<"$LAB_DIR" | cut -c1-8)

# The one lab of this machine: its addresses and ports exist only once.
machine_lock=${LAB_MACHINE_LOCK:-/run/lockkeeper-lab.lock}
