//! From Zincati's fragments.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

use crate::config::file::read_text_bounded;

use super::draft::{Draft, ImportError, quoted};
use super::given::Given;
use super::told::line;
use super::windows::{Opening, clock_time, day, local_zone};

/// The folders, the weaker first: of files of one name, the last counts.
const FOLDERS: [&str; 3] =
    ["usr/lib/zincati/config.d", "run/zincati/config.d", "etc/zincati/config.d"];

/// Longest fragment that is read; a real one has a few lines.
const LENGTH_MAX: u64 = 1 << 20;

/// Where the bridge listens.
const BRIDGE: &str = "127.0.0.1:9092";

/// What no strategy changes, by key; the value that makes no difference.
const NO_EQUAL: [(&str, &str, &str); 4] = [
    (
        "agent.timing.steady_interval_secs",
        "300",
        "lockkeeper looks for no updates; it hears of a staged one at once",
    ),
    (
        "cincinnati.base_url",
        "",
        "lockkeeper asks no update graph: only Zincati does (way 2), rpm-ostreed takes what its remote has",
    ),
    ("identity.rollout_wariness", "", "only Zincati's update graph knows of it (way 2)"),
    (
        "updates.allow_downgrade",
        "false",
        "what is staged counts, whatever its version; who stages decides (way 2: Zincati)",
    ),
];

/// Everything that the fragments say, the strongest of each key; windows add up.
#[derive(Debug, Default)]
struct Fragments {
    keys: BTreeMap<String, (Given, Value)>,
    windows: Vec<(Given, Value)>,
}

/// Translates the fragments of the host whose / is at `root`.
pub(super) fn translate(root: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let files = files(root)?;
    if files.is_empty() {
        draft.miss(
            "/etc/zincati/config.d",
            "*.toml",
            "fragments, or one in /usr/lib or /run",
            "none",
        );
        return Ok(());
    }
    let mut fragments = Fragments::default();
    let mut names = Vec::new();
    for file in &files {
        let name = name_on_host(root, file);
        let text = read_text_bounded(file, LENGTH_MAX)
            .map_err(|error| ImportError::unreadable(&name, &error))?;
        fragments.read(&name, &text, draft)?;
        names.push(name);
    }
    heading(&names, draft);
    let enabled = fragments.flag("updates.enabled", true, draft);
    let group = fragments.group(draft);
    let strategy = fragments.strategy(draft);
    match strategy.as_str() {
        "fleet_lock" => fragments.server(&group, enabled, draft),
        "immediate" | "periodic" => alone(enabled, draft),
        _ => {}
    }
    fragments.schedule(strategy == "periodic", root, draft);
    fragments.id(draft);
    fragments.flag("updates.allow_downgrade", false, draft);
    if !enabled {
        draft.say(
            "updates.enabled = \"false\": Zincati does nothing at all; so does lockkeeper as long as \
             slot.backend is not set, or while the file /etc/lockkeeper/hold exists",
        );
    }
    let because = "Way 2: Zincati stays and asks here.";
    draft.suggest("zincati.listen", &quoted(BRIDGE), because);
    fragments.rest(draft);
    draft.say(
        "users who are logged in: Zincati waits for them 10 minutes at most; here reboot.users = \
         \"wait\" waits until they have gone, and \"ignore\" does not wait",
    );
    Ok(())
}

fn heading(names: &[String], draft: &mut Draft) {
    draft.head(format!("Translated from Zincati: {}.", names.join(", ")));
    draft.head(
        "Look through it and put it into /etc/lockkeeper/config.d/50-local.toml, then say `lockkeeper \
         config check`. There are two ways:",
    );
    draft.head(
        "1. lockkeeper alone, as this file stands. Zincati must not run beside it: `systemctl disable \
         --now zincati && systemctl mask zincati`. Then rpm-ostreed stages the updates:\n    \
         /etc/rpm-ostreed.conf: [Daemon] AutomaticUpdatePolicy=stage\n    \
         systemctl enable --now rpm-ostreed-automatic.timer",
    );
    draft.head(format!(
        "2. Zincati stays: it stages by its update graph, and asks lockkeeper for the reboot. Take the \
         # away before listen in [zincati] below, and put this into \
         /etc/zincati/config.d/99-lockkeeper.toml:\n    [updates]\n    strategy = \"fleet_lock\"\n    \
         [updates.fleet_lock]\n    base_url = \"http://{BRIDGE}/\"",
    ));
}

/// Strategies that ask nobody.
fn alone(enabled: bool, draft: &mut Draft) {
    let because = "Zincati asks nobody with this strategy. A Kubernetes Node needs more: only_node = \
                   true, if it is the only one of its cluster, or a FleetLock server.";
    if enabled {
        draft.set("slot.backend", quoted("none"), because);
    } else {
        draft.suggest("slot.backend", &quoted("none"), because);
    }
}

/// The files that count, in the order of their names.
fn files(root: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let mut chosen: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
    for folder in FOLDERS {
        let folder = root.join(folder);
        let name = name_on_host(root, &folder);
        let unreadable = |error: io::Error| ImportError::unreadable(&name, &error);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(unreadable(error)),
        };
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            let file = entry.path();
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !hidden && file.extension().is_some_and(|extension| extension == "toml") {
                chosen.insert(entry.file_name(), file);
            }
        }
    }
    // A link to nowhere masks the file of its name.
    let masked =
        |file: &PathBuf| fs::read_link(file).is_ok_and(|target| target == Path::new("/dev/null"));
    Ok(chosen.into_values().filter(|file| !masked(file)).collect())
}

/// A path as it is seen on the host itself.
fn name_on_host(root: &Path, path: &Path) -> String {
    let below = path.strip_prefix(root).unwrap_or(path);
    line(&Path::new("/").join(below).display().to_string())
}

// === impl Fragments ===

impl Fragments {
    fn read(&mut self, name: &str, text: &str, draft: &mut Draft) -> Result<(), ImportError> {
        let table: Table = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let row = 1 + text.bytes().take(at).filter(|b| *b == b'\n').count();
            let message = line(error.message());
            ImportError::Unreadable(format!("{name}:{row}: expected TOML: {message}"))
        })?;
        self.add(name, "", table, draft);
        Ok(())
    }

    /// Adds what a table says, under its dotted names.
    fn add(&mut self, file: &str, above: &str, table: Table, draft: &mut Draft) {
        for (name, value) in table {
            let key = if above.is_empty() { name } else { format!("{above}.{name}") };
            let given = |value: &Value| Given {
                file: file.to_owned(),
                key: line(&key),
                value: shown(value),
            };
            if let Value::Table(inner) = value {
                self.add(file, &key, inner, draft);
                continue;
            }
            if let ("updates.periodic.window", Value::Array(list)) = (key.as_str(), &value) {
                self.windows.extend(list.iter().map(|item| (given(item), item.clone())));
                continue;
            }
            let given = given(&value);
            if let Some((weaker, _)) = self.keys.insert(key, (given.clone(), value)) {
                draft.note(&weaker, &format!("overridden by {}", given.file));
            }
        }
    }

    fn text(&mut self, key: &str, draft: &mut Draft) -> Option<(Given, String)> {
        let (given, value) = self.keys.remove(key)?;
        let Value::String(text) = value else {
            draft.refuse(&given, "a text");
            return None;
        };
        Some((given, text))
    }

    /// A flag; it stays where it differs from what it is by default, to be named.
    fn flag(&mut self, key: &str, default: bool, draft: &mut Draft) -> bool {
        let Some((given, value)) = self.keys.get(key) else { return default };
        let Some(flag) = value.as_bool() else {
            draft.refuse(given, "true or false");
            return default;
        };
        if flag == default || key == "updates.enabled" {
            self.keys.remove(key);
        }
        flag
    }

    fn group(&mut self, draft: &mut Draft) -> String {
        let Some((given, group)) = self.text("identity.group", draft) else {
            return "default".to_owned();
        };
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
        if group.is_empty() || !group.bytes().all(good) {
            draft.refuse(&given, "letters, digits, dots and dashes");
        } else if group != "default" {
            draft.set_given("slot.group", quoted(&group), &given, "");
        }
        group
    }

    fn strategy(&mut self, draft: &mut Draft) -> String {
        const KNOWN: [&str; 4] = ["", "immediate", "periodic", "fleet_lock"];
        match self.text("updates.strategy", draft) {
            Some((given, strategy)) if !KNOWN.contains(&strategy.as_str()) => {
                draft.refuse(&given, "\"immediate\", \"periodic\" or \"fleet_lock\"");
                String::new()
            }
            Some((_, strategy)) if !strategy.is_empty() => strategy,
            Some(_) | None => "immediate".to_owned(),
        }
    }

    /// The FleetLock server.
    fn server(&mut self, group: &str, enabled: bool, draft: &mut Draft) {
        let key = "updates.fleet_lock.base_url";
        let Some((given, text)) = self.text(key, draft) else {
            draft.miss("updates.strategy", key, "the URL of a server", "none");
            return;
        };
        let text = text.replace("${group}", group);
        let because = "As Zincati's. Its server goes on serving both.";
        if text.contains("${") {
            draft.suggest("slot.backend", &quoted("fleetlock"), "");
            draft.note(&given, "fill in what stands in ${…}, and set it as slot.base_url");
            return;
        }
        let url = reqwest::Url::parse(&text).ok();
        let Some(mut url) = url.filter(|url| matches!(url.scheme(), "http" | "https")) else {
            draft.refuse(&given, "a URL with http:// or https://");
            return;
        };
        if !url.username().is_empty() || url.password().is_some() {
            draft.note(
                &given,
                "user and password go into slot.headers by hand: headers = { authorization = \"Basic …\" }, \
                 with the two in base64",
            );
            let _ = (url.set_username(""), url.set_password(None));
        }
        url.set_query(None);
        url.set_fragment(None);
        let path = url.path().to_owned();
        let kept = path.rfind('/').and_then(|at| path.get(..=at)).unwrap_or("/");
        if kept != path {
            url.set_path(kept);
            draft.note(
                &given,
                "Zincati itself leaves out what stands behind the last /, so that slot.base_url does, too; \
                 put it back, with a / behind it, if the server is meant to be there",
            );
        }
        let literal = quoted(url.as_str());
        if enabled {
            if draft.set_given("slot.base_url", literal, &given, because) {
                draft.set("slot.backend", quoted("fleetlock"), "");
            }
        } else {
            draft.suggest("slot.backend", &quoted("fleetlock"), because);
            draft.suggest("slot.base_url", &literal, "");
        }
    }

    /// The windows of the strategy `periodic`.
    fn schedule(&mut self, counts: bool, root: &Path, draft: &mut Draft) {
        let zone = self.text("updates.periodic.time_zone", draft);
        let windows = std::mem::take(&mut self.windows);
        if !counts {
            for given in windows.iter().map(|(given, _)| given).chain(zone.iter().map(|(g, _)| g)) {
                draft.note(given, "of no effect, since updates.strategy is not \"periodic\"");
            }
            return;
        }
        if windows.is_empty() {
            let key = "updates.periodic.window";
            draft.miss("updates.strategy", key, "a window, or Zincati never reboots", "none");
        }
        let mut name = zone.as_ref().map_or("UTC", |(_, name)| name.as_str()).to_owned();
        if name == "localtime" {
            name = local_zone(root).unwrap_or_else(|| {
                draft.of_windows(
                    "The zone of this host cannot be told from /etc/localtime: put it in place of UTC.",
                );
                "UTC".to_owned()
            });
        }
        for (given, window) in &windows {
            self::window(given, window, zone.as_ref().map(|(given, _)| given), &name, draft);
        }
    }

    fn id(&mut self, draft: &mut Draft) {
        let Some((given, id)) = self.text("identity.node_uuid", draft) else { return };
        let id = id.replace('-', "").to_ascii_lowercase();
        if id.len() != 32 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            draft.refuse(&given, "an id of 32 hexadecimal digits");
            return;
        }
        draft.set_given("slot.id", quoted(&id), &given, "");
    }

    /// Names what is left.
    fn rest(self, draft: &mut Draft) {
        for (key, (given, _)) in &self.keys {
            match NO_EQUAL.iter().find(|(name, _, _)| name == key) {
                Some((_, same, _)) if given.value == *same => {}
                Some((_, _, instead)) => draft.note(given, instead),
                None if key == "updates.fleet_lock.base_url" => {
                    draft.note(given, "of no effect, since updates.strategy is not \"fleet_lock\"");
                }
                None => draft.note(given, "no key of Zincati, which has ignored it"),
            }
        }
    }
}

/// One window.
fn window(given: &Given, window: &Value, zone: Option<&Given>, name: &str, draft: &mut Draft) {
    let field = |key: &str| {
        let mut given = given.clone();
        given.key = format!("{}.{key}", given.key);
        given.value = window.get(key).map(shown).unwrap_or_default();
        given
    };
    let days: Option<Vec<&'static str>> = window
        .get("days")
        .and_then(|days| days.as_array()?.iter().map(|one| one.as_str().and_then(day)).collect());
    let Some(days) = days.filter(|days| !days.is_empty()) else {
        draft.refuse(&field("days"), "a list of days such as [\"Sat\", \"Sun\"]");
        return;
    };
    let start = window.get("start_time").and_then(Value::as_str).and_then(clock_time);
    let Some(start) = start else {
        draft.refuse(&field("start_time"), "a time such as \"22:30\"");
        return;
    };
    let minutes = window.get("length_minutes").and_then(Value::as_integer);
    let Some(minutes @ 1..=10_080) = minutes else {
        draft.refuse(&field("length_minutes"), "a whole number from 1 to 10080");
        return;
    };
    let length = Duration::from_secs(minutes.unsigned_abs() * 60);
    match Opening::new(&days, start, length, name) {
        Ok(window) => draft.window(window),
        Err(error) => draft.refuse(zone.unwrap_or(given), error.expected),
    }
    for key in window.as_table().into_iter().flat_map(Table::keys) {
        if !["days", "start_time", "length_minutes"].contains(&key.as_str()) {
            draft.note(&field(&line(key)), "no key of Zincati, which has ignored it");
        }
    }
}

/// A value for people.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}
