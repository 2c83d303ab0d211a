//! The defaults, each key's reach, and the file that documents them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::keys::{KEYS, Shape, TABLES};
use crate::config::*;
use crate::lifecycle::{
    AfterRollback, KubernetesPolicy, OnDeadline, OnForeignUncordon, OnUsers, Policy, SlotPolicy,
};
use crate::model::Source;
use crate::schedule::{Window, Windows};

use super::{host, load_text, settings};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The defaults, written a second time by hand: a slip in `default.toml` shows here.
fn expected_defaults() -> Settings {
    Settings {
        agent: AgentSettings {
            state_dir: "/var/lib/lockkeeper".into(),
            run_dir: "/run/lockkeeper".into(),
            hold_file: "/etc/lockkeeper/hold".into(),
        },
        updates: UpdateSettings { sources: None },
        policy: Policy {
            kubernetes: KubernetesPolicy::Auto,
            slot: SlotPolicy::Unset,
            slot_place: None,
            answer_timeout: seconds(1800),
            confirm_every: seconds(300),
            denial_retry: seconds(30),
            windows: Windows::default(),
            drain_deadline: seconds(900),
            on_deadline: OnDeadline::Yield,
            delete_timeout: seconds(120),
            on_foreign_uncordon: OnForeignUncordon::Yield,
            rehearsal_every: seconds(600),
            reboot_estimate: seconds(300),
            shutdown_wait: seconds(60),
            zincati: false,
            users: OnUsers::Wait,
            minimum_uptime: seconds(60),
            boot_free: 20 * 1024 * 1024,
            settle_time: seconds(30),
            settle_deadline: seconds(600),
            check_every: seconds(5),
            attempt_limit: 3,
            backoff_first: seconds(300),
            backoff_max: seconds(3600),
            after_rollback: AfterRollback::Halt,
        },
        node: NodeSettings {
            credentials: Credentials::Kubeconfig(
                [
                    "/etc/kubernetes/kubelet.conf",
                    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
                    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
                    "/var/lib/kubelet/kubeconfig",
                    "/etc/kubernetes/kubeconfig",
                ]
                .map(PathBuf::from)
                .to_vec(),
            ),
            name: None,
        },
        slot: None,
        drain: expected_drain(),
        reboot: RebootSettings { boot_dir: "/boot".into() },
        health: HealthSettings {
            units: Vec::new(),
            checks_dir: "/etc/lockkeeper/health.d".into(),
            check_timeout: seconds(30),
        },
        metrics: MetricsSettings { listen: None },
        zincati: None,
        coordinator: CoordinatorSettings {
            listen: "127.0.0.1:9090".parse().unwrap(),
            state_dir: "/var/lib/lockkeeper/coordinator".into(),
            run_dir: "/run/lockkeeper".into(),
            groups: vec![GroupSettings { name: "default".into(), slots: 1 }],
        },
    }
}

fn expected_drain() -> DrainSettings {
    DrainSettings {
        parallel: 10,
        unmanaged_pods: UnmanagedPods::Leave,
        empty_dir: EmptyDir::Evict,
        grace_period: None,
        volume_detach_timeout: seconds(120),
        budget_retry: seconds(5),
    }
}

#[test]
fn a_host_without_files_has_the_defaults() {
    let root = host(&[]);
    let loaded = load(root.path()).unwrap();
    assert_eq!(loaded.settings, expected_defaults());
    assert!(loaded.files.is_empty() && loaded.masked.is_empty());
    assert!(loaded.values.iter().all(|value| value.origin == Origin::Default));
}

#[test]
fn the_shipped_file_says_exactly_the_defaults() {
    assert_eq!(settings(&default_toml()), expected_defaults());
}

/// The examples of the shipped file, made keys by taking the `#` away.
fn with_examples() -> String {
    let uncommented = |line: &str| match line.strip_prefix('#') {
        Some(example) if !example.starts_with(' ') && !example.is_empty() => example.to_owned(),
        Some(_) | None => line.to_owned(),
    };
    default_toml().lines().map(uncommented).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_shipped_file_mentions_every_key_in_its_order_and_its_examples_are_good() {
    let loaded = load_text(&with_examples()).unwrap_or_else(|errors| panic!("{errors}"));
    let mut line_before = 0;
    for value in &loaded.values {
        let Origin::File(place) = &value.origin else {
            panic!("default.toml does not mention {}", value.key);
        };
        assert!(place.line > line_before, "{} stands out of order", value.key);
        line_before = place.line;
        let documented = default_toml().lines().nth(place.line - 2).unwrap().starts_with("# ");
        let shared = ["slot.client_key", "agent.state_dir", "windows"].contains(&value.key);
        assert!(documented || shared, "default.toml does not say what {} is for", value.key);
    }
}

#[test]
fn the_shipped_file_names_every_word_and_both_ends_of_every_range() {
    let text = with_examples();
    let lines: Vec<&str> = text.lines().collect();
    for key in &KEYS {
        let (table, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
        let wanted: Vec<String> = match &key.shape {
            Shape::Choice(words) => words.iter().map(|word| format!("\"{word}\"")).collect(),
            Shape::Duration { min, max } => vec![(*min).to_owned(), (*max).to_owned()],
            Shape::Count { min, max } => vec![min.to_string(), max.to_string()],
            Shape::Flag
            | Shape::Text(_)
            | Shape::SecretText(_)
            | Shape::Texts(_)
            | Shape::OneOrMore(_)
            | Shape::Headers
            | Shape::Windows
            | Shape::Groups => continue,
        };
        let top = lines.iter().position(|line| *line == format!("[{table}]")).unwrap();
        let own = top
            + lines[top..].iter().position(|line| line.starts_with(&format!("{name} ="))).unwrap();
        let above = lines[..own].iter().rev().take_while(|line| line.starts_with("# "));
        let passage: Vec<&str> = above.copied().collect();
        let passage = passage.join(" ");
        for word in wanted {
            assert!(passage.contains(&word), "{}: {word} is not in {passage:?}", key.name);
        }
    }
    for table in TABLES {
        assert!(text.contains(&format!("[{table}]")), "[{table}] is not in the file");
    }
}

#[test]
fn every_word_and_both_ends_of_every_range_are_taken() {
    for key in &KEYS {
        let values: Vec<String> = match &key.shape {
            Shape::Choice(words) => words.iter().map(|word| format!("\"{word}\"")).collect(),
            Shape::Duration { min, max } => vec![format!("\"{min}\""), format!("\"{max}\"")],
            Shape::Count { min, max } => vec![min.to_string(), max.to_string()],
            Shape::Flag => vec!["true".to_owned(), "false".to_owned()],
            Shape::Text(_)
            | Shape::SecretText(_)
            | Shape::Texts(_)
            | Shape::OneOrMore(_)
            | Shape::Headers
            | Shape::Windows
            | Shape::Groups => continue,
        };
        // What else must be set so that the ends of a range go together with the defaults.
        let beside = match key.name {
            "slot.backend" => "slot.base_url = \"http://127.0.0.1:1/\"\n",
            "attempts.backoff_first" => "attempts.backoff_max = \"7d\"\n",
            "attempts.backoff_max" => "attempts.backoff_first = \"1s\"\n",
            "settle.time" => "settle.deadline = \"24h\"\n",
            "settle.deadline" => "settle.time = \"1s\"\n",
            _ => "",
        };
        for value in values {
            settings(&format!("{beside}{} = {value}\n", key.name));
        }
    }
}

#[test]
fn every_key_reaches_the_settings() {
    let read = settings(
        r#"
        agent = { state_dir = "/s", run_dir = "/r", hold_file = "/h" }
        updates.sources = ["update-engine"]
        metrics.listen = "[::1]:9091"
        [node]
        kubernetes = "required"
        kubeconfig = "/k"
        name = "worker-1.example"
        [slot]
        backend = "fleetlock"
        only_node = true
        base_url = "https://lock.example/path/"
        group = "Workers.1-a"
        id = "one"
        ca_file = "/ca"
        client_certificate = "/cert"
        client_key = "/key"
        headers = { Authorization = "Basic eA==", x-one = "1" }
        proxy = "http://user:word@proxy.example:3128"
        connect_timeout = "1s"
        answer_timeout = "2s"
        confirm_every = "11s"
        denial_retry = "4s"
        [[windows]]
        days = ["sat"]
        start = "22:00"
        length = "2d"
        zone = "Europe/Berlin"
        [[windows]]
        days = "weekdays"
        start = "00:30"
        length = "90m"
        [drain]
        deadline = "5s"
        on_deadline = "delete"
        on_foreign_uncordon = "cordon"
        rehearsal_every = "12s"
        parallel = 0x10
        unmanaged_pods = "refuse"
        empty_dir = "refuse"
        grace_period = "1h"
        volume_detach_timeout = "0s"
        budget_retry = "7s"
        delete_timeout = "8s"
        [reboot]
        estimate = "9s"
        shutdown_wait = "10s"
        users = "ignore"
        minimum_uptime = "0s"
        boot_dir = "/b"
        boot_free_mib = 0
        [settle]
        time = "13s"
        deadline = "14s"
        check_every = "15s"
        units = ["a.service", "b@c\\x2dd.mount"]
        checks_dir = "/c"
        check_timeout = "16s"
        [attempts]
        limit = 1
        backoff_first = "17s"
        backoff_max = "18s"
        after_rollback = "release"
        [zincati]
        listen = "127.0.0.2:9092"
        hold = "19s"
        [coordinator]
        listen = "0.0.0.0:0"
        state_dir = "/d"
        run_dir = "/e"
        groups = [{ name = "a", slots = 2 }, { name = "b", slots = 1 }]
        "#,
    );
    let daily = Window::new(&["weekdays"], "00:30", "90m", "UTC").unwrap();
    let weekly = Window::new(&["sat"], "22:00", "48h", "Europe/Berlin").unwrap();
    let headers = [("authorization", "Basic eA=="), ("x-one", "1")];
    let expected = Settings {
        agent: AgentSettings {
            state_dir: "/s".into(),
            run_dir: "/r".into(),
            hold_file: "/h".into(),
        },
        updates: UpdateSettings { sources: Some(BTreeSet::from([Source::UpdateEngine])) },
        policy: Policy {
            kubernetes: KubernetesPolicy::Required,
            slot: SlotPolicy::Server,
            slot_place: Some("https://lock.example/path (group Workers.1-a) as one".to_owned()),
            answer_timeout: seconds(2),
            confirm_every: seconds(11),
            denial_retry: seconds(4),
            windows: Windows::new(vec![weekly, daily]),
            drain_deadline: seconds(5),
            on_deadline: OnDeadline::Delete,
            delete_timeout: seconds(8),
            on_foreign_uncordon: OnForeignUncordon::Cordon,
            rehearsal_every: seconds(12),
            reboot_estimate: seconds(9),
            shutdown_wait: seconds(10),
            zincati: true,
            users: OnUsers::Ignore,
            minimum_uptime: seconds(0),
            boot_free: 0,
            settle_time: seconds(13),
            settle_deadline: seconds(14),
            check_every: seconds(15),
            attempt_limit: 1,
            backoff_first: seconds(17),
            backoff_max: seconds(18),
            after_rollback: AfterRollback::Release,
        },
        node: NodeSettings {
            credentials: Credentials::Kubeconfig(vec!["/k".into()]),
            name: Some("worker-1.example".into()),
        },
        slot: Some(SlotBackend::FleetLock(SlotServer {
            base_url: "https://lock.example/path/".into(),
            group: "Workers.1-a".into(),
            id: Some("one".into()),
            ca_file: Some("/ca".into()),
            client_certificate: Some(("/cert".into(), "/key".into())),
            headers: BTreeMap::from(headers.map(|(k, v)| (k.to_owned(), v.to_owned()))),
            proxy: Some("http://user:word@proxy.example:3128".into()),
            connect_timeout: seconds(1),
            answer_timeout: seconds(2),
        })),
        drain: DrainSettings {
            parallel: 16,
            unmanaged_pods: UnmanagedPods::Refuse,
            empty_dir: EmptyDir::Refuse,
            grace_period: Some(3600),
            volume_detach_timeout: seconds(0),
            budget_retry: seconds(7),
        },
        reboot: RebootSettings { boot_dir: "/b".into() },
        health: HealthSettings {
            units: vec!["a.service".into(), "b@c\\x2dd.mount".into()],
            checks_dir: "/c".into(),
            check_timeout: seconds(16),
        },
        metrics: MetricsSettings { listen: Some("[::1]:9091".parse().unwrap()) },
        zincati: Some(ZincatiSettings {
            listen: "127.0.0.2:9092".parse().unwrap(),
            hold: seconds(19),
        }),
        coordinator: CoordinatorSettings {
            listen: "0.0.0.0:0".parse().unwrap(),
            state_dir: "/d".into(),
            run_dir: "/e".into(),
            groups: vec![
                GroupSettings { name: "a".into(), slots: 2 },
                GroupSettings { name: "b".into(), slots: 1 },
            ],
        },
    };
    assert_eq!(read, expected);
    let shown = format!("{read:?}");
    assert!(!shown.contains("eA==") && !shown.contains("word"), "a secret in {shown}");
}

#[test]
fn the_choices_that_stand_for_more_than_a_word() {
    let none = settings("slot.backend = \"none\"");
    assert_eq!(none.slot, Some(SlotBackend::None));
    assert_eq!(none.policy.slot, SlotPolicy::None { only_node: false });
    let only = settings("slot = { backend = \"none\", only_node = true }");
    assert_eq!(only.policy.slot, SlotPolicy::None { only_node: true });
    let pod = settings("node.credentials = \"in-cluster\"\nnode.kubernetes = \"none\"");
    assert_eq!(pod.node.credentials, Credentials::InCluster);
    assert_eq!(pod.policy.kubernetes, KubernetesPolicy::None);
    let reboot = settings("drain = { on_deadline = \"reboot\", unmanaged_pods = \"evict\" }");
    assert_eq!(reboot.policy.on_deadline, OnDeadline::Reboot);
    assert_eq!(reboot.drain.unmanaged_pods, UnmanagedPods::Evict);
}
