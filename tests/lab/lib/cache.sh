# shellcheck shell=bash
# What is slow to build is kept in the user's cache folder under a name that holds a hash of all
# its inputs, so a fresh clone finds it and a changed input makes a new one beside the old.

hash_of() { sha256sum | cut -c1-16; }

# cache_path NAME INPUTS: where the result of these inputs is, made or not.
cache_path() { echo "$LAB_CACHE/$1-$(hash_of <<<"$2")"; }

# cached NAME INPUTS BUILDER ARGS...: makes the result unless it is there. BUILDER gets the folder
# to fill as its first argument; the folder gets its final name only when BUILDER has succeeded.
cached() {
    local name=$1 path partial
    path=$(cache_path "$1" "$2")
    shift 2
    if [[ -d $path ]]; then
        touch "$path"
        return 0
    fi
    mkdir -p "$LAB_CACHE"
    exec 7>"$LAB_CACHE/.$name.lock"
    if ! flock --nonblock 7; then
        say "$name: another build is at it; waiting for that one (up to 30 minutes)"
        flock --timeout 1800 7 || die "$name: another build holds $LAB_CACHE/.$name.lock for more than 30 minutes"
    fi
    if [[ ! -d $path ]]; then
        # Whoever holds the lock is alone: partial results are of builds that were killed.
        rm -rf --one-file-system "$LAB_CACHE/.$name".*.partial
        partial=$LAB_CACHE/.$name.$$.partial
        mkdir "$partial"
        "$@" "$partial" || die "$name could not be built"
        mv -T "$partial" "$path"
        # What nobody has used for a month.
        find "$LAB_CACHE" -mindepth 1 -maxdepth 1 -type d -name "$name-*" -mtime +30 -exec rm -rf --one-file-system {} +
    fi
    exec 7>&-
}
