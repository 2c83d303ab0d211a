# shellcheck shell=bash
# `lab report`: runs every proof and every benchmark, and joins what they measured into one page.
#
# Each part is a command that a person can run alone. It writes its sections, as Markdown, into the
# folder that LOCKKEEPER_REPORT names; nothing else gets into the page but how each command ended.

report_parts=(search fleet cases sweep hostile drain latency idle fleetlock)
declare -A report_commands=(
    [search]="SEARCH_DEEP=1 cargo test --locked --test search -- --nocapture"
    [fleet]="FLEET_MINUTES=3 cargo test --locked --test fleet -- --nocapture"
    [cases]="cargo test --locked --test tidy cases"
    [sweep]="cargo test --locked --test sweep -- --full"
    [hostile]="tests/fuzz 3"
    [drain]="LAB_PROFILE=release cargo bench --locked --bench drain"
    [latency]="LAB_PROFILE=release cargo bench --locked --bench latency"
    [idle]="LAB_PROFILE=release cargo bench --locked --bench idle"
    [fleetlock]="cargo bench --locked --bench fleetlock"
)
declare -A report_needs_lab=([sweep]=yes [drain]=yes [latency]=yes [idle]=yes)

# Runs these parts, or all; what the others saw when they were last run on this machine stays.
command_report() {
    local part failed='' folder=$repository/target/report
    local -a parts=("$@")
    for part in "${parts[@]}"; do
        [[ -n ${report_commands[$part]:-} ]] || refuse "report: no part '$part'; there are: ${report_parts[*]}"
    done
    (($#)) || parts=("${report_parts[@]}")
    for part in "${parts[@]}"; do
        [[ -z ${report_needs_lab[$part]:-} || ! -e $LAB_DIR/run/up ]] ||
            die "a lab is up, and '$part' measures in one of its own; 'lab down' ends it"
    done
    build
    for part in "${parts[@]}"; do
        run_part "$part" "$folder/$part" || failed+=" $part"
    done
    write_page "$folder" >"$repository/tests/REPORT.md"
    cat "$repository/tests/REPORT.md"
    [[ -z $failed ]] || die "failed:$failed; the log in $folder/NAME says how"
}

run_part() { # PART FOLDER
    local began=$SECONDS status=0
    say "$1: ${report_commands[$1]}"
    rm -rf "$2"
    mkdir -p "$2"
    (
        cd "$repository"
        export LOCKKEEPER_REPORT=$2
        bash -c "${report_commands[$1]}"
    ) </dev/null >"$2/log" 2>&1 || status=$?
    local end=passed
    ((status == 0)) || end="**failed** ($status)"
    local took
    took=$(printf '%d min %02d s' $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60)))
    printf '%s\n' "| $1 | \`${report_commands[$1]}\` | $(date -u +%F), $(version_of_tree) | $took | $end |" >"$2/row"
    return "$status"
}

# The commit, and whether what was built is that commit.
version_of_tree() {
    local commit changes
    commit=$(git -C "$repository" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    changes=$(git -C "$repository" status --porcelain -- . ':!tests/REPORT.md' 2>/dev/null)
    [[ -z $changes ]] || commit+=" with changes"
    printf '%s' "$commit"
}

write_page() { # FOLDER
    local part section
    cat <<END
# What was proven and measured

\`tests/lab/lab report\` wrote this page: every table comes from the run of the command beside it. On $(nproc)
processors, Linux $(uname -r), $(rustc --version | cut -d' ' -f1,2).

| part | command | on, at commit | took | end |
|---|---|---|---|---|
END
    for part in "${report_parts[@]}"; do
        cat "$1/$part/row" 2>/dev/null || printf '%s\n' "| $part | \`${report_commands[$part]}\` | | | not run |"
    done
    for part in "${report_parts[@]}"; do
        printf '\n'
        for section in "$1/$part"/*.md; do
            [[ ! -e $section ]] || cat "$section"
        done
    done | cat -s
}
