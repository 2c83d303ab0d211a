//! The normal form of a world. Two worlds with the same one go the same ways, and are searched once.
//!
//! - Time: the clocks stand still and what is remembered becomes older. The heart compares times of one
//!   clock with each other and with lengths of its configuration; it sees no difference. Only the amount of
//!   some jitter is drawn from the time itself: here it is that of one moment, and no promise speaks of it.
//!   What is older than any length that it is compared with is just old.
//! - A request whose answer was lost: whether it may still be granted counts, not for how long. That it has
//!   ended can happen at any time (`moves.rs`), which is more than can happen to a real one.
//! - Names: the boot that runs is always the ninth, and the attempt under way the first; the heart only asks
//!   whether two names are the same. A node that has booted its update and forgotten the attempt runs the old
//!   system again, so that a world that went round is the world before: cycles without end are searched.
//! - What is kept only to be told is dropped: history, stages gone by but for the two that are asked about,
//!   progress, details, what stood in the way. No line of the heart decides by them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lockkeeper::lifecycle::{
    Attempt, BootMark, Cordon, Effect, Policy, Record, Run, Slot, Stage, StageTime, State,
};
use lockkeeper::model::AttemptId;

use crate::rules::Kind;
use crate::world::{CLOCK, Host, Play, World, boot_mark, wall};

/// From so many attempts given up in a row the back-off is as long as it can be.
const YIELDS_MAX: u32 = 5;

/// From so many failures in a row an effect rests as long as it can.
const FAILURES_MAX: u32 = 6;

/// Older than any look at the host is good for.
const HOST_OLD: Duration = Duration::from_secs(60);

/// Older than any rehearsal is good for, its jitter included.
const REHEARSAL_OLD: Duration = Duration::from_secs(750);

impl World {
    /// Time passes.
    pub(crate) fn pass(&mut self, by: Duration) {
        for host in &mut self.hosts {
            host.age(by);
        }
    }

    /// Brings the world into its normal form.
    pub(crate) fn normalise(&mut self, play: &Play) {
        for host in &mut self.hosts {
            host.normalise(play);
        }
    }
}

impl Host {
    fn age(&mut self, by: Duration) {
        let earlier = |at: Duration| at.saturating_sub(by);
        self.ready = self.ready.map(earlier);
        self.wake = self.wake.map(|wake| earlier(wake).max(CLOCK));
        self.draining_since = self.draining_since.map(earlier);
        self.late_grant = self.late_grant.map(earlier).filter(|until| *until > CLOCK);
        let snapshot = self.snapshot.as_mut().map(|(record, _)| record);
        for record in self.disk.iter_mut().chain(snapshot) {
            age_record(record, by);
        }
        let Some(agent) = &mut self.agent else { return };
        age_record(&mut agent.record, by);
        let (view, run) = (&mut agent.view, &mut agent.run);
        if let Some((_, at)) = &mut view.host {
            *at = earlier(*at);
        }
        if let Some((_, at)) = &mut view.rehearsal {
            *at = earlier(*at);
        }
        view.lost_request_ends = view.lost_request_ends.map(earlier);
        view.zincati.asked = view.zincati.asked.map(earlier);
        run.began = earlier(run.began);
        run.drained_at = earlier(run.drained_at);
        run.confirmed = run.confirmed.map(earlier);
        run.reboot_answered = run.reboot_answered.map(earlier);
        run.well_since = run.well_since.map(earlier);
        run.checked = run.checked.map(earlier);
        for at in agent.not_before.values_mut() {
            *at = earlier(*at);
        }
    }

    fn normalise(&mut self, play: &Play) {
        // Older than the settle time: no promise asks by how much.
        let settled = CLOCK.saturating_sub(play.policy.settle_time);
        self.ready = self.ready.map(|since| if since <= settled { Duration::ZERO } else { since });
        if self.disk.is_some()
            && self.disk.as_ref() == self.agent.as_ref().map(|agent| &agent.record)
        {
            self.disk = None;
        }
        self.lose_count(play);
        let jumps = (play.rules.may(Kind::ClockAhead) || play.rules.may(Kind::ClockBack))
            && self.faults > 0;
        if let Some(agent) = &mut self.agent {
            shorten(agent, &play.policy);
            shorten_record(&mut agent.record, jumps);
        }
        if let Some(record) = &mut self.disk {
            shorten_record(record, jumps);
        }
        if self.faults == 0 {
            // Nothing can come of these without a fault.
            self.snapshot = None;
            self.late_grant = None;
        }
        if let Some((record, _)) = &mut self.snapshot {
            shorten_record(record, jumps);
        }
        let can_be_lost = play.rules.may(Kind::RecordLost) && self.faults > 0;
        if !can_be_lost {
            self.rename_attempt();
        }
        self.begin_anew();
    }

    /// When a request that was lost ends at the latest, as the agent knows it.
    pub(crate) fn lost_request_ends(&self) -> Option<Duration> {
        let by_wall = |record: &Record| {
            let left = record.release_again?.duration_since(wall());
            Some(CLOCK + Duration::try_from(left).ok().filter(|left| !left.is_zero())?)
        };
        match &self.agent {
            Some(agent) => agent.view.lost_request_ends.or_else(|| by_wall(&agent.record)),
            None => self.disk.as_ref().and_then(by_wall),
        }
        .filter(|ends| *ends > CLOCK)
    }

    /// What is left of the time of a lost request is as much as can be.
    fn lose_count(&mut self, play: &Play) {
        let full = play.policy.answer_timeout;
        if self.wake.is_some() && self.wake == self.lost_request_ends() {
            self.wake = Some(CLOCK + full);
        }
        self.set_lost_request(full);
    }

    /// Sets how long a lost request may still take.
    pub(crate) fn set_lost_request(&mut self, left: Duration) {
        let by_wall = wall() + SignedDuration::try_from(left).expect("short");
        self.late_grant = self.late_grant.map(|_| CLOCK + left).filter(|ends| *ends > CLOCK);
        if let Some(agent) = &mut self.agent {
            let ends = &mut agent.view.lost_request_ends;
            *ends = ends.map(|ends| if ends > CLOCK { CLOCK + left } else { CLOCK });
        }
        let snapshot = self.snapshot.as_mut().map(|(record, _)| record);
        let agent = self.agent.as_mut().map(|agent| &mut agent.record);
        for record in self.disk.iter_mut().chain(snapshot).chain(agent) {
            let again = &mut record.release_again;
            *again = again.map(|at| if at > wall() { by_wall } else { at });
        }
    }

    /// The one record that there is, if there is but one.
    fn only_record(&mut self) -> Option<&mut Record> {
        match (&mut self.agent, &mut self.disk, &self.snapshot) {
            (Some(agent), None, None) => Some(&mut agent.record),
            (None, Some(record), None) => Some(record),
            _ => None,
        }
    }

    /// The attempt under way is the first. Older ones cannot come again: an id is made of the boot and a
    /// number that only grows.
    fn rename_attempt(&mut self) {
        let Some(record) = self.only_record() else { return };
        let Some(attempt) = &mut record.core.attempt else {
            record.attempts = 0;
            self.reboots.clear();
            return;
        };
        let count = record.attempts;
        let before = attempt.id.clone();
        let (boot, _) = parts(&before);
        let id = AttemptId::new(&boot_mark(boot).id, 1);
        record.attempts = 1;
        attempt.id = id.clone();
        if count == 1 && self.reboots.len() <= 1 {
            return;
        }
        let asked = self.reboots.get(before.as_str()).copied();
        self.reboots.clear();
        self.reboots.extend(asked.map(|asked| (id.as_str().to_owned(), asked)));
        for effect in self.pending.values_mut() {
            match effect {
                Effect::RequestSlot { attempt }
                | Effect::Cordon { attempt, .. }
                | Effect::Drain { attempt, .. }
                | Effect::Reboot { attempt, .. } => {
                    if *attempt == before {
                        *attempt = id.clone();
                    }
                }
                Effect::Inspect
                | Effect::ReadBoot
                | Effect::ReadNode
                | Effect::Rehearse
                | Effect::ReleaseSlot
                | Effect::StopDrain
                | Effect::VerifyEmpty { .. }
                | Effect::AllowZincati { .. }
                | Effect::UndoReboot { .. }
                | Effect::CheckHealth
                | Effect::Uncordon
                | Effect::RestoreCordon => {}
            }
        }
    }

    /// A node that has its update and no attempt is a node before its next update.
    fn begin_anew(&mut self) {
        let fresh = |record: &Record| {
            record.core.attempt.is_none() && record.tries.is_empty() && record.denied.is_empty()
        };
        if self.booted == "old" || self.staged.is_some() || self.written.is_some() {
            return;
        }
        if self.snapshot.is_some() || !self.fell_back.is_empty() || !self.tries.is_empty() {
            return;
        }
        let records = self.disk.iter().chain(self.agent.iter().map(|agent| &agent.record));
        let mut records = records.peekable();
        if records.peek().is_none() || !records.all(fresh) {
            return;
        }
        let system = self.system();
        let view = self.agent.as_ref().and_then(|agent| agent.view.system.as_ref());
        if view.is_some_and(|view| *view != system) {
            return;
        }
        self.booted = "old";
        let system = self.system();
        if let Some(view) = self.agent.as_mut().and_then(|agent| agent.view.system.as_mut()) {
            *view = system;
        }
    }

    /// Another boot runs: those before it move down by one, and the ids of their attempts with them.
    pub(crate) fn rename_boots(&mut self) {
        let mut kept = Vec::new();
        let snapshot = self.snapshot.as_mut().map(|(record, _)| record);
        for record in self.disk.iter_mut().chain(snapshot) {
            move_down(&mut record.core.boot);
            let Some(attempt) = &mut record.core.attempt else { continue };
            let before = attempt.id.clone();
            rename(attempt);
            kept.push((before, attempt.id.clone()));
        }
        let asked = std::mem::take(&mut self.reboots);
        for (before, id) in kept {
            let count = asked.get(before.as_str()).copied();
            self.reboots.extend(count.map(|count| (id.as_str().to_owned(), count)));
        }
        // No id of this boot was given yet.
        if self.snapshot.is_none()
            && let Some(record) = &mut self.disk
        {
            record.attempts = 0;
        }
    }
}

fn rename(attempt: &mut Attempt) {
    let (boot, ordinal) = parts(&attempt.id);
    attempt.id = AttemptId::new(&boot_mark(boot.saturating_sub(1).max(1)).id, ordinal);
    move_down(&mut attempt.boot_before);
}

fn move_down(mark: &mut Option<BootMark>) {
    if let Some(mark) = mark {
        let digits = &mark.id.as_str()[..8];
        let number = u8::from_str_radix(digits, 16).expect("a boot of ours");
        *mark = boot_mark(number.saturating_sub(1).max(1));
    }
}

/// The boot and the number that an id is made of.
fn parts(id: &AttemptId) -> (u8, u32) {
    let (boot, ordinal) = id.as_str().split_once('-').expect("an id of the heart");
    (u8::from_str_radix(boot, 16).expect("a boot of ours"), ordinal.parse().expect("a number"))
}

fn age_record(record: &mut Record, by: Duration) {
    let by_wall = SignedDuration::try_from(by).expect("short");
    shift_wall(record, -by_wall);
    record.drain_began = record.drain_began.map(|began| began.saturating_sub(by.as_secs()));
}

/// The wall times of a record, seen from a clock that was set, or later.
pub(crate) fn shift_wall(record: &mut Record, by: SignedDuration) {
    let shift = |at: Timestamp| at.checked_add(by).unwrap_or(Timestamp::MIN);
    record.backoff_until = record.backoff_until.map(shift);
    record.release_again = record.release_again.map(shift);
}

fn shorten_record(record: &mut Record, jumps: bool) {
    record.history.clear();
    record.ending_detail = None;
    record.yields = record.yields.min(YIELDS_MAX);
    let owed = record.core.cordon == Cordon::Foreign;
    let asked_about = |stage| match stage {
        Stage::Requesting => true,
        // Only beside a person's cordon.
        Stage::Releasing => owed,
        _ => false,
    };
    let mut stages: Vec<Stage> = record.stages.iter().map(|time| time.stage).collect();
    stages.retain(|stage| asked_about(*stage));
    stages.sort_unstable();
    stages.dedup();
    record.stages = stages.into_iter().map(|stage| StageTime { stage, since: wall() }).collect();
    if let Slot::Held { since } = &mut record.core.slot {
        *since = wall();
    }
    for denial in record.denied.values_mut() {
        denial.since = wall();
    }
    if !jumps {
        // A back-off that has ended is none; a release that is due is due.
        record.backoff_until = record.backoff_until.filter(|until| *until > wall());
        record.release_again = record.release_again.map(|at| at.max(wall()));
    }
    if record.core.stage != Stage::Draining {
        record.drain_began = None;
    }
}

/// How long the heart takes Zincati for wanting its update.
const WANTS_IT: Duration = Duration::from_secs(12 * 60);

fn shorten(agent: &mut State, policy: &Policy) {
    let stage = agent.record.core.stage;
    agent.waiting_since = None;
    let (view, run) = (&mut agent.view, &mut agent.run);
    view.progress = None;
    view.lost_request_ends = view.lost_request_ends.map(|ends| ends.max(CLOCK));
    view.zincati.asked =
        view.zincati.asked.map(|at| if at + WANTS_IT <= CLOCK { Duration::ZERO } else { at });
    run.node_trouble = None;
    run.release_trouble = None;
    if stage != Stage::Settling || run.began + policy.settle_deadline <= CLOCK {
        run.began = Duration::ZERO;
    }
    shorten_settling(run, policy);
    if !run.drained {
        run.drained_at = Duration::ZERO;
    }
    let old = |at: &mut Duration, age: Duration| {
        if *at < CLOCK.saturating_sub(age) {
            *at = Duration::ZERO;
        }
    };
    if !run.drained
        && let Some((_, at)) = &mut view.host
    {
        old(at, HOST_OLD);
    }
    if let Some((_, at)) = &mut view.rehearsal {
        old(at, REHEARSAL_OLD);
    }
    agent.not_before.retain(|_, at| *at > CLOCK);
    for failures in agent.failures.values_mut() {
        *failures = FAILURES_MAX.min(*failures);
    }
}

/// How long the node has been well matters up to the settle time, and whether units and checks were looked
/// at since then, and how long ago up to the time of the next look.
fn shorten_settling(run: &mut Run, policy: &Policy) {
    let Some(since) = run.well_since else { return };
    let long = policy.settle_time + policy.check_every + policy.check_every;
    if since + long >= CLOCK {
        return;
    }
    let proved = since + policy.settle_time;
    run.well_since = Some(CLOCK.saturating_sub(long));
    let shortened = CLOCK.saturating_sub(policy.check_every + policy.check_every);
    run.checked = run.checked.map(|checked| match checked < proved {
        true => Duration::ZERO,
        false => checked.max(shortened),
    });
}
