//! One host, its Node and its agent, and what is true of them.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper::lifecycle::{
    BootMark, Effect, HostView, Lane, NodeTrouble, NodeView, Record, Stage, State, Waiting,
};
use lockkeeper::model::{BootId, Deployment, NodeUid, SystemView};

/// What the host runs before its first update.
pub(crate) const OLD: &str = "u0";

/// Lines of the story that are kept.
const STORY: usize = 60;

/// A host.
#[derive(Debug)]
pub(crate) struct Node {
    at: usize,
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) group: String,
    /// The record on disk, as it is written, and what it says.
    pub(crate) disk: Option<(Vec<u8>, Record)>,
    /// What is on disk can no longer be read.
    pub(crate) damaged: bool,
    /// The agent, while it runs.
    pub(crate) agent: Option<State>,
    /// What it says it waits for.
    pub(crate) waiting: Option<Waiting>,
    /// Counts the agent's lives, so that what was under way in an earlier one does not reach it.
    pub(crate) life: u64,
    /// What is under way, by its number.
    pub(crate) pending: BTreeMap<Lane, u64>,
    /// What that is; requests to the slot server are on their own way.
    pub(crate) under_way: BTreeMap<Lane, Effect>,
    /// The number of its last request for the slot.
    pub(crate) asked: u64,
    pub(crate) wake: u64,
    /// A wake is on its way.
    pub(crate) wakes: bool,
    pub(crate) disk_full: bool,
    /// Boots so far.
    pub(crate) boots: u32,
    pub(crate) on: bool,
    /// When this boot began, milliseconds of the world.
    pub(crate) boot_at: u64,
    /// How far the wall clock is off, seconds.
    pub(crate) wall_off: i64,
    pub(crate) unsynchronised: bool,
    pub(crate) booted: String,
    pub(crate) staged: Option<String>,
    /// Written, and not booted: the bootloader fell back.
    pub(crate) written: Option<String>,
    pub(crate) finalize_failed: bool,
    pub(crate) going_down: bool,
    pub(crate) unschedulable: bool,
    pub(crate) mark: Option<String>,
    /// A person cordoned it while it carried no mark of ours; only a person lifts that.
    pub(crate) person_cordoned: bool,
    pub(crate) ready: bool,
    /// Since when it has been Ready, milliseconds of the world.
    pub(crate) ready_at: u64,
    pub(crate) pods: bool,
    /// Reboots by attempt.
    pub(crate) reboots: BTreeMap<String, u32>,
    /// Reboots by target, since somebody or something forgave it.
    pub(crate) tries: BTreeMap<String, u32>,
    /// A drain of ours runs.
    pub(crate) draining: bool,
    /// A drain of ours began, and pods have not been let in again since.
    pub(crate) emptied: bool,
    /// Went down by our doing and has not been Ready since.
    pub(crate) down_by_us: bool,
    /// Went down with its slot held.
    pub(crate) went_down: bool,
    /// Targets that fell back here, and that nobody has forgiven.
    pub(crate) fell_back: Vec<String>,
    /// A person gave its slot back while it was down or in use.
    pub(crate) robbed: bool,
    pub(crate) dead: bool,
    /// What happened to it, for people.
    pub(crate) story: Vec<String>,
    /// Its last line, and how often it came in a row.
    repeated: Option<(u32, String)>,
}

// === impl Node ===

impl Node {
    /// `like`: the machine that it is a clone of, or itself.
    pub(crate) fn new(at: usize, like: usize, group: String) -> Self {
        Self {
            at,
            name: format!("n{at}"),
            id: format!("{like:032x}"),
            group,
            disk: None,
            damaged: false,
            agent: None,
            waiting: None,
            life: 0,
            pending: BTreeMap::new(),
            under_way: BTreeMap::new(),
            asked: 0,
            wake: 0,
            wakes: false,
            disk_full: false,
            boots: 1,
            on: true,
            boot_at: 0,
            wall_off: 0,
            unsynchronised: false,
            booted: OLD.to_owned(),
            staged: None,
            written: None,
            finalize_failed: false,
            going_down: false,
            unschedulable: false,
            mark: None,
            person_cordoned: false,
            ready: true,
            ready_at: 0,
            pods: true,
            reboots: BTreeMap::new(),
            tries: BTreeMap::new(),
            draining: false,
            emptied: false,
            down_by_us: false,
            went_down: false,
            fell_back: Vec::new(),
            robbed: false,
            dead: false,
            story: Vec::new(),
            repeated: None,
        }
    }

    pub(crate) fn tell(&mut self, clock: u64, text: String) {
        let seconds = Duration::from_millis(clock).as_secs_f64();
        if let Some((times, last)) = self.repeated.as_mut().filter(|(_, last)| *last == text) {
            *times += 1;
            let line = format!("{seconds:>9.3} s  {last} (for the {times}th time)");
            self.story.pop();
            return self.story.push(line);
        }
        self.story.push(format!("{seconds:>9.3} s  {text}"));
        self.repeated = Some((1, text));
        if self.story.len() > STORY {
            self.story.drain(..STORY / 3);
        }
    }

    /// Whether it does not serve, by our doing. What a person took the slot of is theirs.
    pub(crate) fn is_down(&self) -> bool {
        (self.emptied || self.down_by_us) && !self.robbed
    }

    pub(crate) fn stage(&self) -> Option<Stage> {
        self.agent.as_ref().map(|agent| agent.record.core.stage)
    }

    pub(crate) fn boot_mark(&self) -> BootMark {
        // Boot ids differ over the whole fleet, also where the machine id does not, and so do their
        // first eight digits, which attempts are named after.
        let id = BootId::parse(&format!("{:04x}{:04x}{:024x}", self.at, self.boots, 0));
        BootMark { id: id.expect("hex digits"), soft_reboots: 0 }
    }

    pub(crate) fn node_view(&self) -> NodeView {
        NodeView {
            uid: NodeUid(format!("uid-{}", self.name)),
            unschedulable: self.unschedulable,
            mark: self.mark.clone(),
            hold: None,
            reboot: None,
            ready: self.ready,
            not_ready_because: None,
            boot_id: self.ready.then(|| self.boot_mark().id),
        }
    }

    pub(crate) fn system(&self) -> SystemView {
        let entry = |identity: &String, booted, staged| Deployment {
            identity: identity.clone(),
            version: None,
            place: None,
            booted,
            staged,
        };
        let mut deployments = Vec::new();
        deployments.extend(self.staged.iter().map(|staged| entry(staged, false, true)));
        deployments.extend(self.written.iter().map(|written| entry(written, false, false)));
        deployments.push(entry(&self.booted, true, false));
        SystemView { deployments, ..SystemView::default() }
    }

    pub(crate) fn gates(&self) -> HostView {
        HostView {
            finalize_unit_active: true,
            clock_synchronised: !self.unsynchronised,
            preparing_for_shutdown: self.going_down,
            ..HostView::default()
        }
    }

    /// The agent's process ends, whatever it was at.
    pub(crate) fn lose_agent(&mut self) {
        self.agent = None;
        self.waiting = None;
        self.life += 1;
        self.pending.clear();
        self.under_way.clear();
        self.draining = false;
    }
}

/// The API server is away.
pub(crate) fn away() -> NodeTrouble {
    NodeTrouble::Unreachable("away".to_owned())
}
