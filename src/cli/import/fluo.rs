//! From the manifests of FLUO, or of CLUO before it.

use std::time::Duration;

use super::draft::{Draft, ImportError, lasting, quoted};
use super::flags::{Style, switch};
use super::given::{Inputs, NoEqual, Strength};
use super::locksmith::weekly;
use super::manifest::{Container, containers};
use super::told::line;

/// Flags of the operator.
pub(super) const OPERATOR_VALUED: [&str; 6] = [
    "kubeconfig",
    "before-reboot-annotations",
    "after-reboot-annotations",
    "reboot-window-start",
    "reboot-window-length",
    "agent-image-repo",
];
pub(super) const OPERATOR_SWITCHES: [&str; 5] = [
    "auto-label-container-linux",
    "auto-label-flatcar-linux",
    "manage-agent",
    "analytics",
    "version",
];

/// Flags of the agent.
pub(super) const AGENT_VALUED: [&str; 2] = ["node", "grace-period"];
pub(super) const AGENT_SWITCHES: [&str; 2] = ["force-drain", "version"];

/// Flags of the library that both log with.
const LOG_VALUED: [&str; 7] = [
    "v",
    "vmodule",
    "log_dir",
    "log_file",
    "log_file_max_size",
    "stderrthreshold",
    "log_backtrace_at",
];
const LOG_SWITCHES: [&str; 6] = [
    "logtostderr",
    "alsologtostderr",
    "add_dir_header",
    "skip_headers",
    "skip_log_headers",
    "one_output",
];

const HOOKS: &str = "pods that set annotations are not waited for; an executable in settle.checks_dir can \
                     prove the node after its boot, and `lockkeeper hold REASON` keeps it from going down";

const LOG: &str = "LOCKKEEPER_LOG=debug in the environment of lockkeeper.service says more";

/// What has no equal, by flag.
const NO_EQUAL: [NoEqual; 10] = [
    ("before-reboot-annotations", "", HOOKS),
    ("after-reboot-annotations", "", HOOKS),
    (
        "kubeconfig",
        "",
        "the agent speaks with the kubelet's credential; node.kubeconfig names another",
    ),
    ("node", "", "the Node's name is found by itself; node.name says another one"),
    ("auto-label-container-linux", "false", NO_LABELS),
    ("auto-label-flatcar-linux", "false", NO_LABELS),
    ("manage-agent", "false", NO_LABELS),
    ("agent-image-repo", "", NO_LABELS),
    ("analytics", "false", "nothing is sent anywhere"),
    ("version", "false", "only prints"),
];

const NO_LABELS: &str = "the agent is a service of the host, there where it is installed";

/// Translates the manifests of the operator and of the agent.
pub(super) fn translate(file: &str, text: &str, draft: &mut Draft) -> Result<(), ImportError> {
    let all = containers(file, text)?;
    let Some(operator) = the_one(file, &all, "update-operator", draft) else { return Ok(()) };
    let Some(agent) = the_one(file, &all, "update-agent", draft) else { return Ok(()) };
    if operator.is_none() && agent.is_none() {
        let expected =
            "a Deployment that runs update-operator, or a DaemonSet that runs update-agent";
        draft.miss(file, "kind", expected, "neither");
        return Ok(());
    }
    let old =
        [operator, agent].into_iter().flatten().any(|one| one.image.contains("container-linux"));
    heading(file, old, operator, agent, draft);
    draft.set(
        "updates.sources",
        quoted("update-engine"),
        "As its agent, which hears of nothing else.",
    );
    draft.suggest_server();
    draft.coordinator("default", 1, "One node at a time, as its operator.");
    let mut inputs = Inputs::default();
    if let Some(operator) = operator {
        environment(operator, "UPDATE_OPERATOR_", &mut inputs, draft);
        let valued = [OPERATOR_VALUED.as_slice(), &LOG_VALUED].concat();
        let switches = [OPERATOR_SWITCHES.as_slice(), &LOG_SWITCHES].concat();
        operator.command_line(Style::Go, &valued, &switches).read(&mut inputs, draft);
    }
    windows(&mut inputs, draft);
    rest(&mut inputs, draft);
    if let Some(agent) = agent {
        environment(agent, "UPDATE_AGENT_", &mut inputs, draft);
        let valued = [AGENT_VALUED.as_slice(), &LOG_VALUED].concat();
        let switches = [AGENT_SWITCHES.as_slice(), &LOG_SWITCHES].concat();
        agent.command_line(Style::Go, &valued, &switches).read(&mut inputs, draft);
    }
    drain(&mut inputs, old, draft);
    rest(&mut inputs, draft);
    inputs.note_rest("not known here; look into its manual for what it does", draft);
    draft.say(
        "pods in kube-system stay where they are in its drain; here they are evicted, but for those of \
         DaemonSets and mirror pods",
    );
    draft.say("Nodes with the annotation reboot-paused: `lockkeeper hold REASON` on each");
    Ok(())
}

/// The container that runs a program; the outer `None`: there are several.
fn the_one<'a>(
    file: &str,
    all: &'a [Container],
    program: &str,
    draft: &mut Draft,
) -> Option<Option<&'a Container>> {
    let found: Vec<&Container> = all.iter().filter(|one| one.program() == program).collect();
    match found.as_slice() {
        [] => Some(None),
        [one] => Some(Some(*one)),
        [first, second, ..] => {
            let found = format!("{} and {}", first.workload, second.workload);
            draft.miss(file, program, "one workload that runs it", &found);
            None
        }
    }
}

fn heading(
    file: &str,
    old: bool,
    operator: Option<&Container>,
    agent: Option<&Container>,
    draft: &mut Draft,
) {
    let name = if old { "CLUO" } else { "FLUO" };
    let places: Vec<&str> =
        [operator, agent].into_iter().flatten().map(|one| one.place.as_str()).collect();
    draft.head(format!("Translated from {name}: {}.", places.join("; ")));
    draft.head(
        "Look through it and put it into /etc/lockkeeper/config.d/50-local.toml of each node, then \
         say `lockkeeper config check`. Before the agents start, scale the operator to 0 and delete the \
         DaemonSet of its agent while no node is on its way, or both reboot.",
    );
    for (found, program) in [(operator, "update-operator"), (agent, "update-agent")] {
        if found.is_none() {
            draft.head(format!("No {program} is in {}: its defaults are taken.", line(file)));
        }
    }
}

/// The variables that stand for flags.
fn environment(container: &Container, prefix: &str, inputs: &mut Inputs, draft: &mut Draft) {
    for (name, value) in &container.environment {
        let Some(flag) = name.strip_prefix(prefix) else {
            if !["POD_NAMESPACE", "KUBECONFIG"].contains(&name.as_str()) {
                let instead = "no variable of its own; lockkeeper reads none";
                draft.note(&container.given(name, ""), instead);
            }
            continue;
        };
        let flag = flag.to_ascii_lowercase().replace('_', "-");
        match value {
            // The Node's name, by the downward API: found by itself here.
            None if flag == "node" => {}
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
        draft.say(format!("envFrom: more variables come from elsewhere; look for {prefix}*"));
    }
}

/// When a node may begin.
fn windows(inputs: &mut Inputs, draft: &mut Draft) {
    let mut take = |name| inputs.take(name, draft).filter(|given| !given.value.is_empty());
    let (start, length) = (take("reboot-window-start"), take("reboot-window-length"));
    match (start, length) {
        (Some(start), Some(length)) => {
            draft.of_windows(
                "The zone is that of the operator's pod, UTC most often: correct it if not.",
            );
            weekly(&start, &length, "UTC", draft);
        }
        (Some(one), None) | (None, Some(one)) => draft.note(
            &one,
            "its operator has no window with only one of start and length, so there is none here",
        ),
        (None, None) => {}
    }
}

/// How a node drains.
fn drain(inputs: &mut Inputs, old: bool, draft: &mut Draft) {
    let grace = inputs.take("grace-period", draft);
    let because = "As its agent's grace period, the time for all of the drain.";
    match grace.as_ref().map(|given| (given, given.value.parse::<u64>())) {
        None => draft.set("drain.deadline", quoted("10m"), because),
        Some((given, Ok(0))) => {
            draft.note(given, "a drain without an end; here drain.deadline ends it");
        }
        Some((given, Ok(seconds))) => {
            let literal = lasting(Duration::from_secs(seconds));
            draft.set_given("drain.deadline", literal, given, because);
        }
        Some((given, Err(_))) => draft.refuse(given, "a whole number of seconds"),
    }
    draft.set(
        "drain.on_deadline",
        quoted("reboot"),
        "As its agent, which reboots though the drain has failed. \"yield\" would give the slot back.",
    );
    let force = inputs.take("force-drain", draft).is_some_and(|given| switch(&given, draft));
    let (word, because) = match (old, force) {
        (true, _) => ("evict", "As its agent, which deletes every pod."),
        (false, true) => ("evict", "As --force-drain."),
        (false, false) => ("refuse", "As its agent without --force-drain."),
    };
    draft.set("drain.unmanaged_pods", quoted(word), because);
    if old {
        draft.say(
            "CLUO deletes pods without asking; here they are evicted, so that a disruption budget counts \
             until drain.deadline",
        );
    }
    draft.set(
        "reboot.users",
        quoted("ignore"),
        "As its agent, which does not ask who is logged in.",
    );
}

/// Names what has no equal so far.
fn rest(inputs: &mut Inputs, draft: &mut Draft) {
    inputs.note_all(&NO_EQUAL, draft);
    for name in LOG_VALUED.iter().chain(&LOG_SWITCHES) {
        if let Some(given) = inputs.take(name, draft)
            && *name != "logtostderr"
        {
            draft.note(&given, LOG);
        }
    }
}
