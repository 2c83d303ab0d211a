//! `lockkeeper config check|show|default`: what the configuration says, and where it says it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::config::{self, ConfigErrors, Loaded, Masked, Settings, SlotBackend};
use crate::effects::health;
use crate::lifecycle::SlotPolicy;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFailure {
    /// The configuration is wrong: one error a line.
    #[error("{0}")]
    Wrong(ConfigErrors),
    /// The configuration is right, and what it names is not: one fault a line.
    #[error("{}", .0.join("\n"))]
    Named(Vec<String>),
    /// The output cannot be written.
    #[error("the output cannot be written")]
    Output(#[from] io::Error),
}

/// Checks the configuration of the host under `root`, or the named files in its place.
///
/// # Errors
/// Everything that is wrong, one error a line.
pub fn check(
    root: &Path,
    files: &[PathBuf],
    out: &mut (impl Write + ?Sized),
) -> Result<(), ConfigFailure> {
    let loaded = if files.is_empty() { config::load(root)? } else { config::load_files(files)? };
    // Files that a person names may be meant for another host.
    if files.is_empty() {
        let faults = named_faults(root, &loaded.settings);
        if !faults.is_empty() {
            return Err(ConfigFailure::Named(faults));
        }
    }
    match loaded.files.as_slice() {
        [] => writeln!(out, "good: no file sets anything, so the defaults hold")?,
        [one] => writeln!(out, "good: {}", one.display())?,
        all => writeln!(out, "good: {} files", all.len())?,
    }
    for file in files.iter().filter(|file| !file.is_dir() && !has_toml_name(file)) {
        writeln!(
            out,
            "note: {}: in the folder of the configuration this would be an error, since the name \
             does not end in .toml",
            file.display()
        )?;
    }
    match loaded.settings.policy.slot {
        SlotPolicy::Unset => {
            writeln!(
                out,
                "note: slot.backend is not set, so the agent will wait and never reboot"
            )?;
        }
        SlotPolicy::None { only_node: false } => writeln!(
            out,
            "note: slot.backend is \"none\" without only_node = true, so the agent of a Kubernetes \
             Node will wait and never reboot"
        )?,
        SlotPolicy::None { only_node: true } | SlotPolicy::Server => {}
    }
    let named = |key| loaded.values.iter().any(|value| value.key == key && value.text.is_some());
    if matches!(loaded.settings.policy.slot, SlotPolicy::None { .. }) && named("slot.base_url") {
        writeln!(out, "note: slot.base_url is not used, since slot.backend is \"none\"")?;
    }
    Ok(())
}

/// What is wrong with the files that the configuration names: with the slot server's the agent would begin
/// nothing, and with a check's no node would be well.
fn named_faults(root: &Path, settings: &Settings) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(SlotBackend::FleetLock(server)) = &settings.slot {
        let (certificate, key) = server.client_certificate.clone().unzip();
        for (name, file) in [
            ("slot.ca_file", &server.ca_file),
            ("slot.client_certificate", &certificate),
            ("slot.client_key", &key),
        ] {
            let Some(file) = file else { continue };
            if let Err(error) = File::open(under(root, file)) {
                faults.push(format!("{name}: {} cannot be read: {error}", file.display()));
            }
        }
    }
    let checks = under(root, &settings.health.checks_dir);
    faults.extend(
        health::faults(&checks).into_iter().map(|fault| format!("settle.checks_dir: {fault}")),
    );
    faults
}

fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn has_toml_name(file: &Path) -> bool {
    file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(".toml"))
}

/// Prints each value with the file that it came from, then the windows with their next opening
/// after `now`, then the files. What is printed is TOML again, secrets aside.
///
/// # Errors
/// As [`check`].
pub fn show(
    root: &Path,
    now: Timestamp,
    out: &mut (impl Write + ?Sized),
) -> Result<(), ConfigFailure> {
    let loaded = config::load(root)?;
    for value in &loaded.values {
        match &value.text {
            Some(text) => {
                let line = format!("{} = {text}", value.key);
                writeln!(out, "{line:<56} # {}", value.origin)?;
            }
            None => writeln!(out, "# {} is not set", value.key)?,
        }
    }
    show_windows(&loaded, now, out)?;
    show_files(&loaded, out)?;
    Ok(())
}

/// Prints the shipped file: every key, its default, what it is for.
///
/// # Errors
/// The output cannot be written.
pub fn default(out: &mut (impl Write + ?Sized)) -> Result<(), ConfigFailure> {
    Ok(out.write_all(config::default_toml().as_bytes())?)
}

fn show_windows(
    loaded: &Loaded,
    now: Timestamp,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let windows = &loaded.settings.policy.windows;
    writeln!(out, "\n# Windows")?;
    if windows.is_empty() {
        return writeln!(out, "#   none: an attempt may run at any time");
    }
    for window in windows.iter() {
        match window.next_opening(now) {
            Some(opens) if opens <= now => writeln!(out, "#   {window}: open now")?,
            Some(opens) => writeln!(out, "#   {window}: opens {opens}")?,
            None => writeln!(out, "#   {window}: never opens")?,
        }
    }
    Ok(())
}

fn show_files(loaded: &Loaded, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "\n# Files, a later one wins")?;
    if loaded.files.is_empty() {
        writeln!(out, "#   none")?;
    }
    for file in &loaded.files {
        writeln!(out, "#   {}", file.display())?;
    }
    for Masked { file, by } in &loaded.masked {
        let how = if loaded.files.contains(by) { "replaced" } else { "masked" };
        writeln!(out, "#   {}: not read, {how} by {}", file.display(), by.display())?;
    }
    Ok(())
}

// === impl ConfigFailure ===

impl From<ConfigErrors> for ConfigFailure {
    fn from(errors: ConfigErrors) -> Self {
        Self::Wrong(errors)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::fs;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::config::tests::host;

    /// What a command prints, or its error, the host's root taken out.
    fn output(
        root: &Path,
        run: impl FnOnce(&mut Vec<u8>) -> Result<(), ConfigFailure>,
        expected: &Expect,
    ) {
        let mut out = Vec::new();
        let text = match run(&mut out) {
            Ok(()) => String::from_utf8(out).unwrap(),
            Err(failure) => failure.to_string(),
        };
        expected.assert_eq(&text.replace(root.to_str().unwrap(), ""));
    }

    #[test]
    fn check_looks_at_the_files_that_the_configuration_names() {
        let root = host(&[
            (
                "etc/lockkeeper/config.d/a.toml",
                "[slot]\nbackend = \"fleetlock\"\nbase_url = \"https://a/\"\nca_file = \"/nope.pem\"\n",
            ),
            ("etc/lockkeeper/health.d/README", "no check"),
        ]);
        output(
            root.path(),
            |out| check(root.path(), &[], out),
            &expect![[r#"
                slot.ca_file: /nope.pem cannot be read: No such file or directory (os error 2)
                settle.checks_dir: check README is not run: it is not executable"#]],
        );
        let text = "[slot]\nbackend = \"none\"\nonly_node = true\nbase_url = \"http://a/\"\n";
        let root = host(&[("etc/lockkeeper/config.d/a.toml", text)]);
        output(
            root.path(),
            |out| check(root.path(), &[], out),
            &expect![[r#"
                good: /etc/lockkeeper/config.d/a.toml
                note: slot.base_url is not used, since slot.backend is "none"
            "#]],
        );
    }

    #[test]
    fn show_tells_where_each_value_comes_from() {
        let root = host(&[
            ("usr/lib/lockkeeper/config.d/10-site.toml", "[slot]\nbackend = \"fleetlock\"\n"),
            ("usr/lib/lockkeeper/config.d/20-old.toml", "[drain]\nparallel = 3\n"),
            ("run/lockkeeper/config.d/20-old.toml", "[drain]\nparallel = 5\n"),
            ("usr/lib/lockkeeper/config.d/30-windows.toml", "[[windows]]\nthis = \"is masked\"\n"),
            ("etc/lockkeeper/config.d/30-windows.toml", ""),
            (
                "etc/lockkeeper/config.d/90-local.toml",
                "[slot]\nbase_url = \"https://lock.example/\"\n\
                 headers = { authorization = \"Basic c2VjcmV0\" }\n\
                 proxy = \"http://user:secret@proxy.example:3128\"\n\n\
                 [[windows]]\ndays = \"weekends\"\nstart = \"22:00\"\nlength = \"2h\"\n\
                 zone = \"Europe/Berlin\"\n\n\
                 [[windows]]\ndays = [\"wed\"]\nstart = \"09:00\"\nlength = \"1d\"\n",
            ),
        ]);
        let now: Timestamp = "2026-03-25T12:00:00Z".parse().unwrap();
        let expected = expect![[r#"
            agent.state_dir = "/var/lib/lockkeeper"                  # default
            agent.run_dir = "/run/lockkeeper"                        # default
            agent.hold_file = "/etc/lockkeeper/hold"                 # default
            node.kubernetes = "auto"                                 # default
            node.credentials = "kubeconfig"                          # default
            node.kubeconfig = ["/etc/kubernetes/kubelet.conf", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig", "/var/lib/rancher/rke2/agent/kubelet.kubeconfig", "/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubeconfig"] # default
            # node.name is not set
            updates.sources = ["auto"]                               # default
            slot.backend = "fleetlock"                               # /usr/lib/lockkeeper/config.d/10-site.toml:2
            slot.only_node = false                                   # default
            slot.base_url = "https://lock.example/"                  # /etc/lockkeeper/config.d/90-local.toml:2
            slot.group = "default"                                   # default
            # slot.id is not set
            # slot.ca_file is not set
            # slot.client_certificate is not set
            # slot.client_key is not set
            slot.headers = { "authorization" = "***" }               # /etc/lockkeeper/config.d/90-local.toml:3
            slot.proxy = "http://***@proxy.example:3128"             # /etc/lockkeeper/config.d/90-local.toml:4
            slot.connect_timeout = "10s"                             # default
            slot.answer_timeout = "30m"                              # default
            slot.confirm_every = "5m"                                # default
            slot.denial_retry = "30s"                                # default
            windows = [{ days = ["sat", "sun"], start = "22:00", length = "2h", zone = "Europe/Berlin" }, { days = ["wed"], start = "09:00", length = "24h", zone = "UTC" }] # /etc/lockkeeper/config.d/90-local.toml:6
            drain.deadline = "15m"                                   # default
            drain.on_deadline = "yield"                              # default
            drain.on_foreign_uncordon = "yield"                      # default
            drain.rehearsal_every = "10m"                            # default
            drain.parallel = 5                                       # /run/lockkeeper/config.d/20-old.toml:2
            drain.unmanaged_pods = "leave"                           # default
            drain.empty_dir = "evict"                                # default
            # drain.grace_period is not set
            drain.volume_detach_timeout = "2m"                       # default
            drain.budget_retry = "5s"                                # default
            drain.delete_timeout = "2m"                              # default
            reboot.estimate = "5m"                                   # default
            reboot.shutdown_wait = "1m"                              # default
            reboot.users = "wait"                                    # default
            reboot.minimum_uptime = "1m"                             # default
            reboot.boot_dir = "/boot"                                # default
            reboot.boot_free_mib = 20                                # default
            settle.time = "30s"                                      # default
            settle.deadline = "10m"                                  # default
            settle.check_every = "5s"                                # default
            settle.units = []                                        # default
            settle.checks_dir = "/etc/lockkeeper/health.d"           # default
            settle.check_timeout = "30s"                             # default
            attempts.limit = 3                                       # default
            attempts.backoff_first = "5m"                            # default
            attempts.backoff_max = "1h"                              # default
            attempts.after_rollback = "halt"                         # default
            # metrics.listen is not set
            # zincati.listen is not set
            zincati.hold = "25m"                                     # default
            coordinator.listen = "127.0.0.1:9090"                    # default
            coordinator.state_dir = "/var/lib/lockkeeper/coordinator" # default
            coordinator.run_dir = "/run/lockkeeper"                  # default
            coordinator.groups = [{ name = "default", slots = 1 }]   # default

            # Windows
            #   sat,sun 22:00 for 2h, Europe/Berlin: opens 2026-03-28T21:00:00Z
            #   wed 09:00 for 24h, UTC: open now

            # Files, a later one wins
            #   /usr/lib/lockkeeper/config.d/10-site.toml
            #   /run/lockkeeper/config.d/20-old.toml
            #   /etc/lockkeeper/config.d/90-local.toml
            #   /usr/lib/lockkeeper/config.d/20-old.toml: not read, replaced by /run/lockkeeper/config.d/20-old.toml
            #   /usr/lib/lockkeeper/config.d/30-windows.toml: not read, masked by /etc/lockkeeper/config.d/30-windows.toml
        "#]];
        output(root.path(), |out| show(root.path(), now, out), &expected);
    }

    #[test]
    fn what_show_prints_is_toml_that_says_the_same() {
        let root = host(&[(
            "etc/lockkeeper/config.d/a.toml",
            "drain.grace_period = \"90s\"\n[[windows]]\ndays = \"daily\"\nstart = \"01:00\"\n\
             length = \"1h\"\n",
        )]);
        let mut out = Vec::new();
        show(root.path(), Timestamp::UNIX_EPOCH, &mut out).unwrap();
        let shown = root.path().join("shown.toml");
        fs::write(&shown, out).unwrap();
        let again = config::load_files(&[shown]).unwrap();
        assert_eq!(again.settings, config::load(root.path()).unwrap().settings);
    }

    #[test]
    fn check_says_good_or_all_that_is_wrong() {
        let root = host(&[
            ("good.toml", "slot.backend = \"none\"\n"),
            ("bad.toml", "[drain]\ndeadline = 15\nparalel = 3\n[slot]\nbackend = \"fleetlock\"\n"),
        ]);
        let (good, bad) = (root.path().join("good.toml"), root.path().join("bad.toml"));
        let run = |files: Vec<PathBuf>, expected: Expect| {
            output(root.path(), |out| check(root.path(), &files, out), &expected);
        };
        run(
            vec![],
            expect![[r#"
            good: no file sets anything, so the defaults hold
            note: slot.backend is not set, so the agent will wait and never reboot
        "#]],
        );
        run(
            vec![good.clone()],
            expect![[r#"
                good: /good.toml
                note: slot.backend is "none" without only_node = true, so the agent of a Kubernetes Node will wait and never reboot
            "#]],
        );
        run(
            vec![good.clone(), good],
            expect![[r#"
                good: 2 files
                note: slot.backend is "none" without only_node = true, so the agent of a Kubernetes Node will wait and never reboot
            "#]],
        );
        run(
            vec![bad, root.path().join("missing.toml")],
            expect![[r#"
            /missing.toml: expected a file, found nothing (or a link to nothing)
            /bad.toml:2: drain.deadline: expected a duration with its unit, such as "15m" or "1h 30m", found 15 (not in quotes)
            /bad.toml:3: unknown key drain.paralel; did you mean drain.parallel?
            slot.base_url: expected the URL of the server, since slot.backend is "fleetlock""#]],
        );
    }

    #[test]
    fn default_prints_the_shipped_file() {
        let mut out = Vec::new();
        default(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), config::default_toml());
    }
}
