//! Whatever the files of other tools hold, the answer is a configuration that loads, or errors in
//! plain words.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

/// Values that flags and keys are given, right ones among them.
fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "",
            "0",
            "-1",
            "1",
            "true",
            "false",
            "0s",
            "1ns",
            "1m",
            "90m",
            "7h30m",
            "168h",
            "99999h",
            "mon",
            "su,2",
            "0:00",
            "23:59",
            "23:59:59",
            "12pm",
            "Mon 14:00",
            "UTC",
            "Local",
            "Europe/Berlin",
            "localtime",
            "127.0.0.1",
            "9090",
            "65536",
            "::1",
            "default",
            "fleet_lock",
            "periodic",
            "immediate",
            "etcd-lock",
            "off",
            "http://h:0/",
            "https://h/a?b#c",
            "http://[::1]/",
            "http://h/${group}",
            "http://${x}/",
            "/run/reboot-required",
            "sh -c 'a b'",
            "a'",
            "=",
            "$(A)",
            "-",
            "--",
            "%s\u{2028}",
            "\u{1b}[31m",
            "\"\\",
            "a\r\nb = 1\n[slot]\nbackend = \"none\"",
        ])
        .prop_map(ToOwned::to_owned),
        "\\PC{0,20}",
        any::<String>(),
        (0_u64..1 << 40, "(ns|ms|s|m|h)").prop_map(|(n, unit)| format!("{n}{unit}")),
    ]
}

fn pairs(names: Vec<&'static str>) -> impl Strategy<Value = Vec<(&'static str, String)>> {
    prop::collection::vec((prop::sample::select(names), any_value()), 0..12)
}

fn check(root: &Path, command: &ImportCommand, stdin: &str) {
    let plain = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control());
    match import(root, command, &mut stdin.as_bytes()) {
        // That it loads was looked at before it came out.
        Ok(text) => assert!(plain(&text), "{stdin}\n{text}"),
        Err(ImportError::Wrong(errors)) => panic!("{stdin}\n{errors}"),
        Err(error) => {
            let text = error.to_string();
            assert!(plain(&text) && !text.is_empty(), "{stdin}\n{text}");
        }
    }
}

/// A manifest in JSON, which is YAML too.
fn manifest_of(
    program: &str,
    flags: &[String],
    variables: &[(String, String)],
) -> serde_json::Value {
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| serde_json::json!({ "name": name, "value": value }))
        .collect();
    serde_json::json!({
        "kind": "DaemonSet",
        "metadata": { "name": program },
        "spec": { "template": { "spec": { "containers": [{
            "name": program, "command": [program], "args": flags, "env": variables,
        }] } } },
    })
}

proptest! {
    #[test]
    fn kured_with_any_flags(
        flags in pairs([kured::VALUED.as_slice(), &kured::SWITCHES, &["x", ""]].concat()),
        variables in pairs(kured::VALUED.to_vec()),
    ) {
        let flags: Vec<String> =
            flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect();
        let variables: Vec<(String, String)> = variables
            .into_iter()
            .map(|(name, value)| (format!("KURED_{}", name.to_uppercase().replace('-', "_")), value))
            .collect();
        let text = manifest_of("kured", &flags, &variables).to_string();
        check(Path::new("/"), &ImportCommand::Kured { file: PathBuf::from("-") }, &text);
    }

    #[test]
    fn fluo_with_any_flags(
        operator in pairs([fluo::OPERATOR_VALUED.as_slice(), &fluo::OPERATOR_SWITCHES].concat()),
        agent in pairs([fluo::AGENT_VALUED.as_slice(), &fluo::AGENT_SWITCHES].concat()),
    ) {
        let flags = |given: Vec<(&'static str, String)>| -> Vec<String> {
            given.into_iter().map(|(name, value)| format!("-{name}={value}")).collect()
        };
        let items = [
            manifest_of("update-operator", &flags(operator), &[]),
            manifest_of("update-agent", &flags(agent), &[]),
        ];
        let text = serde_json::json!({ "kind": "List", "items": items }).to_string();
        check(Path::new("/"), &ImportCommand::Fluo { file: PathBuf::from("-") }, &text);
    }

    #[test]
    fn zincati_with_any_keys(
        given in pairs(vec![
            "agent.timing.steady_interval_secs", "cincinnati.base_url", "identity.group",
            "identity.node_uuid", "updates.allow_downgrade", "updates.strategy",
            "updates.strategy", "updates.fleet_lock.base_url", "updates.periodic.time_zone",
            "updates.periodic.window", "updates.enabled", "x.y",
        ]),
        windows in prop::collection::vec((any_value(), any_value(), -1_i64..20_000), 0..60),
    ) {
        let mut text = String::new();
        let mut seen = Vec::new();
        for (key, value) in given {
            if !seen.contains(&key) && (windows.is_empty() || key != "updates.periodic.window") {
                seen.push(key);
                text.push_str(&format!("{key} = {}\n", draft::quoted(&value)));
            }
        }
        for (day, start, length) in windows {
            let (day, start) = (draft::quoted(&day), draft::quoted(&start));
            text.push_str(&format!(
                "[[updates.periodic.window]]\ndays = [{day}]\nstart_time = {start}\n\
                 length_minutes = {length}\n"
            ));
        }
        let root = crate::config::tests::host(&[("etc/zincati/config.d/a.toml", &text)]);
        check(root.path(), &ImportCommand::Zincati, "");
    }

    #[test]
    fn locksmith_with_any_variables(
        given in pairs(vec![
            "REBOOT_STRATEGY", "REBOOT_STRATEGY", "LOCKSMITHD_GROUP", "LOCKSMITHD_ENDPOINT",
            "LOCKSMITHD_REBOOT_WINDOW_START", "LOCKSMITHD_REBOOT_WINDOW_LENGTH",
            "REBOOT_WINDOW_START", "REBOOT_WINDOW_LENGTH", "GROUP", "x y",
        ]),
    ) {
        let text: String = given.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let root = crate::config::tests::host(&[("etc/flatcar/update.conf", &text)]);
        check(root.path(), &ImportCommand::Locksmith { files: Vec::new() }, "");
    }

    #[test]
    fn any_text_at_all(text in prop_oneof![any::<String>(), "[a-c:&*<! \\-\\[\\]{}\n]{0,80}"]) {
        let file = PathBuf::from("-");
        check(Path::new("/"), &ImportCommand::Kured { file: file.clone() }, &text);
        check(Path::new("/"), &ImportCommand::Fluo { file }, &text);
        let root = crate::config::tests::host(&[
            ("etc/zincati/config.d/a.toml", &text),
            ("etc/flatcar/update.conf", &text),
        ]);
        check(root.path(), &ImportCommand::Zincati, "");
        check(root.path(), &ImportCommand::Locksmith { files: Vec::new() }, "");
    }
}
