//! From a script line to an event of the heart.

use lockkeeper::drain::{Obstacle, ObstacleKind, Progress};
use lockkeeper::fleetlock::{ReleaseAnswer, SlotAnswer};
use lockkeeper::lifecycle::{
    BootEvidence, Command, CordonAnswer, DrainEnd, Event, Health, HostView, Inhibitor, Lane,
    NodeTrouble, NodeView, RebootAnswer, Rehearsal, UncordonAnswer, Verification,
};
use lockkeeper::model::{
    BootId, Deployment, NodeUid, SENTINEL_PREFIX, Source, SystemView, Target, UNKNOWN_VERSION,
};

use crate::words::{Words, number};

/// The boot id of the boot with this number.
pub(crate) fn boot_id(number: u32) -> BootId {
    BootId::parse(&format!("{number:08x}{:024x}", 0)).expect("32 hex digits")
}

/// Reads an event; `boot` is the boot that runs.
pub(crate) fn event(mut words: Words, boot: u32) -> Result<Event, String> {
    let w = &mut words;
    let verb = w.verb.clone();
    let event = match verb.as_str() {
        "system" => system(w)?,
        "node" => match trouble(w)? {
            Some(trouble) => Event::NodeTrouble(trouble),
            None => Event::Node(node(w, boot)?),
        },
        "host" => one(w, &[("changed", Event::HostChanged)])?,
        "hold-file" => {
            let text = w.need("its text, or gone")?;
            Event::HoldFile((text != "gone").then_some(text))
        }
        "shutdown" => one(
            w,
            &[
                ("begins", Event::PreparingForShutdown(true)),
                ("abandoned", Event::PreparingForShutdown(false)),
            ],
        )?,
        "person" => Event::Person(command(w)?),
        "record" => one(
            w,
            &[
                ("unwritable", Event::RecordUnwritable("no space left on device".to_owned())),
                ("written", Event::RecordWritten),
            ],
        )?,
        "not-done" => Event::NotDone(lane(w)?),
        "progress" => Event::DrainProgress(progress(w)?),
        _ => outcome(w, boot)?,
    };
    words.finish()?;
    Ok(event)
}

/// Outcomes of effects.
fn outcome(w: &mut Words, boot: u32) -> Result<Event, String> {
    let verb = w.verb.clone();
    Ok(match verb.as_str() {
        "inspected" => Event::Inspected(host(w)?),
        "boot-read" => {
            Event::BootRead(BootEvidence { finalize_failure: w.value("finalize-failure") })
        }
        "node-read" => Event::NodeRead(match trouble(w)? {
            Some(trouble) => Err(trouble),
            None => Ok(node(w, boot)?),
        }),
        "rehearsed" => Event::Rehearsed(match trouble(w)? {
            Some(trouble) => Rehearsal::Failed(trouble),
            None if w.flag("passes") => Rehearsal::Passes,
            None if w.flag("blocked") => Rehearsal::Blocked(obstacles(w)?),
            None => return Err("rehearsed: expected passes, blocked or trouble=…".to_owned()),
        }),
        "slot" => Event::SlotAnswered(slot(w)?),
        "released" => Event::SlotReleased(release(w)?),
        "cordoned" => Event::Cordoned(match trouble(w)? {
            Some(trouble) => CordonAnswer::Failed(trouble),
            None => one(
                w,
                &[
                    ("ours", CordonAnswer::Ours),
                    ("foreign", CordonAnswer::Foreign),
                    ("other-node", CordonAnswer::OtherNode(NodeUid("uid-2".to_owned()))),
                ],
            )?,
        }),
        "drained" => Event::DrainEnded(drained(w)?),
        "verified" => Event::Verified(verified(w)?),
        "reboot" => Event::RebootAnswered(match w.need("accepted, refused or unknown")?.as_str() {
            "accepted" => RebootAnswer::Accepted,
            "refused" => RebootAnswer::Refused(w.need("why")?),
            "unknown" => RebootAnswer::Unknown("NoReply".to_owned()),
            other => return Err(format!("reboot: {other:?} is no answer")),
        }),
        "zincati" | "allowed" => zincati(w)?,
        "undone" => Event::RebootUndone(match w.need("ok or failed")?.as_str() {
            "ok" => Ok(()),
            "failed" => Err(w.need("why")?),
            other => return Err(format!("undone: expected ok or failed, found {other:?}")),
        }),
        "health" => Event::HealthChecked(match w.need("well or bad")?.as_str() {
            "well" => Health::Well,
            "bad" => Health::NotWell(vec![w.need("what is bad")?]),
            other => return Err(format!("health: expected well or bad, found {other:?}")),
        }),
        "uncordoned" => Event::Uncordoned(match trouble(w)? {
            Some(trouble) => UncordonAnswer::Failed(trouble),
            None => one(
                w,
                &[
                    ("lifted", UncordonAnswer::Lifted),
                    ("already", UncordonAnswer::AlreadySchedulable),
                    ("foreign", UncordonAnswer::Foreign),
                    ("no-node", UncordonAnswer::NoNode),
                ],
            )?,
        }),
        "cordon-restored" => Event::CordonRestored(one(
            w,
            &[("put-back", Ok(true)), ("failed", Err("the API server does not answer".to_owned()))],
        )?),
        other => return Err(format!("there is no verb {other:?}")),
    })
}

fn one<T: Clone>(w: &mut Words, table: &[(&str, T)]) -> Result<T, String> {
    let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
    let expected = names.join(" or ");
    let word = w.need(&expected)?;
    let found = table.iter().find(|(name, _)| *name == word).map(|(_, value)| value.clone());
    found.ok_or_else(|| format!("{}: expected {expected}, found {word:?}", w.verb))
}

/// `zincati asks`, `zincati hangs-up`, `zincati steady`; `allowed heard`, `allowed missed`.
fn zincati(w: &mut Words) -> Result<Event, String> {
    one(
        w,
        &[
            ("asks", Event::ZincatiWaits(true)),
            ("hangs-up", Event::ZincatiWaits(false)),
            ("steady", Event::ZincatiSteady),
            ("heard", Event::ZincatiAllowed(true)),
            ("missed", Event::ZincatiAllowed(false)),
        ],
    )
}

// === Host and system ===

/// `booted=A`, with `staged=B` and `first=C` before it, `then=D` behind it, each with its place as
/// `A@USR-A`; `of=update-engine` names their source, `want=FILE` a sentinel; or `unreadable TEXT`.
fn system(w: &mut Words) -> Result<Event, String> {
    if w.flag("unreadable") {
        return Ok(Event::SystemUnreadable(w.need("why")?));
    }
    let entry = |text: String, booted, staged| {
        let (identity, place) = match text.split_once('@') {
            Some((identity, place)) => (identity.to_owned(), Some(place.to_owned())),
            None => (text, None),
        };
        let version = (identity != UNKNOWN_VERSION).then(|| identity.clone());
        Deployment { identity, version, place, booted, staged }
    };
    let source = match w.value("of").as_deref() {
        None | Some("rpm-ostree") => Source::RpmOstree,
        Some("update-engine") => Source::UpdateEngine,
        Some(other) => return Err(format!("of: expected an update system, found {other:?}")),
    };
    let want = |file: String| Target {
        source: Source::Sentinel,
        identity: format!("{SENTINEL_PREFIX}{file}"),
        version: Some(format!("packages ({file})")),
    };
    let mut deployments: Vec<Deployment> =
        w.values("staged").into_iter().map(|id| entry(id, false, true)).collect();
    deployments.extend(w.values("first").into_iter().map(|id| entry(id, false, false)));
    deployments.extend(w.value("booted").map(|id| entry(id, true, false)));
    deployments.extend(w.values("then").into_iter().map(|id| entry(id, false, false)));
    let wants = w.values("want").into_iter().map(want).collect();
    Ok(Event::System(SystemView { source, deployments, wants }))
}

fn host(w: &mut Words) -> Result<HostView, String> {
    let inhibitor = |text: String| match text.split_once(':') {
        Some((who, why)) => Ok(Inhibitor { who: who.to_owned(), why: why.to_owned() }),
        None => Err(format!("inhibitor: expected who:why, found {text:?}")),
    };
    Ok(HostView {
        inhibitors: w.values("inhibitor").into_iter().map(inhibitor).collect::<Result<_, _>>()?,
        users: w.values("user"),
        boot_free: match w.value("boot-free-mib") {
            Some(text) => Some(u64::from(number(&text)?) << 20),
            None => None,
        },
        finalize_unit_active: !w.flag("finalize-inactive"),
        legacy_lock: w.flag("legacy-lock"),
        config_wrong: w.value("config-wrong"),
        clock_synchronised: !w.flag("unsynchronised"),
        other_lock_client: w.value("zincati"),
        preparing_for_shutdown: w.flag("preparing"),
        update_withdrawn: w.value("update-engine"),
        other_rebooters: w.values("rebooter"),
        unreadable: w.values("unreadable"),
    })
}

/// `person hold WHY`, `person reboot WHY`, `person cancel`, `person resume`, `person retry`.
fn command(w: &mut Words) -> Result<Command, String> {
    match w.need("hold, reboot, cancel, resume or retry")?.as_str() {
        "reboot" => Ok(Command::Reboot { reason: w.need("why")?, by: "ada".to_owned() }),
        "cancel" => Ok(Command::CancelReboot),
        "hold" => Ok(Command::Hold { reason: w.need("why")?, by: "ada".to_owned() }),
        "resume" => Ok(Command::Resume),
        "retry" => Ok(Command::Retry),
        other => {
            Err(format!("person: expected hold, reboot, cancel, resume or retry, found {other:?}"))
        }
    }
}

fn lane(w: &mut Words) -> Result<Lane, String> {
    one(
        w,
        &[
            ("slot", Lane::Slot),
            ("node", Lane::Node),
            ("drain", Lane::Drain),
            ("reboot", Lane::Reboot),
        ],
    )
}

// === Node and pods ===

fn node(w: &mut Words, boot: u32) -> Result<NodeView, String> {
    let boot = match w.value("boot") {
        Some(text) => number(&text)?,
        None => boot,
    };
    Ok(NodeView {
        uid: NodeUid(w.value("uid").unwrap_or_else(|| "uid-1".to_owned())),
        unschedulable: w.flag("cordoned"),
        mark: w.value("mark"),
        hold: w.value("hold"),
        reboot: w.value("reboot"),
        ready: w.flag("ready"),
        not_ready_because: w.value("because"),
        boot_id: Some(boot_id(boot)),
    })
}

fn trouble(w: &mut Words) -> Result<Option<NodeTrouble>, String> {
    let Some(kind) = w.value("trouble") else { return Ok(None) };
    let say = |text: &str| text.to_owned();
    Ok(Some(match kind.as_str() {
        "no-credential" => NodeTrouble::NoCredential(say("kubelet.conf is missing")),
        "refused" => NodeTrouble::Refused(say("401: the certificate has expired")),
        "forbidden" => NodeTrouble::Forbidden(say("403: may not patch nodes")),
        "missing" => NodeTrouble::Missing(say("404: there is no Node w1")),
        "unreachable" => NodeTrouble::Unreachable(say("the API server does not answer")),
        other => return Err(format!("trouble={other}: there is no such trouble")),
    }))
}

/// Each word that is left is a pod with what holds it: `web-1:budget`.
fn obstacles(w: &mut Words) -> Result<Vec<Obstacle>, String> {
    let says = |text: &str| text.to_owned();
    let mut found = Vec::new();
    while let Some(word) = w.next() {
        let Some((pod, kind)) = word.split_once(':') else {
            return Err(format!("{}: expected pod:obstacle, found {word:?}", w.verb));
        };
        let kind = match kind {
            "budget" => ObstacleKind::Budget {
                budget: Some("web".to_owned()),
                says: says("needs 2 healthy pods and has 2"),
            },
            "two-budgets" => ObstacleKind::SeveralBudgets { says: says("web and all match") },
            "refused" => ObstacleKind::Refused { rule: "unmanaged_pods".to_owned() },
            "forbidden" => ObstacleKind::Forbidden { says: says("may not create evictions") },
            "terminating" => ObstacleKind::Terminating,
            "completing" => ObstacleKind::Completing,
            "present" => ObstacleKind::Present,
            "api" => ObstacleKind::Api { says: says("too many requests") },
            other => return Err(format!("{word}: there is no obstacle {other:?}")),
        };
        found.push(Obstacle { namespace: "default".to_owned(), pod: pod.to_owned(), kind });
    }
    if found.is_empty() {
        return Err(format!("{}: expected a pod and its obstacle, found nothing", w.verb));
    }
    Ok(found)
}

/// `progress 2/5 web-1:budget`.
fn progress(w: &mut Words) -> Result<Progress, String> {
    let counts = w.need("gone/total")?;
    let Some((gone, total)) = counts.split_once('/') else {
        return Err(format!("progress: expected gone/total, found {counts:?}"));
    };
    let count = |text: &str| number(text).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    Ok(Progress {
        gone: count(gone)?,
        total: count(total)?,
        obstacles: obstacles(w)?,
        volumes: Vec::new(),
    })
}

fn drained(w: &mut Words) -> Result<DrainEnd, String> {
    Ok(match w.need("empty, deadline, impossible or stopped")?.as_str() {
        "empty" => DrainEnd::Empty,
        "stopped" => DrainEnd::Stopped,
        "deadline" => {
            let obstacles = obstacles(w)?;
            DrainEnd::DeadlinePassed(Progress { obstacles, ..Progress::default() })
        }
        "impossible" => DrainEnd::Impossible(obstacles(w)?),
        other => return Err(format!("drained: {other:?} is no end of a drain")),
    })
}

fn verified(w: &mut Words) -> Result<Verification, String> {
    if let Some(trouble) = trouble(w)? {
        return Ok(Verification::Failed(trouble));
    }
    Ok(match w.need("good, uncordoned, not-empty or other-node")?.as_str() {
        "good" => Verification::Good,
        "uncordoned" => Verification::Uncordoned,
        "not-empty" => Verification::NotEmpty(obstacles(w)?),
        "other-node" => Verification::OtherNode(NodeUid("uid-2".to_owned())),
        other => return Err(format!("verified: {other:?} is no verdict")),
    })
}

// === Slot ===

fn slot(w: &mut Words) -> Result<SlotAnswer, String> {
    let retry_after = w.duration("retry-after")?;
    Ok(match w.need("granted, denied, pending or failed")?.as_str() {
        "granted" => SlotAnswer::Granted,
        "denied" => {
            let kind = w.next().unwrap_or_else(|| "full".to_owned());
            SlotAnswer::Denied { kind, value: "n2 holds it".to_owned(), retry_after }
        }
        "pending" => SlotAnswer::Pending { value: "draining for you".to_owned(), retry_after },
        "failed" => {
            let answer_lost = w.flag("lost");
            let kind = w.next().unwrap_or_else(|| "timeout".to_owned());
            SlotAnswer::Failed { kind, error: "no answer came".to_owned(), answer_lost }
        }
        other => return Err(format!("slot: {other:?} is no answer")),
    })
}

fn release(w: &mut Words) -> Result<ReleaseAnswer, String> {
    let retry_after = w.duration("retry-after")?;
    Ok(match w.need("ok, by-another or failed")?.as_str() {
        "ok" => ReleaseAnswer::Released,
        "by-another" => ReleaseAnswer::HeldByAnother { value: "n2 holds it".to_owned() },
        "failed" => {
            let kind = w.next().unwrap_or_else(|| "connect".to_owned());
            ReleaseAnswer::Failed { kind, error: "connection refused".to_owned(), retry_after }
        }
        other => return Err(format!("released: expected ok or failed, found {other:?}")),
    })
}
