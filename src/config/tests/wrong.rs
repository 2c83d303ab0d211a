//! Every wrong shape, and the exact words for it.

use super::{errors, host};

/// Checks the errors of one file, `a.toml`, whose name is left out of them.
fn check(text: &str, expected: &[&str]) {
    let root = host(&[("etc/lockkeeper/config.d/a.toml", text)]);
    let found = errors(root.path()).replace("/etc/lockkeeper/config.d/a.toml:", "");
    assert_eq!(found, expected.join("\n"), "{text}");
}

const DURATION: &str = "a duration with its unit, such as \"15m\" or \"1h 30m\"";

#[test]
fn keys_that_nobody_knows() {
    let known = "; `lockkeeper config default` lists all keys";
    let table = [
        ("slot.grup = 1", "1: unknown key slot.grup; did you mean slot.group?"),
        ("\n\n[slot]\ngrupp = 1", "4: unknown key slot.grupp; did you mean slot.group?"),
        ("[drian]\ndeadline = 1", "1: unknown key drian; did you mean drain?"),
        ("window = []", "1: unknown key window; did you mean windows?"),
        ("deadline = \"1m\"", "1: unknown key deadline; did you mean drain.deadline?"),
        // The same word in another table.
        ("attempts.users = \"wait\"", "1: unknown key attempts.users; did you mean reboot.users?"),
        ("slot.updates = 1", &format!("1: unknown key slot.updates{known}")),
        ("updates.strategy = \"x\"", &format!("1: unknown key updates.strategy{known}")),
        ("\"a b\".c = 1", &format!("1: unknown key \"a b\"{known}")),
        ("slot.\"a\\nb\" = 1", &format!("1: unknown key slot.\"a\\nb\"{known}")),
        (
            "[[windows]]\ndays = \"daily\"\nstrat = \"01:00\"\nstart = \"01:00\"\nlength = \"1h\"",
            "3: unknown key windows[0].strat; did you mean windows[0].start?",
        ),
        (
            "[[coordinator.groups]]\nname = \"a\"\nslots = 1\nslot = 2",
            "4: unknown key coordinator.groups[0].slot; did you mean coordinator.groups[0].slots?",
        ),
    ];
    for (text, expected) in table {
        check(text, &[expected]);
    }
}

#[test]
fn text_that_is_no_toml() {
    check("[drain\nparallel = 3", &["1: expected TOML: unclosed table, expected `]`"]);
    check("[drain]\nparallel = 3\nparallel = 4", &["3: expected TOML: duplicate key"]);
    // One error a line, and more than one line.
    let no_value = "expected TOML: key with no value, expected `=`";
    check("drain:\n  deadline: 15m\n", &[&format!("1: {no_value}"), &format!("2: {no_value}")]);
}

#[test]
fn values_of_the_wrong_kind() {
    let table = [
        ("drain = 3", "1: drain: expected a table [drain], found 3 (not in quotes)"),
        ("[[drain]]\nparallel = 3", "1: drain: expected a table [drain], found a list"),
        ("slot.only_node = \"true\"", "1: slot.only_node: expected true or false, found \"true\""),
        (
            "drain.parallel = \"3\"",
            "1: drain.parallel: expected a whole number from 1 to 100, found \"3\"",
        ),
        (
            "drain.parallel = 3.0",
            "1: drain.parallel: expected a whole number from 1 to 100, found 3.0 (not in quotes)",
        ),
        (
            "drain.parallel = []",
            "1: drain.parallel: expected a whole number from 1 to 100, found an empty list",
        ),
        (
            "slot.group = {}",
            "1: slot.group: expected 1 to 253 letters, digits, dots and dashes, found a table",
        ),
        (
            "slot.headers = []",
            "1: slot.headers: expected a table of names and texts, found an empty list",
        ),
        (
            "settle.units = \"a.service\"",
            "1: settle.units: expected a list, each item a systemd unit with its suffix, such as \"kubelet.service\", found \"a.service\"",
        ),
        (
            "node.kubeconfig = 1",
            "1: node.kubeconfig: expected an absolute path, or a list with at least one, found 1 (not in quotes)",
        ),
        ("windows = {}", "1: windows: expected tables [[windows]], at most 50, found a table"),
        ("windows = [1]", "1: windows: expected tables [[windows]], at most 50, found a list"),
        (
            "coordinator.groups = \"a\"",
            "1: coordinator.groups: expected tables [[coordinator.groups]], 1 to 1000, found \"a\"",
        ),
    ];
    for (text, expected) in table {
        check(text, &[expected]);
    }
}

#[test]
fn durations_that_are_none_or_impossible() {
    for (value, found) in [
        ("15", "15 (not in quotes)"),
        ("15.5", "15.5 (not in quotes)"),
        ("\"15\"", "\"15\""),
        ("\"-15m\"", "\"-15m\""),
        ("\"15 parsecs\"", "\"15 parsecs\""),
        ("\"\"", "\"\""),
        ("00:15:00", "00:15:00 (not in quotes)"),
    ] {
        let expected = format!("2: drain.deadline: expected {DURATION}, found {found}");
        check(&format!("[drain]\ndeadline = {value}"), &[&expected]);
    }
    let table = [
        (
            "drain.deadline = \"0s\"",
            "1: drain.deadline: expected a duration from \"1s\" to \"24h\", found \"0s\"",
        ),
        (
            "drain.deadline = \"25h\"",
            "1: drain.deadline: expected a duration from \"1s\" to \"24h\", found \"25h\"",
        ),
        (
            "drain.rehearsal_every = \"1s\"",
            "1: drain.rehearsal_every: expected a duration from \"10s\" to \"24h\", found \"1s\"",
        ),
        (
            "slot.connect_timeout = \"500ms\"",
            "1: slot.connect_timeout: expected a duration from \"1s\" to \"5m\", found \"500ms\"",
        ),
        (
            "settle.time = \"2d\"",
            "1: settle.time: expected a duration from \"1s\" to \"1h\", found \"2d\"",
        ),
    ];
    for (text, expected) in table {
        check(text, &[expected]);
    }
}

#[test]
fn numbers_and_words_that_are_impossible() {
    let table = [
        (
            "drain.parallel = 0",
            "1: drain.parallel: expected a whole number from 1 to 100, found 0 (not in quotes)",
        ),
        (
            "drain.parallel = -1",
            "1: drain.parallel: expected a whole number from 1 to 100, found -1 (not in quotes)",
        ),
        (
            "attempts.limit = 0",
            "1: attempts.limit: expected a whole number from 1 to 100, found 0 (not in quotes)",
        ),
        (
            "reboot.boot_free_mib = 99999999999999999999",
            "1: reboot.boot_free_mib: expected a whole number from 0 to 1000000, found 99999999999999999999 (not in quotes)",
        ),
        (
            "drain.on_deadline = \"force\"",
            "1: drain.on_deadline: expected \"yield\" or \"delete\" or \"reboot\", found \"force\"",
        ),
        (
            "slot.backend = \"FleetLock\"",
            "1: slot.backend: expected \"fleetlock\" or \"none\", found \"FleetLock\"",
        ),
        ("slot.backend = \"\"", "1: slot.backend: expected \"fleetlock\" or \"none\", found \"\""),
    ];
    for (text, expected) in table {
        check(text, &[expected]);
    }
}

#[test]
fn texts_against_their_rule() {
    let path = "expected an absolute path";
    let group = "expected 1 to 253 letters, digits, dots and dashes";
    let id = "expected 1 to 253 printable ASCII characters without blanks";
    let name = "expected the name of a Node (lower-case letters, digits, dots and dashes)";
    let unit = "expected a systemd unit with its suffix, such as \"kubelet.service\"";
    let listen = "expected an IP address and a port, such as \"127.0.0.1:9090\" or \"[::]:9090\"";
    let loopback =
        "expected a loopback address and a port, such as \"127.0.0.1:9092\" or \"[::1]:9092\"";
    let table = [
        ("agent.state_dir", "var/lib", path),
        ("agent.state_dir", "", path),
        ("agent.hold_file", "/a\\nb", path),
        ("slot.group", "", group),
        ("slot.group", "a b", group),
        ("slot.group", "a/b", group),
        ("slot.group", "gruppe-ä", group),
        ("slot.id", "", id),
        ("slot.id", "a b", id),
        ("node.name", "Worker", name),
        ("node.name", "-a", name),
        ("node.name", "a..b", name),
        ("node.name", "", name),
        ("metrics.listen", "9090", listen),
        ("metrics.listen", ":9090", listen),
        ("metrics.listen", "localhost:9090", listen),
        ("metrics.listen", "127.0.0.1:0", listen),
        ("metrics.listen", "127.0.0.1:65536", listen),
        ("coordinator.listen", "127.0.0.1", listen),
        ("zincati.listen", "0.0.0.0:9092", loopback),
        ("zincati.listen", "192.0.2.1:9092", loopback),
        ("zincati.listen", "[::]:9092", loopback),
        ("zincati.listen", "[::ffff:127.0.0.1]:9092", loopback),
    ];
    for (key, value, expected) in table {
        check(
            &format!("{key} = \"{value}\""),
            &[&format!("1: {key}: {expected}, found \"{value}\"")],
        );
    }
    for wrong in ["kubelet", ".service", "a b.service", "kubelet.timers", "../a.service"] {
        check(
            &format!("settle.units = [\"good.service\",\n\"{wrong}\"]"),
            &[&format!("2: settle.units[1]: {unit}, found \"{wrong}\"")],
        );
    }
    check(
        "node.kubeconfig = []",
        &[&format!("1: node.kubeconfig: {path}, or a list with at least one, found an empty list")],
    );
    check(
        "node.kubeconfig = [\"a\", 1]",
        &[
            &format!("1: node.kubeconfig[0]: {path}, found \"a\""),
            &format!("1: node.kubeconfig[1]: {path}, found 1 (not in quotes)"),
        ],
    );
    let long = "x".repeat(254);
    let cut = "x".repeat(64);
    check(
        &format!("slot.group = \"{long}\""),
        &[&format!("1: slot.group: {group}, found \"{cut}\" …")],
    );
}

#[test]
fn urls_that_lead_nowhere_or_carry_a_password() {
    let base = "slot.base_url: expected a URL with http:// or https:// and a host, without query and fragment, and without user and password (slot.headers can carry an authorization)";
    for (url, found) in [
        ("", ""),
        ("fleetlock.example", "fleetlock.example"),
        ("fleetlock.example:8080", "fleetlock.example:8080"),
        ("//fleetlock.example", "//fleetlock.example"),
        ("ftp://fleetlock.example", "ftp://fleetlock.example"),
        ("unix:///run/x", "unix:///run/x"),
        ("http:fleetlock.example", "http:fleetlock.example"),
        ("http://", "http://"),
        ("http:///path", "http:///path"),
        ("http://fleetlock.example/?a=b", "http://fleetlock.example/?a=b"),
        ("http://fleetlock.example/#a", "http://fleetlock.example/#a"),
        ("http://fleetlock.example:99999", "http://fleetlock.example:99999"),
        ("http://fleetlock.example:0", "http://fleetlock.example:0"),
        ("http://fleet lock.example", "http://fleet lock.example"),
        (" http://fleetlock.example", " http://fleetlock.example"),
        ("http://user:secret@fleetlock.example/", "***@fleetlock.example/"),
        ("user:secret@fleetlock.example", "***@fleetlock.example"),
        ("http://user@fleetlock.example", "***@fleetlock.example"),
        ("http://:secret@fleetlock.example", "***@fleetlock.example"),
    ] {
        let text = format!("slot = {{ backend = \"fleetlock\", base_url = \"{url}\" }}");
        check(&text, &[&format!("1: {base}, found \"{found}\"")]);
    }
    let proxy =
        "slot.proxy: expected a URL with http:// or https:// and a host and nothing behind it";
    for (url, found) in [
        ("socks5://user:secret@proxy.example", "***@proxy.example"),
        ("http://proxy.example/path", "http://proxy.example/path"),
        ("proxy.example:3128", "proxy.example:3128"),
    ] {
        check(&format!("slot.proxy = \"{url}\""), &[&format!("1: {proxy}, found \"{found}\"")]);
    }
}

#[test]
fn headers_that_cannot_be_and_are_not_shown() {
    let value = "expected printable ASCII characters, no blank at either end, found something else (not shown)";
    let name = "expected the name of a header that lockkeeper does not set itself";
    let table = [
        ("x = 1", format!("1: slot.headers.x: {value}")),
        ("x = \" secret\"", format!("1: slot.headers.x: {value}")),
        ("x = \"a\\r\\nb: c\"", format!("1: slot.headers.x: {value}")),
        ("x = \"geheim-ä\"", format!("1: slot.headers.x: {value}")),
        ("\"a b\" = \"1\"", format!("1: slot.headers.\"a b\": {name}, found \"a b\"")),
        ("\"\" = \"1\"", format!("1: slot.headers.\"\": {name}, found \"\"")),
        ("Fleet-Lock-Protocol = \"false\"", format!("1: slot.headers.Fleet-Lock-Protocol: {name}, found \"Fleet-Lock-Protocol\"")),
        ("Host = \"other\"", format!("1: slot.headers.Host: {name}, found \"Host\"")),
        ("A = \"1\", a = \"2\"", "1: slot.headers.a: expected each header once, found the same name twice (upper and lower case are the same)".to_owned()),
    ];
    for (header, expected) in table {
        check(&format!("slot.headers = {{ {header} }}"), &[&expected]);
    }
    check(
        "slot.headers = \"Bearer secret\"",
        &["1: slot.headers: expected a table of names and texts, found a text (not shown)"],
    );
}

#[test]
fn half_and_impossible_windows() {
    let need = "expected a window to have days, start and length, found nothing";
    let missing = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("1: windows[0].{name}: {need}")).collect()
    };
    let parts = [
        ("days", "days = \"daily\"\n"),
        ("start", "start = \"01:00\"\n"),
        ("length", "length = \"1h\"\n"),
    ];
    for half in 0..7_usize {
        let given = |n: usize| half & (1 << n) != 0;
        let body: String = (0..3).filter(|n| given(*n)).map(|n| parts[n].1).collect();
        let names: Vec<&str> = (0..3).filter(|n| !given(*n)).map(|n| parts[n].0).collect();
        let expected = missing(&names);
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(&format!("[[windows]]\n{body}"), &expected);
    }
    check(
        "[[windows]]\ndays = []\nstart = \"1:00\"\nlength = \"8d\"\nzone = \"Mars\"\n[[windows]]\ndays = 1\nstart = 01:00:00\nlength = 2\nzone = \"\"\n",
        &[
            "2: windows[0].days: expected days such as \"mon\" or \"monday\", \"daily\", \"weekdays\" or \"weekends\", at least one, found \"\"",
            "3: windows[0].start: expected a local time from \"00:00\" to \"23:59\", found \"1:00\"",
            "4: windows[0].length: expected a duration between \"1m\" and \"7d\", found \"8d\"",
            "5: windows[0].zone: expected the IANA name of a time zone that this host knows (tzdata), such as \"UTC\" or \"Europe/Berlin\", found \"Mars\"",
            "7: windows[1].days: expected a text or a list of texts, found 1 (not in quotes)",
            "8: windows[1].start: expected a text, found 01:00:00 (not in quotes)",
            "9: windows[1].length: expected a text, found 2 (not in quotes)",
            "10: windows[1].zone: expected the IANA name of a time zone that this host knows (tzdata), such as \"UTC\" or \"Europe/Berlin\", found \"\"",
        ],
    );
}

#[test]
fn groups_that_cannot_be() {
    check(
        "coordinator.groups = []",
        &[
            "1: coordinator.groups: expected tables [[coordinator.groups]], 1 to 1000, found an empty list",
        ],
    );
    check(
        "[[coordinator.groups]]\n[[coordinator.groups]]\nname = \"a b\"\nslots = 0\n[[coordinator.groups]]\nname = \"a\"\nslots = 1\n[[coordinator.groups]]\nname = \"a\"\nslots = 2\n",
        &[
            "1: coordinator.groups[0].name: expected a group to have name and slots, found nothing",
            "1: coordinator.groups[0].slots: expected a group to have name and slots, found nothing",
            "3: coordinator.groups[1].name: expected 1 to 253 letters, digits, dots and dashes, found \"a b\"",
            "4: coordinator.groups[1].slots: expected a whole number from 1 to 10000, found 0 (not in quotes)",
            "8: coordinator.groups[3].name: expected each group once, found \"a\"",
        ],
    );
}

#[test]
fn keys_that_do_not_go_together() {
    let https = "expected slot.base_url to begin with https://, or this would protect nothing";
    let table = [
        (
            "slot.backend = \"fleetlock\"",
            "slot.base_url: expected the URL of the server, since slot.backend is \"fleetlock\"",
        ),
        (
            "slot.base_url = \"https://lock.example\"",
            "slot.backend: expected \"fleetlock\" or \"none\", since slot.base_url is set",
        ),
        (
            "slot.client_certificate = \"/c\"",
            "1: slot.client_certificate: expected slot.client_key beside it",
        ),
        (
            "slot.client_key = \"/c\"",
            "1: slot.client_key: expected slot.client_certificate beside it",
        ),
        (
            "[slot]\nbackend = \"fleetlock\"\nbase_url = \"HTTP://lock.example\"\nca_file = \"/c\"",
            &format!("4: slot.ca_file: {https}"),
        ),
        (
            "[slot]\nbackend = \"fleetlock\"\nbase_url = \"http://lock.example\"\nclient_key = \"/k\"\nclient_certificate = \"/c\"",
            &format!("5: slot.client_certificate: {https}"),
        ),
        (
            "attempts.backoff_first = \"2h\"",
            "attempts.backoff_max: expected at least attempts.backoff_first, which is 2h",
        ),
        (
            "attempts.backoff_max = \"1m\"",
            "1: attempts.backoff_max: expected at least attempts.backoff_first, which is 5m",
        ),
        ("settle.time = \"10m\"", "settle.deadline: expected more than settle.time, which is 10m"),
        ("drain.grace_period = \"1500ms\"", "1: drain.grace_period: expected whole seconds"),
        (
            "[[windows]]\ndays = \"sun\"\nstart = \"03:00\"\nlength = \"19m\"",
            "1: windows: expected a window of at least 20m, or no attempt ever starts: drain.deadline (15m) and reboot.estimate (5m) must fit into it",
        ),
    ];
    for (text, expected) in table {
        check(text, &[expected]);
    }
}

#[test]
fn nothing_is_concluded_from_a_value_that_is_wrong() {
    // Each would be in conflict if the wrong key counted as unset, or as its default.
    for (text, key) in [
        ("slot.client_certificate = \"/c\"\nslot.client_key = \"k\"", "slot.client_key"),
        ("slot.backend = \"fleetlock\"\nslot.base_url = \"x\"", "slot.base_url"),
        ("slot.base_url = \"https://lock.example\"\nslot.backend = \"x\"", "slot.backend"),
        ("settle.time = \"10m\"\nsettle.deadline = 1", "settle.deadline"),
    ] {
        let root = host(&[("etc/lockkeeper/config.d/a.toml", text)]);
        let found = errors(root.path());
        assert!(found.contains(&format!(":2: {key}: ")), "{found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let root = host(&[
        ("usr/lib/lockkeeper/config.d/1.toml", "drain.parallel = 0\n"),
        ("etc/lockkeeper/config.d/0.yaml", ""),
        ("etc/lockkeeper/config.d/2.toml", "drain = [\n"),
        (
            "etc/lockkeeper/config.d/3.toml",
            "drain.parallel = 5\nslot.grup = \"a\"\nattempts.backoff_max = \"1m\"\n",
        ),
    ]);
    assert_eq!(
        errors(root.path()),
        "/etc/lockkeeper/config.d/0.yaml: expected a name that ends in .toml, or the file would be ignored: rename it or take it away\n\
         /usr/lib/lockkeeper/config.d/1.toml:1: drain.parallel: expected a whole number from 1 to 100, found 0 (not in quotes)\n\
         /etc/lockkeeper/config.d/2.toml:1: expected TOML: unclosed array, expected `]`\n\
         /etc/lockkeeper/config.d/3.toml:2: unknown key slot.grup; did you mean slot.group?\n\
         /etc/lockkeeper/config.d/3.toml:3: attempts.backoff_max: expected at least attempts.backoff_first, which is 5m"
    );
}

/// What a node finds its way home with: what is right counts, what is wrong has its default.
#[test]
fn what_is_right_of_a_wrong_configuration_counts() {
    let slot = "[slot]\nbackend = \"fleetlock\"\nbase_url = \"http://a/\"\n";
    let minute = std::time::Duration::from_secs(60);
    for (rest, deadline, settle_unknown, slot_is_known) in [
        ("[drain]\ndeadline = 15\nparallel = 7\n", 15 * minute, false, true),
        ("[drain]\ndeadline = \"9m\"\nparallel = 7\nnewer = true\n", 9 * minute, false, true),
        ("[settle]\ntime = 3\n[drain]\nparallel = 7\n", 15 * minute, true, true),
        ("[settle]\nnewer = 3\n[drain]\nparallel = 7\n", 15 * minute, true, true),
        ("[drain]\nparallel = 7\n[slot.headers]\n\"a b\" = \"\"\n", 15 * minute, false, true),
    ] {
        let root = host(&[("etc/lockkeeper/config.d/a.toml", &format!("{slot}{rest}"))]);
        let (loaded, wrong) = crate::config::load_in_part(root.path()).unwrap();
        let wrong = wrong.expect(rest);
        assert_eq!(Err(wrong.errors), crate::config::load(root.path()), "{rest}");
        assert_eq!(wrong.settle_unknown, settle_unknown, "{rest}");
        assert_eq!(loaded.settings.policy.drain_deadline, deadline, "{rest}");
        assert_eq!(loaded.settings.drain.parallel, 7, "{rest}");
        assert_eq!(loaded.settings.slot.is_some(), slot_is_known, "{rest}");
    }
    // Nothing of this file is known, and all of the other.
    let root = host(&[
        ("etc/lockkeeper/config.d/a.toml", "[settle"),
        ("etc/lockkeeper/config.d/b.toml", "drain.parallel = 7"),
    ]);
    let (loaded, wrong) = crate::config::load_in_part(root.path()).unwrap();
    assert!(wrong.unwrap().settle_unknown);
    assert_eq!(loaded.settings.drain.parallel, 7);
}

#[test]
fn what_lies_where_it_does_not_last_is_named() {
    let lasting = "expected a folder that outlives a reboot and a rollback, such as the default: the record \
        of attempts and the list of denied updates lie there; not in /run, and not in /etc";
    for folder in ["/run/x", "/dev/shm", "/etc/lockkeeper"] {
        let text = format!("agent.state_dir = \"{folder}\"");
        check(&text, &[&format!("1: agent.state_dir: {lasting}")]);
    }
    check(
        "metrics.listen = \"127.0.0.1:9090\"\nzincati.listen = \"127.0.0.1:9090\"",
        &[
            "1: metrics.listen: expected another address than coordinator.listen",
            "2: zincati.listen: expected another address than coordinator.listen",
            "2: zincati.listen: expected another address than metrics.listen",
        ],
    );
}

#[test]
fn every_fault_of_the_groups_is_told() {
    check(
        "[[coordinator.groups]]\nname = \"a\"\nslots = 0\n[[coordinator.groups]]\nname = \"a\"\nslots = 1",
        &[
            "3: coordinator.groups[0].slots: expected a whole number from 1 to 10000, found 0 (not in quotes)",
            "4: coordinator.groups[1].name: expected each group once, found \"a\"",
        ],
    );
}
