# shellcheck shell=bash
# `lab report`: runs every proof and every benchmark, and joins what they measured into one page.
#
# Each part is a command that a person can run alone. It writes its sections, as Markdown, into the
# folder that LOCKKEEPER_REPORT names; nothing else gets into the page but how each command ended.

report_parts=(search fleet cases sweep hostile drain latency idle fleetlock)
declare -A report_commands=(
    [search]="SEARCH_DEEP=1 cargo test --locked --release --test search -- --nocapture"
    [fleet]="FLEET_MINUTES=5 cargo test --locked --release --test fleet -- --nocapture"
    [cases]="cargo test --locked --test tidy cases"
    [sweep]="cargo test --locked --test sweep -- --full"
    [hostile]="tests/fuzz 5"
    [drain]="LAB_PROFILE=release cargo bench --locked --bench drain"
    [latency]="LAB_PROFILE=release cargo bench --locked --bench latency"
    [idle]="LAB_PROFILE=release cargo bench --locked --bench idle"
    [fleetlock]="cargo bench --locked --bench fleetlock"
)
declare -A report_needs_lab=([sweep]=yes [drain]=yes [latency]=yes [idle]=yes)

# Without parts: all of them, and the page in the repository is written anew.
command_report() {
    local part failed= folder=$repository/target/report
    local -a parts=("$@") rows=()
    for part in "${parts[@]}"; do
        [[ -n ${report_commands[$part]:-} ]] || refuse "report: no part '$part'; there are: ${report_parts[*]}"
    done
    (($#)) || parts=("${report_parts[@]}")
    for part in "${parts[@]}"; do
        [[ -z ${report_needs_lab[$part]:-} || ! -e $LAB_DIR/run/up ]] ||
            die "a lab is up, and '$part' measures in one of its own; 'lab down' ends it"
    done
    rm -rf "$folder"
    mkdir -p "$folder/parts"
    build
    for part in "${parts[@]}"; do
        run_part "$part" "$folder" || failed=yes
    done
    local page=$folder/page.md
    write_page "$folder" >"$page"
    (($#)) || cp "$page" "$repository/tests/REPORT.md"
    cat "$page"
    [[ -z $failed ]] || die "a part failed; $folder/NAME.log says how"
}

# Appends the row of the table to `rows`.
run_part() { # PART FOLDER
    local began=$SECONDS status=0
    say "$1: ${report_commands[$1]}"
    (
        cd "$repository"
        export LOCKKEEPER_REPORT=$2/parts
        bash -c "${report_commands[$1]}"
    ) </dev/null >"$2/$1.log" 2>&1 || status=$?
    local end=passed
    ((status == 0)) || end="**failed** ($status)"
    rows+=("| $1 | \`${report_commands[$1]}\` | $(minutes $((SECONDS - began))) | $end |")
    return "$status"
}

minutes() { # SECONDS
    printf '%d min %02d s' $(($1 / 60)) $(($1 % 60))
}

write_page() { # FOLDER
    local commit section
    commit=$(git -C "$repository" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    [[ -z $(git -C "$repository" status --porcelain -- . ':!tests/REPORT.md' 2>/dev/null) ]] || commit+=" with changes"
    cat <<END
# What was proven and measured

\`tests/lab/lab report\` wrote this page: every table comes from the run that its command names.

Run on $(date -u +%F) at commit $commit; $(nproc) processors, Linux $(uname -r), $(rustc --version | cut -d' ' -f1,2).

| part | command | took | end |
|---|---|---|---|
END
    printf '%s\n' "${rows[@]}"
    for section in "$1"/parts/*.md; do
        [[ -e $section ]] || continue
        printf '\n'
        cat "$section"
    done
}
