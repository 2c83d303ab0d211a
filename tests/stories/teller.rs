//! Tells a story: a script in, the same script with every verdict out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lockkeeper::lifecycle::{
    self, BootMark, ConfigWrong, Effect, Event, Lane, NodeView, Policy, Record, Start, State, Step,
    Transition,
};
use lockkeeper::model::Now;
use lockkeeper::schedule::duration_text;

use crate::words::{Words, duration, number};
use crate::{events, policy, well};

/// Effects that `well` lets end at most: a whole cycle has about 20.
const WELL_MAX: usize = 60;

/// The heart that is told of: the real one, or one that is broken on purpose.
pub(crate) type Heart = fn(&Policy, &State, Now, Event) -> Step;

/// Words of the heart that a story has shown.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) stages: BTreeSet<&'static str>,
    pub(crate) waitings: BTreeSet<&'static str>,
    pub(crate) becauses: BTreeSet<&'static str>,
    pub(crate) outcomes: BTreeSet<&'static str>,
    pub(crate) effects: BTreeSet<String>,
}

/// One host and its agent, as far as the heart sees them.
pub(crate) struct Teller<'a> {
    heart: Heart,
    shown: &'a mut Shown,
    policy: Policy,
    boot: BootMark,
    boot_number: u32,
    kubelet_unit: bool,
    config_wrong: Option<ConfigWrong>,
    now: Now,
    state: Option<State>,
    /// What was last written.
    disk: Record,
    /// Effects asked for and not answered.
    pending: BTreeMap<Lane, Effect>,
    wake: Option<(Duration, &'static str)>,
    waiting: String,
    /// The Node as it was last told of.
    node: Option<NodeView>,
}

/// Tells a whole story: comments, blank lines and script lines stay, every verdict is told anew.
pub(crate) fn tell(heart: Heart, script: &str, shown: &mut Shown) -> Result<String, String> {
    if !script.starts_with("# ") {
        return Err("line 1: expected a paragraph (# …) that says which promise is told".to_owned());
    }
    let mut teller = Teller::new(heart, shown);
    let mut told = String::new();
    for (index, line) in script.lines().enumerate() {
        let at = |error: String| format!("line {}: {error}", index + 1);
        if let Some(order) = line.strip_prefix("> ") {
            let verdict = teller.obey(order).map_err(|error| {
                let before: Vec<&str> = told.lines().rev().take(6).collect();
                let before: Vec<&str> = before.into_iter().rev().collect();
                at(format!("{order}: {error}\nbefore it:\n{}", before.join("\n")))
            })?;
            let verdict = if verdict.is_empty() { "  nothing changes\n" } else { &verdict };
            let _ = write!(told, "{line}\n{verdict}");
        } else if line.is_empty() || line == "#" || line.starts_with("# ") {
            let _ = writeln!(told, "{line}");
        } else if !line.starts_with("  ") {
            return Err(at(format!("expected \"# \", \"> \" or two blanks, found {line:?}")));
        }
    }
    Ok(told)
}

impl<'a> Teller<'a> {
    fn new(heart: Heart, shown: &'a mut Shown) -> Self {
        let wall = "2026-03-02T10:00:00Z".parse().expect("a time");
        Self {
            heart,
            shown,
            policy: policy::first(),
            boot: BootMark { id: events::boot_id(1), soft_reboots: 0 },
            boot_number: 1,
            kubelet_unit: true,
            config_wrong: None,
            now: Now { wall, since_boot: Duration::from_secs(3600) },
            state: None,
            disk: Record::default(),
            pending: BTreeMap::new(),
            wake: None,
            waiting: String::new(),
            node: None,
        }
    }

    /// One script line.
    fn obey(&mut self, line: &str) -> Result<String, String> {
        let mut words = Words::parse(line)?;
        match words.verb.as_str() {
            "policy" => {
                policy::change(&mut self.policy, words)?;
                if self.state.is_none() {
                    return Ok("  so it begins\n".to_owned());
                }
                self.deliver(Event::PolicyChanged)
            }
            "clock" => {
                self.set_clock(&mut words)?;
                words.finish()?;
                if self.state.is_none() {
                    return Ok("  so it begins\n".to_owned());
                }
                self.deliver(Event::ClockSet)
            }
            "start" | "restart" | "boots" => {
                let set_aside = self.begin(&mut words)?;
                words.finish()?;
                Ok(self.start(set_aside))
            }
            "wait" => {
                let length = duration(&words.need("how long")?)?;
                words.finish()?;
                self.pass(length)
            }
            "wake" => {
                words.finish()?;
                let (at, _) = self.wake.ok_or("wake: the agent asked for no wake")?;
                self.pass(at.saturating_sub(self.now.since_boot))
            }
            "well" => {
                let until =
                    words.flag("until").then(|| words.need("a stage or reason")).transpose()?;
                words.finish()?;
                self.well(&until.ok_or("well: expected until and a stage or reason")?)
            }
            _ => {
                let event = events::event(words, self.boot_number)?;
                self.answered(&event)?;
                self.tick();
                self.deliver(event)
            }
        }
    }

    // === Time and starts ===

    fn set_clock(&mut self, words: &mut Words) -> Result<(), String> {
        if let Some(text) = words.value("wall") {
            let wall: Result<Timestamp, _> = text.parse();
            self.now.wall = wall.map_err(|error| format!("clock: wall={text}: {error}"))?;
        }
        if let Some(up) = words.duration("up")? {
            self.now.since_boot = up;
        }
        Ok(())
    }

    fn pass(&mut self, length: Duration) -> Result<String, String> {
        if let Some((at, reason)) = self.wake {
            let left = at.saturating_sub(self.now.since_boot);
            if length > left {
                let left = duration_text(left);
                return Err(format!("wait: the agent wakes in {left} already: {reason}"));
            }
        }
        self.advance(length);
        self.deliver(Event::Woke)
    }

    /// A second between an event and the one before it, so that "before" and "after" differ.
    fn tick(&mut self) {
        let left = self.wake.map(|(at, _)| at.saturating_sub(self.now.since_boot));
        let second = Duration::from_secs(1);
        self.advance(left.map_or(second, |left| left.min(second)));
    }

    fn advance(&mut self, length: Duration) {
        self.now.since_boot += length;
        self.now.wall += SignedDuration::try_from(length).expect("a story is short");
    }

    /// `start`: the first process, without a record (`known`: with one of this boot); `restart`: the next one in this boot, with
    /// what is on disk; `boots N`: the first one of another boot. `set-aside=WHY` loses the record,
    /// `core-only` leaves what every version keeps.
    fn begin(&mut self, words: &mut Words) -> Result<Option<String>, String> {
        let first = words.verb == "start";
        if first != self.state.is_none() {
            return Err(format!("{}: the agent was started before, or never", words.verb));
        }
        if words.verb == "boots" {
            self.boot_number = number(&words.need("the number of the boot")?)?;
            let soft_reboots = if words.flag("soft") { self.boot.soft_reboots + 1 } else { 0 };
            self.boot = BootMark { id: events::boot_id(self.boot_number), soft_reboots };
            self.advance(Duration::from_secs(90));
            self.now.since_boot = Duration::from_secs(60);
        }
        if words.flag("no-kubelet") {
            self.kubelet_unit = false;
        }
        if words.flag("known") {
            self.disk.core.boot = Some(self.boot.clone());
        }
        self.config_wrong = words
            .value("config-wrong")
            .map(|what| ConfigWrong { what, settle_unknown: words.flag("settle-unknown") });
        if words.flag("core-only") {
            self.disk = Record { core: self.disk.core.clone(), ..Record::default() };
        }
        let set_aside = words.value("set-aside");
        if set_aside.is_some() {
            self.disk = Record::default();
        }
        Ok(set_aside)
    }

    fn start(&mut self, record_set_aside: Option<String>) -> String {
        let start = Start {
            boot: self.boot.clone(),
            kubelet_unit: self.kubelet_unit,
            record_set_aside,
            config_wrong: self.config_wrong.clone(),
            seed: 0,
        };
        self.pending.clear();
        self.wake = None;
        self.waiting.clear();
        let step = lifecycle::start(&self.policy, self.disk.clone(), start, self.now);
        self.carry_out(step)
    }

    /// Everything works, and time passes where the agent wants it to, until this stage or
    /// reason is reached.
    fn well(&mut self, until: &str) -> Result<String, String> {
        let mut told = Vec::new();
        for _ in 0..WELL_MAX {
            let state = self.state.as_ref().ok_or("the agent was not started")?;
            let core = &state.record.core;
            let code = self.waiting.split(' ').next().unwrap_or_default();
            if core.stage.name() == until || code == until {
                let pending = self.pending.values().map(|e| format!("  do: {}", short(e)));
                told.extend(pending);
                told.push(format!("  waits: {}", self.waiting));
                return Ok(told.join("\n") + "\n");
            }
            let first = self.pending.first_key_value().map(|(_, effect)| effect.clone());
            let verdict = match (first, self.wake) {
                (Some(effect), _) => {
                    let event = well::outcome(&effect, self.node.as_ref(), core.cordon);
                    self.answered(&event)?;
                    self.tick();
                    self.deliver(event)?
                }
                (None, Some((at, _))) => self.pass(at.saturating_sub(self.now.since_boot))?,
                (None, None) => return Err(format!("nothing more happens before {until}")),
            };
            told.extend(verdict.lines().filter(|line| line.contains(" -> ")).map(str::to_owned));
        }
        Err(format!("{until} was not reached within {WELL_MAX} effects: {}", told.join("\n")))
    }

    // === Events and steps ===

    fn deliver(&mut self, event: Event) -> Result<String, String> {
        let state = self.state.take().ok_or("the agent was not started")?;
        if let Event::Node(node) | Event::NodeRead(Ok(node)) = &event {
            self.node = Some(node.clone());
        }
        let step = (self.heart)(&self.policy, &state, self.now, event);
        Ok(self.carry_out(step))
    }

    /// An outcome needs its effect: a story must not answer what nobody asked.
    fn answered(&mut self, event: &Event) -> Result<(), String> {
        let (lane, fits): (Lane, fn(&Effect) -> bool) = match event {
            Event::Inspected(_) => (Lane::Host, |e| *e == Effect::Inspect),
            Event::BootRead(_) => (Lane::Boot, |e| *e == Effect::ReadBoot),
            Event::NodeRead(_) => (Lane::Node, |e| *e == Effect::ReadNode),
            Event::Rehearsed(_) => (Lane::Drain, |e| *e == Effect::Rehearse),
            Event::SlotAnswered(_) => (Lane::Slot, |e| matches!(e, Effect::RequestSlot { .. })),
            Event::SlotReleased(_) => (Lane::Slot, |e| *e == Effect::ReleaseSlot),
            Event::Cordoned(_) => (Lane::Node, |e| matches!(e, Effect::Cordon { .. })),
            Event::DrainEnded(_) => (Lane::Drain, |e| matches!(e, Effect::Drain { .. })),
            Event::Verified(_) => (Lane::Drain, |e| matches!(e, Effect::VerifyEmpty { .. })),
            Event::RebootAnswered(_) => (Lane::Reboot, |e| matches!(e, Effect::Reboot { .. })),
            Event::ZincatiAllowed(_) => {
                (Lane::Reboot, |e| matches!(e, Effect::AllowZincati { .. }))
            }
            Event::RebootUndone(_) => (Lane::Reboot, |e| matches!(e, Effect::UndoReboot { .. })),
            Event::HealthChecked(_) => (Lane::Health, |e| *e == Effect::CheckHealth),
            Event::Uncordoned(_) => (Lane::Node, |e| *e == Effect::Uncordon),
            Event::CordonRestored(_) => (Lane::Node, |e| *e == Effect::RestoreCordon),
            Event::NotDone(lane) => (*lane, Effect::needs_record),
            Event::Woke
            | Event::ZincatiWaits(_)
            | Event::ZincatiSteady
            | Event::ClockSet
            | Event::HostChanged
            | Event::System(_)
            | Event::SystemUnreadable(_)
            | Event::Node(_)
            | Event::NodeTrouble(_)
            | Event::HoldFile(_)
            | Event::PreparingForShutdown(_)
            | Event::Person(_)
            | Event::RecordUnwritable(_)
            | Event::RecordWritten
            | Event::PolicyChanged
            | Event::DrainProgress(_) => return Ok(()),
        };
        match self.pending.remove(&lane) {
            Some(effect) if fits(&effect) => Ok(()),
            Some(other) => Err(format!("the agent waits for the end of \"{}\"", short(&other))),
            None => Err("the agent asked for nothing that could end like this".to_owned()),
        }
    }

    /// As the loop does it: the record is written before the effects begin.
    fn carry_out(&mut self, step: Step) -> String {
        let mut told = String::new();
        for transition in &step.transitions {
            self.shown.becauses.insert(transition.because.name());
            self.shown.stages.extend([transition.from.name(), transition.to.name()]);
            self.shown.outcomes.extend(transition.outcome.map(lifecycle::Outcome::name));
            let _ = writeln!(told, "  {}", passage(transition));
        }
        for effect in &step.effects {
            self.shown.effects.insert(word(effect));
            let _ = writeln!(told, "  do: {}", short(effect));
            if *effect != Effect::StopDrain {
                self.pending.insert(effect.lane(), effect.clone());
            }
        }
        self.shown.waitings.insert(step.waiting.code());
        let waiting = format!("{} - {}", step.waiting.code(), step.waiting);
        if waiting != self.waiting {
            let _ = writeln!(told, "  waits: {waiting}");
            self.waiting = waiting;
        }
        let now = self.now.since_boot;
        let wake = step.wake.as_ref().map(|wake| (now + wake.after, wake.reason));
        if wake != self.wake {
            let _ = match &step.wake {
                Some(wake) => {
                    writeln!(told, "  wakes in {}: {}", duration_text(wake.after), wake.reason)
                }
                None => writeln!(told, "  wakes no more"),
            };
            self.wake = wake;
        }
        if step.next.unwritable.is_none() {
            self.disk = step.next.record.clone();
        }
        self.state = Some(step.next);
        told
    }
}

fn passage(transition: &Transition) -> String {
    let Transition { from, to, because, detail, attempt, target, outcome } = transition;
    let mut text = format!("{} -> {} because {}", from.name(), to.name(), because.name());
    if let Some(detail) = detail {
        let _ = write!(text, ": {detail}");
    }
    if let (lifecycle::Stage::Idle, Some(attempt), Some(target)) = (from, attempt, target) {
        let _ = write!(text, " (attempt {attempt}, target {target})");
    }
    if let Some(outcome) = outcome {
        let _ = write!(text, " (the attempt ends: {})", outcome.name());
    }
    text
}

/// The first word of an effect, for the list of what was shown.
fn word(effect: &Effect) -> String {
    short(effect).split(' ').next().unwrap_or_default().to_owned()
}

fn short(effect: &Effect) -> String {
    match effect {
        Effect::Inspect => "inspect".to_owned(),
        Effect::ReadBoot => "read-boot".to_owned(),
        Effect::ReadNode => "read-node".to_owned(),
        Effect::Rehearse => "rehearse".to_owned(),
        Effect::RequestSlot { attempt } => format!("request-slot for {attempt}"),
        Effect::ReleaseSlot => "release-slot".to_owned(),
        Effect::Cordon { attempt, uid } => format!("cordon {} for {attempt}", uid.0),
        Effect::Drain { within, delete, attempt: _ } => {
            let how = if *delete { " and delete" } else { "" };
            format!("drain within {}{how}", duration_text(*within))
        }
        Effect::StopDrain => "stop-drain".to_owned(),
        Effect::VerifyEmpty { uid, pods_may_stay } => {
            let pods = if *pods_may_stay { ", pods may stay" } else { "" };
            format!("verify-empty {}{pods}", uid.0)
        }
        Effect::Reboot { attempt, target } => format!("reboot into {target} for {attempt}"),
        Effect::AllowZincati { attempt } => format!("allow-zincati for {attempt}"),
        Effect::UndoReboot { target } => format!("undo-reboot into {target}"),
        Effect::CheckHealth => "check-health".to_owned(),
        Effect::Uncordon => "uncordon".to_owned(),
        Effect::RestoreCordon => "restore-cordon".to_owned(),
    }
}
