# shellcheck shell=bash
# Where the hosts' systems are installed from.

# need_mirror: sets LAB_MIRROR, unless it is set, to where this machine's own apt gets Debian from.
need_mirror() {
    [[ -z $LAB_MIRROR ]] || return 0
    command -v apt-get >/dev/null || die "no apt-get to ask for a Debian mirror; set LAB_MIRROR=http://..."
    local codename
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
    # Needs no lists, so it works before the first `apt-get update`.
    LAB_MIRROR=$(apt-get update --print-uris | mirror_among "$codename")
    [[ -n $LAB_MIRROR ]] || die "apt's sources name no Debian mirror for $codename; set LAB_MIRROR=http://..."
}

# mirror_among CODENAME: the mirror in apt's list of addresses on stdin, nothing if there is none.
# Other repositories have a suite of the same name; only Debian's has its updates beside it.
mirror_among() {
    local addresses suite site sites=()
    addresses=$(sed -n "s/^'\([^']*\)'.*/\1/p")
    for suite in "$1" stable oldstable; do
        while read -r site; do
            grep -qxF "$site/dists/$suite-updates/InRelease" <<<"$addresses" && sites=("$site" "${sites[@]}")
            grep -qF "$site/dists/$suite/main/" <<<"$addresses" && sites+=("$site")
        done < <(sed -n "s|/dists/$suite/InRelease\$||p" <<<"$addresses")
    done
    for site in "${sites[@]}"; do
        case $site in
        http://* | https://*) echo "$site" && return ;;
        # A list of mirrors in a file, as images for clouds have it: its first line will do.
        mirror+file:*)
            site=$(grep -oEm 1 '^https?://[^[:space:]]+' "${site#mirror+file:}") || continue
            echo "${site%/}" && return
            ;;
        esac
    done
}
