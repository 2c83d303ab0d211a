//! From locksmith's variables.

use std::fs;
use std::path::{Path, PathBuf};

use super::draft::{Draft, ImportError, quoted};
use super::environment::{self, Stray};
use super::given::{Given, Inputs, NoEqual, Strength};
use super::told::line;
use super::windows::{DAY, DAYS, Opening, go_duration, local_zone, weekly_start};

/// Folders of drop-ins, the weaker first.
const DROP_INS: [&str; 3] = [
    "usr/lib/systemd/system/locksmithd.service.d",
    "run/systemd/system/locksmithd.service.d",
    "etc/systemd/system/locksmithd.service.d",
];

/// Files of the distribution and of the administrator; of each, the first that exists.
const FILES: [[&str; 2]; 2] = [
    ["usr/share/flatcar/update.conf", "usr/share/coreos/update.conf"],
    ["etc/flatcar/update.conf", "etc/coreos/update.conf"],
];

const NO_ETCD: &str = "lockkeeper asks no etcd: a FleetLock server hands out the slots, such as `lockkeeper \
                       coordinator`";

const UPDATE_ENGINE: &str = "update_engine goes on reading it";

/// What has no equal, by variable.
const NO_EQUAL: [NoEqual; 18] = [
    ("LOCKSMITHD_ENDPOINT", "", NO_ETCD),
    ("LOCKSMITHD_ETCD_CAFILE", "", NO_ETCD),
    ("LOCKSMITHD_ETCD_CERTFILE", "", NO_ETCD),
    ("LOCKSMITHD_ETCD_KEYFILE", "", NO_ETCD),
    ("LOCKSMITHD_ETCD_USERNAME", "", NO_ETCD),
    ("LOCKSMITHD_ETCD_PASSWORD", "", NO_ETCD),
    ("LOCKSMITHD_DEBUG", "", "LOCKKEEPER_LOG=debug in the environment of lockkeeper.service"),
    ("LOCKSMITHD_VERSION", "", "only prints"),
    ("GROUP", "", UPDATE_ENGINE),
    ("SERVER", "", UPDATE_ENGINE),
    ("MACHINE_ALIAS", "", UPDATE_ENGINE),
    ("PCR_POLICY_SERVER", "", UPDATE_ENGINE),
    ("DOWNLOAD_USER", "", UPDATE_ENGINE),
    ("DOWNLOAD_PASSWORD", "", UPDATE_ENGINE),
    ("FLATCAR_RELEASE_VERSION", "", UPDATE_ENGINE),
    ("FLATCAR_RELEASE_BOARD", "", UPDATE_ENGINE),
    ("FLATCAR_RELEASE_APPID", "", UPDATE_ENGINE),
    ("COREOS_RELEASE_VERSION", "", UPDATE_ENGINE),
];

/// Translates the named files, or those of the host whose / is at `root`.
pub(super) fn translate(
    root: &Path,
    named: &[PathBuf],
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let files = if named.is_empty() { files(root) } else { named.to_vec() };
    if files.is_empty() {
        draft.miss(
            "/etc/flatcar/update.conf",
            "the file",
            "one, or one in /usr/share/flatcar",
            "none",
        );
        return Ok(());
    }
    let mut inputs = Inputs::default();
    let mut names = Vec::new();
    for file in &files {
        let below = if named.is_empty() { file.strip_prefix(root).ok() } else { None };
        let name = below.map_or_else(|| file.clone(), |below| Path::new("/").join(below));
        let name = line(&name.display().to_string());
        for read in environment::read(file, &name)? {
            let given = |key: &str, value: &str| Given {
                file: name.clone(),
                key: key.to_owned(),
                value: value.to_owned(),
            };
            match read {
                Ok((key, value)) => {
                    let given = given(&key, &value);
                    inputs.push(key, Strength::Environment, given);
                }
                Err(Stray(text)) => {
                    // It may hold anything, a secret too.
                    let start = text.split(['=', ' ']).next().unwrap_or_default();
                    draft.note(&given(start, ""), "no variable, so it has no effect");
                }
            }
        }
        names.push(name);
    }
    draft.head(format!("Translated from locksmith: {}.", names.join(", ")));
    draft.head(
        "Look through it and put it into /etc/lockkeeper/config.d/50-local.toml, then say `lockkeeper \
         config check`. Before the agent starts: `systemctl disable --now locksmithd && systemctl mask \
         locksmithd`, or both reboot.",
    );
    draft.set(
        "updates.sources",
        quoted("update-engine"),
        "As locksmith, which hears of nothing else.",
    );
    strategy(&mut inputs, draft);
    windows(&mut inputs, root, draft);
    inputs.note_all(&NO_EQUAL, draft);
    inputs.note_rest("no variable of locksmith", draft);
    draft.say(
        "users who are logged in: locksmith warns them and waits for 5 minutes; here reboot.users = \
         \"wait\" waits until they have gone, and \"ignore\" does not wait",
    );
    Ok(())
}

/// The files of a host that exist. Variables of a file are stronger than those of a unit.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in DROP_INS {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        let files = entries.map(|entry| entry.path());
        let conf = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "conf");
        let mut files: Vec<PathBuf> = files.filter(conf).collect();
        files.sort();
        // A file in a stronger folder replaces the one of its name.
        found.retain(|weaker| !files.iter().any(|file| file.file_name() == weaker.file_name()));
        found.extend(files);
    }
    found.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    for names in FILES {
        found.extend(names.map(|name| root.join(name)).into_iter().find(|file| file.exists()));
    }
    found
}

/// Who is asked.
fn strategy(inputs: &mut Inputs, draft: &mut Draft) {
    let group = inputs.take("LOCKSMITHD_GROUP", draft).filter(|given| !given.value.is_empty());
    let strategy = inputs.take("REBOOT_STRATEGY", draft);
    let word = strategy.as_ref().map_or("", |given| given.value.as_str());
    if word != "etcd-lock"
        && let Some(group) = &group
    {
        draft.note(group, "of no effect, since REBOOT_STRATEGY is not etcd-lock");
    }
    match word {
        "" | "reboot" => draft.set(
            "slot.backend",
            quoted("none"),
            "REBOOT_STRATEGY=reboot asks nobody. A Kubernetes Node needs more: only_node = true, if it is \
             the only one of its cluster, or a FleetLock server.",
        ),
        "etcd-lock" => {
            draft.suggest_server();
            if let Some(group) = &group {
                draft.set_given("slot.group", quoted(&group.value), group, "");
            }
            let name = group.as_ref().map_or("default", |given| given.value.as_str());
            let because = "As many as `locksmithctl status` says under Max.";
            if crate::config::expected("slot.group", &quoted(name)).is_none() {
                draft.coordinator(name, 1, because);
            }
        }
        "off" => draft.say(
            "REBOOT_STRATEGY = \"off\": locksmith never reboots; neither does lockkeeper, as long as \
             slot.backend is not set",
        ),
        _ => {
            if let Some(given) = &strategy {
                draft.refuse(given, "reboot, etcd-lock or off");
            }
        }
    }
}

/// When it may reboot.
fn windows(inputs: &mut Inputs, root: &Path, draft: &mut Draft) {
    let mut either = |name: &str| {
        let new = inputs.take(&format!("LOCKSMITHD_REBOOT_WINDOW_{name}"), draft);
        let old = inputs.take(&format!("REBOOT_WINDOW_{name}"), draft);
        match (new.filter(|given| !given.value.is_empty()), old) {
            (Some(new), Some(old)) => {
                draft.note(&old, &format!("overridden by {}", new.key));
                Some(new)
            }
            (new, old) => new.or(old).filter(|given| !given.value.is_empty()),
        }
    };
    let (start, length) = (either("START"), either("LENGTH"));
    let (start, length) = match (start, length) {
        (Some(start), Some(length)) => (start, length),
        (None, None) => return,
        (Some(one), None) | (None, Some(one)) => {
            draft.refuse(&one, "LOCKSMITHD_REBOOT_WINDOW_START and _LENGTH both, or neither");
            return;
        }
    };
    let zone = local_zone(root).unwrap_or_else(|| {
        draft.of_windows(
            "The zone of this host cannot be told from /etc/localtime: put it in place of UTC.",
        );
        "UTC".to_owned()
    });
    weekly(&start, &length, &zone, draft);
}

/// A window as locksmith and FLUO know it.
pub(super) fn weekly(start: &Given, length: &Given, zone: &str, draft: &mut Draft) {
    let Some((days, from)) = weekly_start(&start.value) else {
        draft.refuse(start, "a time such as \"14:00\" or \"Thu 04:00\"");
        return;
    };
    let most = if days.len() == DAYS.len() { DAY } else { 7 * DAY };
    let expected =
        "a duration such as 1h30m, shorter than a day, or than a week if the start has a day";
    let Some(lasts) = go_duration(&length.value).filter(|lasts| lasts.as_secs() < most) else {
        draft.refuse(length, expected);
        return;
    };
    match Opening::new(&days, from, lasts, zone) {
        Ok(window) => draft.window(window),
        Err(error) => draft.refuse(length, error.expected),
    }
}
