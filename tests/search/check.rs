//! What must hold in every world, and where every world must come to rest.

use lockkeeper::lifecycle::{Effect, Lane, Stage, Waiting};

use crate::world::{Broken, CLOCK, Host, Memory, Play, World};

impl World {
    /// Notes what does not hold in this world. What must hold at the moment of an effect is checked there.
    pub(crate) fn check(&mut self, play: &Play) {
        let down = |host: &&Host| host.going_down || (host.down_with_slot && host.ready.is_none());
        if self.hosts.iter().filter(down).count() > 1 {
            self.breaks(play, 2, "two nodes are down at once".to_owned());
        }
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            let drains = matches!(host.pending.get(&Lane::Drain), Some(Effect::Drain { .. }));
            let may_drain = self.holder == Some(at) || host.memory == Memory::Forgot;
            let cordon_lost = host.person_cordoned && !host.unschedulable && !host.lifted_by_server;
            let too_long = self.drains_too_long(play, at);
            if drains && !may_drain && host.memory == Memory::Knows {
                self.breaks(play, 1, format!("n{at} drains without the slot"));
            }
            if cordon_lost {
                self.breaks(play, 3, format!("n{at}: a person's cordon was lifted"));
            }
            if too_long {
                self.breaks(play, 8, format!("n{at} drains past its deadline"));
            }
        }
    }

    /// Whether a drain goes on longer than its deadline, a deletion, and the looks after it.
    fn drains_too_long(&self, play: &Play, at: usize) -> bool {
        let longest = play.policy.drain_deadline + play.policy.delete_timeout * 3;
        let began = self.hosts[at].draining_since;
        began.is_some_and(|began| began + longest < CLOCK)
    }

    /// Whether something is under way that ends what the agent waits for.
    pub(crate) fn is_awaited(&mut self, play: &Play, at: usize, waiting: &Waiting) {
        let host = &self.hosts[at];
        let Some(agent) = &host.agent else { return };
        if !agent.in_flight.iter().eq(host.pending.keys()) {
            let what = format!("n{at} takes {:?} for under way", agent.in_flight);
            return self.breaks(play, 8, what);
        }
        let pending = |lane| host.pending.contains_key(&lane);
        let wakes = host.wake.is_some();
        let comes = match waiting {
            // Told by others, who tell it again when it changes.
            Waiting::NoUpdate
            | Waiting::SystemUnknown(_)
            | Waiting::NoSlotBackend
            | Waiting::OnlyNodeNotConfirmed
            | Waiting::Held { .. }
            | Waiting::TargetDenied { .. }
            | Waiting::AttemptLimit { .. }
            | Waiting::NodeUnknown
            | Waiting::ShuttingDown
            | Waiting::KubeletNotReady(_)
            | Waiting::ZincatiHasNotAsked
            | Waiting::SlotElsewhere { .. }
            | Waiting::Halted { .. } => true,
            Waiting::Node(_) => {
                wakes || !matches!(agent.view.node, Some(Ok(_))) || !host.pending.is_empty()
            }
            Waiting::RecordUnwritable(_) => host.disk_full,
            Waiting::BootUnknown => pending(Lane::Boot),
            Waiting::SlotAsked | Waiting::Confirming | Waiting::ReleasingSlot => {
                wakes || pending(Lane::Slot)
            }
            Waiting::Draining | Waiting::StoppingDrain => wakes || pending(Lane::Drain),
            Waiting::ShutdownPending | Waiting::UndoingReboot => wakes || pending(Lane::Reboot),
            Waiting::HostUnknown => wakes || pending(Lane::Host),
            Waiting::WindowClosed { .. }
            | Waiting::ClockNotSynchronised
            | Waiting::Inhibited(_)
            | Waiting::UsersLoggedIn(_)
            | Waiting::BootFull { .. }
            | Waiting::FinalizeUnitInactive
            | Waiting::LegacyLock
            | Waiting::ConfigWrong(_)
            | Waiting::MinimumUptime
            | Waiting::OtherLockClient(_)
            | Waiting::HostUnreadable(_)
            | Waiting::OtherRebooter(_)
            | Waiting::ZincatiMustAsk
            | Waiting::ZincatiMayReboot
            | Waiting::UpdateWithdrawn(_)
            | Waiting::BackingOff { .. }
            | Waiting::Rehearsing
            | Waiting::DrainWouldBlock(_)
            | Waiting::SlotDenied { .. }
            | Waiting::SlotPending(_)
            | Waiting::SlotFailed { .. }
            | Waiting::Cordoning
            | Waiting::Verifying
            | Waiting::RebootUnresolved(_)
            | Waiting::NotWell(_)
            | Waiting::CheckingHealth
            | Waiting::SettleTime
            | Waiting::Uncordoning
            | Waiting::RestoringCordon => wakes || !host.pending.is_empty(),
        };
        if !comes {
            let what = format!("n{at} waits for nothing: {}", waiting.code());
            self.breaks(play, 8, what);
        }
    }

    /// What is wrong if nothing happens any more, once no fault comes.
    pub(crate) fn at_rest(&self, play: &Play) -> Option<Broken> {
        let broken = |promise, what| Some(Broken { promise, what });
        for (at, host) in self.hosts.iter().enumerate() {
            let halted = host.stage() == Some(Stage::Halted);
            if host.marked && host.unschedulable {
                return broken(4, format!("at rest n{at} stays cordoned"));
            }
            // What the server cordoned stays so for as long as it holds the slot for us.
            let by_server = play.rules.server_cordons && halted && self.holder == Some(at);
            if host.unschedulable && !host.person_cordoned && !by_server {
                return broken(4, format!("at rest n{at} stays cordoned, and nobody said so"));
            }
            if host.person_cordoned && !host.unschedulable {
                return broken(3, format!("at rest n{at} lacks a person's cordon"));
            }
            if self.holder == Some(at) && !halted {
                return broken(4, format!("at rest n{at} keeps the slot"));
            }
            if halted && host.fell_back.is_empty() {
                return broken(4, format!("n{at} halts without a fallback"));
            }
        }
        None
    }
}
