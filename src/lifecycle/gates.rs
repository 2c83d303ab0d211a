//! What must be open before the slot is asked for, and again before the reboot.

use std::time::Duration;

use crate::model::{Source, Target};
use crate::schedule::{Openness, backoff, jittered};

use super::effect::{Effect, Lane};
use super::event::HostView;
use super::heart::Heart;
use super::policy::{OnDeadline, OnUsers, Policy, SlotPolicy};
use super::state::{Rehearsed, State};
use super::waiting::{HoldOrigin, Waiting};

/// How old a look at the host may be when the slot is asked for.
const HOST_FRESH: Duration = Duration::from_secs(60);

/// When update_engine has certainly marked the running partition as good: it does so 45 s after its
/// start, which comes late in a boot.
const MARKED_GOOD: Duration = Duration::from_secs(120);

/// How often a closed gate is looked at again: not every gate tells when it opens.
const CLOSED_RECHECK: Duration = Duration::from_secs(15);

/// How soon a rehearsal that was blocked is held again, at first: most often another node has just
/// been drained and its pods are still coming up. The time doubles up to the policy's.
const BLOCKED_RECHECK: Duration = Duration::from_secs(20);

/// The same while the unit that finalizes is coming up: systemd starts it just after the staging that
/// wakes us.
const UNIT_FRESH: Duration = Duration::from_secs(2);

/// How long that may take before it counts as down.
const UNIT_COMES_UP: Duration = Duration::from_secs(30);

/// A gate that is not open.
#[derive(Debug)]
pub(super) enum Shut {
    /// Not known yet: an effect is finding out.
    Asking(Waiting),
    /// Closed.
    Closed(Waiting),
    /// Closed by a person or the calendar: giving way at once is what they want.
    Strictly(Waiting),
}

impl Shut {
    pub(super) fn reason(self) -> Waiting {
        match self {
            Self::Asking(reason) | Self::Closed(reason) | Self::Strictly(reason) => reason,
        }
    }
}

/// A person's hold, wherever it was set.
pub(super) fn hold(state: &State) -> Option<Waiting> {
    if let Some(hold) = &state.record.hold {
        return Some(Waiting::Held { origin: HoldOrigin::Command, reason: hold.reason.clone() });
    }
    if let Some(reason) = &state.view.hold_file {
        return Some(Waiting::Held { origin: HoldOrigin::File, reason: reason.clone() });
    }
    match &state.view.node {
        Some(Ok(node)) => node
            .hold
            .as_ref()
            .map(|reason| Waiting::Held { origin: HoldOrigin::Annotation, reason: reason.clone() }),
        Some(Err(_)) | None => None,
    }
}

/// The gates that only the host can tell. The first closed one speaks.
pub(super) fn host_gate(
    policy: &Policy,
    host: &HostView,
    target: Option<&Target>,
) -> Option<Waiting> {
    if !host.unreadable.is_empty() {
        return Some(Waiting::HostUnreadable(host.unreadable.clone()));
    }
    if host.preparing_for_shutdown {
        return Some(Waiting::ShuttingDown);
    }
    if let Some(what) = &host.config_wrong {
        return Some(Waiting::ConfigWrong(what.clone()));
    }
    if let Some(server) = &host.other_lock_client {
        return Some(Waiting::OtherLockClient(server.clone()));
    }
    if !host.other_rebooters.is_empty() {
        return Some(Waiting::OtherRebooter(host.other_rebooters.clone()));
    }
    let source = target.map(|target| target.source);
    if source.is_some_and(Source::is_written_by_the_shutdown)
        && let Some(why) = writing_gate(policy, host)
    {
        return Some(why);
    }
    if let (Some(Source::UpdateEngine), Some(says)) = (source, &host.update_withdrawn) {
        return Some(Waiting::UpdateWithdrawn(says.clone()));
    }
    if !policy.windows.is_empty() && !host.clock_synchronised {
        return Some(Waiting::ClockNotSynchronised);
    }
    if !host.inhibitors.is_empty() {
        return Some(Waiting::Inhibited(host.inhibitors.clone()));
    }
    if policy.users == OnUsers::Wait && !host.users.is_empty() {
        return Some(Waiting::UsersLoggedIn(host.users.clone()));
    }
    None
}

/// What an update needs that the shutdown has still to write.
fn writing_gate(policy: &Policy, host: &HostView) -> Option<Waiting> {
    if host.legacy_lock {
        return Some(Waiting::LegacyLock);
    }
    if !host.finalize_unit_active {
        return Some(Waiting::FinalizeUnitInactive);
    }
    let free = host.boot_free.filter(|free| *free < policy.boot_free)?;
    Some(Waiting::BootFull { free, needed: policy.boot_free })
}

impl Heart<'_> {
    /// The gates before the slot is asked for; the cheap ones first, so that a node that is held
    /// or outside its window looks at nothing.
    pub(super) fn gates_before(&mut self) -> Result<(), Shut> {
        let needs = self.policy.drain_deadline.saturating_add(self.policy.reboot_estimate);
        self.standing_gates(needs)?;
        self.bound_wall_times();
        if let Some(until) = self.state.record.backoff_until.filter(|at| *at > self.now.wall) {
            self.wake_at_wall(until, "the back-off ends");
            return Err(Shut::Closed(Waiting::BackingOff { until }));
        }
        if !self.passed(Duration::ZERO, self.minimum_uptime(), "up long enough") {
            return Err(Shut::Closed(Waiting::MinimumUptime));
        }
        if self.is_node() {
            self.node().map_err(|reason| {
                let unseen = reason == Waiting::NodeUnknown;
                if unseen { Shut::Asking(reason) } else { Shut::Closed(reason) }
            })?;
        }
        match self.host_gates() {
            // What stood in the drain's way says more than that the host is looked at again.
            Err(Shut::Asking(reason)) => Err(Shut::Asking(self.drain_stands().unwrap_or(reason))),
            Err(shut) => Err(shut),
            Ok(()) => self.rehearsal_gate(),
        }
    }

    /// The gates that need no look at anything: people, the configuration, the calendar.
    pub(super) fn standing_gates(&mut self, needs: Duration) -> Result<(), Shut> {
        if let Some(held) = hold(&self.state) {
            return Err(Shut::Strictly(held));
        }
        if let Some(wrong) = &self.state.config_wrong {
            return Err(Shut::Strictly(Waiting::ConfigWrong(wrong.what.clone())));
        }
        match self.policy.slot {
            SlotPolicy::Unset => return Err(Shut::Strictly(Waiting::NoSlotBackend)),
            SlotPolicy::None { only_node: false } if self.is_node() => {
                return Err(Shut::Strictly(Waiting::OnlyNodeNotConfirmed));
            }
            SlotPolicy::None { .. } | SlotPolicy::Server => {}
        }
        if let Some(attempt) = &self.state.record.core.attempt {
            let target = &attempt.target;
            if let Some(denial) = self.state.record.denied.get(&target.identity) {
                return Err(Shut::Strictly(Waiting::TargetDenied {
                    target: target.clone(),
                    because: denial.because.clone(),
                }));
            }
            let tries = self.state.record.tries.get(&target.identity).copied().unwrap_or(0);
            if tries >= self.policy.attempt_limit {
                return Err(Shut::Strictly(Waiting::AttemptLimit { tries }));
            }
        }
        if self.state.view.preparing_for_shutdown {
            return Err(Shut::Closed(Waiting::ShuttingDown));
        }
        match self.policy.windows.openness(self.now.wall, needs) {
            Openness::Open { .. } => Ok(()),
            Openness::Closed { opens, too_short } => {
                if let Some(opens) = opens {
                    self.wake_at_wall(opens, "a window opens");
                }
                Err(Shut::Strictly(Waiting::WindowClosed { opens, too_short }))
            }
        }
    }

    /// The host's gates, looked at not longer ago than [`HOST_FRESH`]. One that was closed speaks
    /// until a new look finds it open.
    pub(super) fn host_gates(&mut self) -> Result<(), Shut> {
        let known = self.state.view.host.as_ref();
        let target = self.state.record.core.attempt.as_ref().map(|attempt| &attempt.target);
        let known = known.map(|(host, at)| (host_gate(self.policy, host, target), *at));
        let (closed, stale) = match known {
            Some((closed, at)) => {
                let fresh = self.host_fresh(closed.as_ref());
                let old = self.passed(at, fresh, "look at the host again");
                let looking = self.state.in_flight.contains(&Lane::Host);
                (closed, old || looking || self.state.view.host_changed)
            }
            None => (None, true),
        };
        if stale {
            self.launch(Effect::Inspect);
        }
        match closed {
            Some(reason) => Err(Shut::Closed(reason)),
            None if stale => Err(Shut::Asking(Waiting::HostUnknown)),
            None => Ok(()),
        }
    }

    /// update_engine marks the partition that runs as good some time after its start: a reboot before
    /// that would fall back from it.
    fn minimum_uptime(&self) -> Duration {
        let attempt = self.state.record.core.attempt.as_ref();
        let flips = attempt.is_some_and(|a| a.target.source == Source::UpdateEngine);
        let floor = if flips { MARKED_GOOD } else { Duration::ZERO };
        self.policy.minimum_uptime.max(floor)
    }

    /// How old a look may be, by what it found.
    fn host_fresh(&self, closed: Option<&Waiting>) -> Duration {
        match closed {
            None => HOST_FRESH,
            Some(Waiting::FinalizeUnitInactive) if self.unit_may_come_up() => UNIT_FRESH,
            Some(_) => CLOSED_RECHECK,
        }
    }

    fn unit_may_come_up(&self) -> bool {
        match self.state.waiting_since {
            Some((code, since)) if code == Waiting::FinalizeUnitInactive.code() => {
                let down = Duration::try_from(self.now.wall.duration_since(since));
                down.is_ok_and(|down| down < UNIT_COMES_UP)
            }
            Some(_) | None => true,
        }
    }

    /// The rehearsal: held where there are pods, good for a while, then held again.
    fn rehearsal_gate(&mut self) -> Result<(), Shut> {
        if !self.is_node() {
            return Ok(());
        }
        let every = self.policy.rehearsal_every;
        let known = self.state.view.rehearsal.clone();
        let due = match &known {
            // It rests by its lane, so that a server that is back is asked soon.
            Some((Rehearsed::Failed(_), _)) => true,
            Some((Rehearsed::Passes, at)) => self.passed(*at, every, "rehearse again"),
            Some((Rehearsed::Blocked(_), at)) if self.budgets_only_inform() => {
                self.passed(*at, every, "rehearse again")
            }
            Some((Rehearsed::Blocked(_), at)) => {
                let before = self.state.view.blocked_rehearsals.saturating_sub(1);
                let base = backoff(BLOCKED_RECHECK, every, before);
                let rest = jittered(base, self.state.seed, at.as_secs());
                self.passed(*at, rest, "rehearse again")
            }
            None => true,
        };
        if due {
            self.launch(Effect::Rehearse);
        }
        match known {
            Some((Rehearsed::Passes, _)) if !due => Ok(()),
            Some((Rehearsed::Blocked(_), _)) if self.budgets_only_inform() && !due => Ok(()),
            Some((Rehearsed::Blocked(obstacles), _)) => {
                Err(Shut::Closed(Waiting::DrainWouldBlock(obstacles)))
            }
            Some((Rehearsed::Failed(trouble), _)) => Err(Shut::Closed(Waiting::Node(trouble))),
            Some((Rehearsed::Passes, _)) | None => Err(Shut::Asking(Waiting::Rehearsing)),
        }
    }

    /// What the last rehearsal found in the way of a drain.
    fn drain_stands(&self) -> Option<Waiting> {
        match &self.state.view.rehearsal {
            Some((Rehearsed::Blocked(_), _)) if self.budgets_only_inform() => None,
            Some((Rehearsed::Blocked(obstacles), _)) => {
                Some(Waiting::DrainWouldBlock(obstacles.clone()))
            }
            Some((Rehearsed::Failed(trouble), _)) => Some(Waiting::Node(trouble.clone())),
            Some((Rehearsed::Passes, _)) | None => None,
        }
    }

    /// Under the policies that end a drain by force, a budget that refuses only informs. What the
    /// configuration refuses and what the agent has no right to is never forced.
    fn budgets_only_inform(&self) -> bool {
        use crate::drain::ObstacleKind;
        let forced = match self.policy.on_deadline {
            OnDeadline::Yield => false,
            OnDeadline::Delete | OnDeadline::Reboot => true,
        };
        forced
            && match &self.state.view.rehearsal {
                Some((Rehearsed::Blocked(obstacles), _)) => {
                    obstacles.iter().all(|obstacle| match obstacle.kind {
                        ObstacleKind::Budget { .. }
                        | ObstacleKind::SeveralBudgets { .. }
                        | ObstacleKind::Terminating
                        | ObstacleKind::Completing
                        | ObstacleKind::Present
                        | ObstacleKind::Api { .. } => true,
                        ObstacleKind::Refused { .. } | ObstacleKind::Forbidden { .. } => false,
                    })
                }
                Some((Rehearsed::Passes | Rehearsed::Failed(_), _)) | None => true,
            }
    }
}
