//! One host, its Node and its agent, and what is true of them.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper::lifecycle::{BootMark, HostView, Lane, NodeView, Record, Stage, State};
use lockkeeper::model::{BootId, Deployment, NodeUid, SystemView};

/// A host.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) group: String,
    /// What is on disk.
    pub(crate) disk: Option<Record>,
    /// The agent, while it runs.
    pub(crate) agent: Option<State>,
    /// Counts the agent's lives, so that what was under way in an earlier one does not reach it.
    pub(crate) life: u64,
    /// What is under way, by its number.
    pub(crate) pending: BTreeMap<Lane, u64>,
    pub(crate) wake: u64,
    pub(crate) disk_full: bool,
    /// Boots so far; 0 while it is off.
    pub(crate) boots: u32,
    pub(crate) on: bool,
    /// When this boot began, milliseconds of the world.
    pub(crate) boot_at: u64,
    /// How far the wall clock is off, seconds.
    pub(crate) wall_off: i64,
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
    pub(crate) pods: bool,
    /// Reboots by attempt.
    pub(crate) reboots: BTreeMap<String, u32>,
    /// A drain of ours runs.
    pub(crate) draining: bool,
    /// Went down by our doing and has not been Ready since.
    pub(crate) down_by_us: bool,
    /// Targets that fell back here, and that nobody has forgiven.
    pub(crate) fell_back: Vec<String>,
    /// A person gave its slot back, since it is dead.
    pub(crate) written_off: bool,
    pub(crate) dead: bool,
    /// What happened to it, for people.
    pub(crate) story: Vec<String>,
}

// === impl Node ===

impl Node {
    pub(crate) fn new(at: usize, group: String) -> Self {
        Self {
            name: format!("n{at}"),
            id: format!("{at:032x}"),
            group,
            disk: None,
            agent: None,
            life: 0,
            pending: BTreeMap::new(),
            wake: 0,
            disk_full: false,
            boots: 1,
            on: true,
            boot_at: 0,
            wall_off: 0,
            booted: "old".to_owned(),
            staged: None,
            written: None,
            finalize_failed: false,
            going_down: false,
            unschedulable: false,
            mark: None,
            person_cordoned: false,
            ready: true,
            pods: true,
            reboots: BTreeMap::new(),
            draining: false,
            down_by_us: false,
            fell_back: Vec::new(),
            written_off: false,
            dead: false,
            story: Vec::new(),
        }
    }

    pub(crate) fn tell(&mut self, clock: u64, text: String) {
        self.story.push(format!("{:>9.3} s  {text}", Duration::from_millis(clock).as_secs_f64()));
        if self.story.len() > 60 {
            self.story.drain(..20);
        }
    }

    pub(crate) fn stage(&self) -> Option<Stage> {
        self.agent.as_ref().map(|agent| agent.record.core.stage)
    }

    pub(crate) fn boot_mark(&self) -> BootMark {
        // Boot ids differ over the whole fleet.
        let tail = &self.id[24..];
        let id = BootId::parse(&format!("{:024x}{tail}", self.boots)).expect("hex digits");
        BootMark { id, soft_reboots: 0 }
    }

    pub(crate) fn node_view(&self) -> NodeView {
        NodeView {
            uid: NodeUid(format!("uid-{}", self.name)),
            unschedulable: self.unschedulable,
            mark: self.mark.clone(),
            hold: None,
            ready: self.ready,
            not_ready_because: None,
            boot_id: self.ready.then(|| self.boot_mark().id),
        }
    }

    pub(crate) fn system(&self) -> SystemView {
        let entry = |identity: &String, booted, staged| Deployment {
            identity: identity.clone(),
            version: None,
            booted,
            staged,
        };
        let mut deployments = Vec::new();
        deployments.extend(self.staged.iter().map(|staged| entry(staged, false, true)));
        deployments.extend(self.written.iter().map(|written| entry(written, false, false)));
        deployments.push(entry(&self.booted, true, false));
        SystemView { deployments }
    }

    pub(crate) fn gates(&self) -> HostView {
        HostView {
            finalize_unit_active: true,
            clock_synchronised: true,
            preparing_for_shutdown: self.going_down,
            ..HostView::default()
        }
    }

    /// The agent's process ends, whatever it was at.
    pub(crate) fn lose_agent(&mut self) {
        self.agent = None;
        self.life += 1;
        self.pending.clear();
        self.draining = false;
    }
}
