# shellcheck shell=bash
# What the lab says. Only what was asked for goes to standard output.

say() { printf 'lab: %s\n' "$*" >&2; }

die() { printf 'lab: error: %s\n' "$*" >&2; exit 1; }

# refuse MESSAGE: the command line is wrong.
refuse() { printf 'lab: error: %s\n' "$*" >&2; exit 2; }

# now_ms: milliseconds since the epoch, for measured times.
now_ms() { date +%s%3N; }

# since MS: seconds since then, with one digit.
since() { local d=$(($(now_ms) - $1)); printf '%d.%d s' $((d / 1000)) $((d % 1000 / 100)); }

# wait_until SECONDS WHAT CMD...: polls until CMD succeeds. CMD returns 2 when waiting is in vain.
wait_until() {
    local limit=$(($1 * LAB_PATIENCE)) what=$2 begin=$SECONDS status
    shift 2
    while :; do
        status=0
        "$@" || status=$?
        case $status in
            0) return 0 ;;
            2) return 1 ;;
        esac
        if ((SECONDS - begin >= limit)); then
            say "error: waited ${limit} s in vain until $what"
            return 1
        fi
        sleep 0.2
    done
}

# tail_of FILE: the last lines, for an error message.
tail_of() { [[ -f $1 ]] && tail -n "${2:-8}" "$1" | sed 's/^/    /' >&2; return 0; }

# with_progress WHAT COUNT_CMD LOG CMD...: runs CMD with its output in LOG and says every few
# seconds how far it is. COUNT_CMD reads the log on standard input and prints a short word.
with_progress() {
    local what=$1 count=$2 log=$3 begin=$SECONDS status=0 every=15 shown=0 child
    shift 3
    [[ -t 2 ]] && every=2
    "$@" >"$log" 2>&1 &
    child=$!
    while kill -0 "$child" 2>/dev/null; do
        sleep 0.5
        if ((SECONDS - begin - shown >= every)); then
            shown=$((SECONDS - begin))
            if [[ -t 2 ]]; then
                printf '\r\033[Klab: %s: %d s, %s' "$what" "$shown" "$("$count" <"$log")" >&2
            else
                say "$what: $shown s, $("$count" <"$log")"
            fi
        fi
    done
    wait "$child" || status=$?
    [[ -t 2 ]] && ((shown)) && printf '\r\033[K' >&2
    if ((status)); then
        say "error: $what failed with status $status after $((SECONDS - begin)) s; the end of its output:"
        tail_of "$log" 20
        return "$status"
    fi
    say "$what: done in $((SECONDS - begin)) s"
}
