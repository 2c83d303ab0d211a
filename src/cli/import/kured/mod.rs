//! From kured's DaemonSet.

mod days;

use std::time::Duration;

use crate::config;

use super::draft::{Draft, ImportError, lasting, listed, quoted};
use super::flags::{Style, shell_words, switch};
use super::given::{Given, Inputs, NoEqual, Strength};
use super::manifest::{Container, containers};
use super::told::told;
use super::windows::go_duration;

/// Flags with a value, of kured 1.23 and, where they are gone, of those before.
pub(super) const VALUED: [&str; 39] = [
    "node-id",
    "metrics-host",
    "metrics-port",
    "drain-grace-period",
    "drain-pod-selector",
    "skip-wait-for-delete-timeout",
    "drain-delay",
    "drain-timeout",
    "reboot-delay",
    "reboot-method",
    "period",
    "ds-namespace",
    "ds-name",
    "lock-annotation",
    "lock-ttl",
    "lock-release-delay",
    "prometheus-url",
    "alert-filter-regexp",
    "reboot-sentinel",
    "prefer-no-schedule-taint",
    "reboot-sentinel-command",
    "reboot-command",
    "concurrency",
    "reboot-signal",
    "slack-hook-url",
    "slack-username",
    "slack-channel",
    "notify-url",
    "message-template-drain",
    "message-template-reboot",
    "message-template-uncordon",
    "blocking-pod-selector",
    "reboot-days",
    "start-time",
    "end-time",
    "time-zone",
    "log-format",
    "pre-reboot-node-labels",
    "post-reboot-node-labels",
];

/// Flags that need none.
pub(super) const SWITCHES: [&str; 6] = [
    "force-reboot",
    "alert-filter-match-only",
    "alert-firing-only",
    "annotate-nodes",
    "help",
    "version",
];

/// Where the coordinator listens unless it is told otherwise.
const COORDINATOR: &str = "127.0.0.1:9090";

/// What has no equal, by flag.
const NO_EQUAL: [NoEqual; 25] = [
    (
        "drain-pod-selector",
        "",
        "a drain leaves no pod behind but those of DaemonSets and mirror pods",
    ),
    (
        "skip-wait-for-delete-timeout",
        "0",
        "a drain waits for every pod until drain.deadline; drain.on_deadline says what then",
    ),
    (
        "reboot-delay",
        "0s",
        "the reboot follows the drain; drain.volume_detach_timeout waits for volumes",
    ),
    (
        "reboot-method",
        "command",
        "logind is asked to reboot, so that what blocks a shutdown counts",
    ),
    ("reboot-signal", "39", "logind is asked to reboot, so that what blocks a shutdown counts"),
    (
        "reboot-command",
        "/bin/systemctl reboot",
        "logind is asked to reboot; a unit with Before=reboot.target can do more",
    ),
    (
        "lock-ttl",
        "0",
        "a slot never expires by itself, since its node may still be down; `lockkeeper slots release` \
         frees the one of a node that will not come back",
    ),
    ("lock-annotation", "weave.works/kured-node-lock", "slots are not kept on a DaemonSet"),
    ("ds-namespace", "kube-system", "slots are not kept on a DaemonSet"),
    ("ds-name", "kured", "slots are not kept on a DaemonSet"),
    ("node-id", "", "the Node's name is found by itself; node.name says another one"),
    ("annotate-nodes", "false", "the Node always has a condition and Events that say the same"),
    ("log-format", "text", "the journal keeps every message with its fields"),
    (
        "prefer-no-schedule-taint",
        "",
        "no taint is set on nodes that wait; the rehearsal keeps a slot from nodes that could not drain",
    ),
    ("pre-reboot-node-labels", "", NO_LABELS),
    ("post-reboot-node-labels", "", NO_LABELS),
    ("notify-url", "", NO_MESSAGES),
    ("slack-hook-url", "", NO_MESSAGES),
    ("slack-username", "kured", NO_MESSAGES),
    ("slack-channel", "", NO_MESSAGES),
    ("message-template-drain", "", NO_TEMPLATES),
    ("message-template-reboot", "", NO_TEMPLATES),
    ("message-template-uncordon", "", NO_TEMPLATES),
    ("help", "false", "only prints"),
    ("version", "false", "only prints"),
];

const NO_LABELS: &str = "no labels are set on the Node; its condition and its annotations say when it \
                         goes down and when it is well";

const NO_MESSAGES: &str = "no messages are sent; Events of the Node, the journal and the alert rules in \
                           packaging/alerts.yaml say the same";

const NO_TEMPLATES: &str = "the words of messages are fixed";

/// Translates the DaemonSet in a manifest.
pub(super) fn translate(file: &str, text: &str, draft: &mut Draft) -> Result<(), ImportError> {
    let all = containers(file, text)?;
    let is_kured = |one: &&Container| one.program() == "kured" || image_name(&one.image) == "kured";
    let found: Vec<&Container> = all.iter().filter(is_kured).collect();
    let container = match found.as_slice() {
        [one] => *one,
        [] => {
            draft.miss(file, "kind", "a DaemonSet with a container that runs kured", "none");
            return Ok(());
        }
        [first, second, ..] => {
            let found = format!("{} and {}", first.workload, second.workload);
            draft.miss(file, "kind", "one workload that runs kured", &found);
            return Ok(());
        }
    };
    if !container.program().is_empty() && container.program() != "kured" {
        let given = container.given("command", container.program());
        draft.refuse(&given, "kured itself with its flags, not a shell around it");
        return Ok(());
    }
    heading(container, draft);
    let mut inputs = Inputs::default();
    environment(container, &mut inputs, draft);
    container.command_line(Style::Pflag, &VALUED, &SWITCHES).read(&mut inputs, draft);
    sentinel(&mut inputs, draft);
    slot(&mut inputs, draft);
    days::windows(&mut inputs, draft);
    gates(&mut inputs, draft);
    drain(&mut inputs, draft);
    metrics(&mut inputs, draft);
    inputs.note_all(&NO_EQUAL, draft);
    inputs.note_rest("not known here; look into kured's manual for what it does", draft);
    Ok(())
}

fn heading(container: &Container, draft: &mut Draft) {
    draft.head(format!("Translated from kured: {}.", container.place));
    draft.head(
        "Look through it and put it into /etc/lockkeeper/config.d/50-local.toml of each node, then \
         say `lockkeeper config check`. Take kured away before the agents start, or both reboot.",
    );
}

/// The name of an image, without registry and tag.
fn image_name(image: &str) -> &str {
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split([':', '@']).next().unwrap_or_default()
}

/// The variables that stand for flags.
fn environment(container: &Container, inputs: &mut Inputs, draft: &mut Draft) {
    for (name, value) in &container.environment {
        let Some(flag) = name.strip_prefix("KURED_") else {
            draft.note(
                &container.given(name, ""),
                "no variable of kured's own; lockkeeper reads none",
            );
            continue;
        };
        let flag = flag.to_ascii_lowercase().replace('_', "-");
        match value {
            // The Node's name, by the downward API: found by itself here.
            None if flag == "node-id" => {}
            None => draft.note(
                &container.given(name, ""),
                "its value is not in the manifest; look it up, and translate it with `value:`",
            ),
            Some(value) if value.is_empty() => {}
            Some(value) => {
                inputs.push(flag, Strength::Environment, container.given(name, value));
            }
        }
    }
    if container.more_environment {
        draft.say(
            "envFrom: more variables come from elsewhere; look whether KURED_* are among them",
        );
    }
}

/// What says that a reboot is due.
fn sentinel(inputs: &mut Inputs, draft: &mut Draft) {
    let file = inputs.take("reboot-sentinel", draft);
    let command = inputs.take("reboot-sentinel-command", draft).filter(|g| !g.value.is_empty());
    let period = duration(inputs.take("period", draft), draft);
    if config::expected("updates.sources", "[\"sentinel\"]").is_some() {
        let instead = "a file or a command does not ask for a reboot; who knows of it can say \
                       `lockkeeper reboot --reason TEXT`";
        let of_kured = || Given {
            file: String::new(),
            key: "--reboot-sentinel".to_owned(),
            value: "/var/run/reboot-required".to_owned(),
        };
        let told = [command, file].into_iter().flatten().collect::<Vec<_>>();
        let told = if told.is_empty() { vec![of_kured()] } else { told };
        told.iter().for_each(|given| draft.note(given, instead));
        if let Some((period, _)) = period {
            draft.note(&period, "goes with --reboot-sentinel");
        }
        return;
    }
    draft.set("updates.sources", listed(["sentinel"]), "");
    match (command, file) {
        (Some(command), file) => {
            match shell_words(&command.value) {
                Some(words) if !words.is_empty() => {
                    let literal = listed(words.iter().map(String::as_str));
                    let because = "Run on the host itself, where kured's pod entered it.";
                    draft.set_given("updates.sentinel_command", literal, &command, because);
                }
                Some(_) | None => draft.refuse(&command, "a command whose quotes end"),
            }
            if let Some(file) = file {
                draft.note(&file, "of no effect beside --reboot-sentinel-command");
            }
        }
        (None, Some(file)) => {
            let literal = listed([file.value.as_str()]);
            draft.set_given("updates.sentinel_files", literal, &file, "");
        }
        (None, None) => {
            draft.set("updates.sentinel_files", listed(["/var/run/reboot-required"]), "");
        }
    }
    if let Some((given, period)) = period {
        draft.set_given("updates.sentinel_period", lasting(period), &given, "");
    }
}

/// Who hands out the right to be down, and to how many.
fn slot(inputs: &mut Inputs, draft: &mut Draft) {
    draft.suggest_server();
    let mut slots = 1;
    if let Some(given) = inputs.take("concurrency", draft) {
        match given.value.parse::<u64>() {
            Ok(number @ 1..=10_000) => slots = number,
            Ok(_) | Err(_) => draft.refuse(&given, "a whole number from 1 to 10000"),
        }
    }
    draft.coordinator("default", slots, "As --concurrency, 1 unless said otherwise.");
    if let Some((given, delay)) = duration(inputs.take("lock-release-delay", draft), draft)
        && !delay.is_zero()
    {
        let because = "As --lock-release-delay: the slot is given back once the node has been well for \
                       so long. Here the cordon stays until then, too.";
        if draft.set_given("settle.time", lasting(delay), &given, because) {
            let deadline = delay + Duration::from_secs(600);
            draft.set_given("settle.deadline", lasting(deadline), &given, "");
        }
    }
}

/// What keeps it from beginning.
fn gates(inputs: &mut Inputs, draft: &mut Draft) {
    let selectors = inputs.take_all("blocking-pod-selector", draft);
    if let Some(first) = selectors.first() {
        let literal = listed(selectors.iter().map(|given| given.value.as_str()));
        if config::known("gates.blocking_pods") {
            draft.set_given("gates.blocking_pods", literal, first, "");
        } else {
            for given in &selectors {
                let instead = "a running pod keeps no node up; a disruption budget that allows no \
                               disruption does, and is known before a slot is taken";
                draft.note(given, instead);
            }
        }
    }
    alerts(inputs, draft);
}

/// Alerts of Prometheus.
fn alerts(inputs: &mut Inputs, draft: &mut Draft) {
    let url = inputs.take("prometheus-url", draft).filter(|given| !given.value.is_empty());
    let filter = inputs.take("alert-filter-regexp", draft).filter(|given| !given.value.is_empty());
    let match_only = inputs.take("alert-filter-match-only", draft);
    let firing_only = inputs.take("alert-firing-only", draft);
    let Some(url) = url else {
        for given in [filter, match_only, firing_only].into_iter().flatten() {
            draft.note(&given, "of no effect without --prometheus-url");
        }
        return;
    };
    if !config::known("gates.prometheus_url") {
        for given in [Some(url), filter, match_only, firing_only].into_iter().flatten() {
            draft.note(
                &given,
                "alerts keep no node up; let what watches them say `lockkeeper hold REASON`",
            );
        }
        return;
    }
    if told(&url.key, &url.value) == url.value {
        draft.set_given("gates.prometheus_url", quoted(&url.value), &url, "");
    } else {
        draft.note(&url, "may hold a secret: copy it by hand into gates.prometheus_url");
    }
    if let Some(filter) = filter {
        draft.set_given("gates.prometheus_ignore", quoted(&filter.value), &filter, "");
    }
    if let Some(given) = match_only
        && switch(&given, draft)
    {
        draft.set_given("gates.prometheus_match_only", "true".to_owned(), &given, "");
    }
    let firing = firing_only.is_some_and(|given| switch(&given, draft));
    if !firing {
        let because = "As in kured without --alert-firing-only: alerts that are pending count too.";
        draft.set("gates.prometheus_firing_only", "false".to_owned(), because);
    }
}

/// How it drains.
fn drain(inputs: &mut Inputs, draft: &mut Draft) {
    match duration(inputs.take("drain-timeout", draft), draft) {
        Some((given, timeout)) if !timeout.is_zero() => {
            draft.set_given("drain.deadline", lasting(timeout), &given, "As --drain-timeout.");
        }
        _ => draft.say(
            "--drain-timeout = \"0\", its default: a drain without an end; here drain.deadline ends it, \
             after 15m unless you say otherwise",
        ),
    }
    if inputs.take("force-reboot", draft).is_some_and(|given| switch(&given, draft)) {
        let because = "As --force-reboot.";
        draft.set("drain.on_deadline", quoted("reboot"), because);
    }
    let because = "kured drains with --force: pods that nothing creates again are gone for good.";
    draft.set("drain.unmanaged_pods", quoted("evict"), because);
    if let Some(given) = inputs.take("drain-grace-period", draft) {
        match given.value.parse::<i64>() {
            Ok(..=-1) => {}
            Ok(0) => {
                let because = "As --drain-grace-period=0, at once: the shortest here.";
                draft.set("drain.grace_period", quoted("1s"), because);
            }
            Ok(seconds) => {
                let grace = Duration::from_secs(seconds.unsigned_abs());
                let because = "As --drain-grace-period.";
                draft.set_given("drain.grace_period", lasting(grace), &given, because);
            }
            Err(_) => draft.refuse(&given, "a whole number of seconds"),
        }
    }
    if let Some((given, delay)) = duration(inputs.take("drain-delay", draft), draft)
        && !delay.is_zero()
    {
        if config::known("drain.wait_before") {
            draft.set_given("drain.wait_before", lasting(delay), &given, "As --drain-delay.");
        } else {
            draft.note(&given, "the drain follows the slot at once");
        }
    }
    draft.set("reboot.users", quoted("ignore"), "As kured, which does not ask who is logged in.");
}

/// Where the figures are.
fn metrics(inputs: &mut Inputs, draft: &mut Draft) {
    let host = inputs.take("metrics-host", draft);
    let port = inputs.take("metrics-port", draft);
    let Some(given) = host.as_ref().or(port.as_ref()) else { return };
    let host = host.as_ref().map_or("", |given| given.value.as_str());
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let port = port.as_ref().map_or("8080", |given| given.value.as_str());
    let address =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    if address == COORDINATOR {
        draft.note(given, "metrics.listen cannot be where coordinator.listen is by default");
        return;
    }
    let because = "The names of the figures are others. On the host's own network now: see who can \
                   reach it.";
    draft.set_given("metrics.listen", quoted(&address), given, because);
}

/// A duration of Go; what is none is refused.
fn duration(given: Option<Given>, draft: &mut Draft) -> Option<(Given, Duration)> {
    let given = given?;
    match go_duration(&given.value) {
        Some(duration) => Some((given, duration)),
        None => {
            draft.refuse(&given, "a duration such as 90s or 1h30m");
            None
        }
    }
}
