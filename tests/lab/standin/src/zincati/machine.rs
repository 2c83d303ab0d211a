//! Zincati's state machine: one tick after another, and how long it rests between two.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use anyhow::Result;

use super::client::{Client, LockError};
use super::config::Config;

/// How often users that are logged in put the reboot off, a minute each time.
const POSTPONEMENTS: u8 = 10;

/// The whole of a request, answer included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// What can go wrong with Zincati itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fault {
    /// rpm-ostree refuses to finalize.
    FinalizeFails,
    /// It is killed between the grant and the finalization.
    KilledAfterGrant,
    /// Two of it ask at the same time.
    TwoAtOnce,
}

/// The host as Zincati asks it.
pub(crate) trait Host {
    /// What `finalize-deployment` is to be told for the update that lies staged, if one does.
    async fn staged(&mut self) -> Result<Option<String>, String>;
    /// Whether somebody is logged in on a terminal.
    async fn has_users(&mut self) -> bool;
    /// Finalizes and reboots.
    async fn finalize(&mut self, release: &str) -> Result<(), String>;
}

/// Where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// It has just been started.
    Start,
    /// It has to report steady-state.
    Initialized,
    /// Steady-state was taken.
    ReportedSteady,
    /// There was no update at the last look.
    NoNewUpdate,
    /// An update waits for its reboot, which can be put off so many times.
    UpdateStaged(String, u8),
    /// The reboot was asked for.
    UpdateFinalized(String),
    /// Nothing more happens.
    End,
}

/// One process of Zincati.
pub(crate) struct Machine<H> {
    config: Config,
    client: Option<Client>,
    host: H,
    state: State,
    /// How many times faster than the real one it is.
    speed: f64,
    faults: Vec<Fault>,
    tell: Box<dyn FnMut(&str) + Send>,
}

/// It was killed, by its own fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Killed;

impl<H: Host> Machine<H> {
    /// A fresh process. `tell` hears of each state and of each answer.
    pub(crate) fn new(
        config: Config,
        host: H,
        speed: f64,
        faults: &[Fault],
        tell: impl FnMut(&str) + Send + 'static,
    ) -> Result<Self> {
        let client = Client::new(&config, REQUEST_TIMEOUT.div_f64(speed))?;
        let (state, faults, tell) = (State::Start, faults.to_vec(), Box::new(tell));
        Ok(Self { config, client, host, state, speed, faults, tell })
    }

    /// Runs until it is killed.
    pub(crate) async fn run(&mut self) -> Killed {
        loop {
            let before = self.state.clone();
            if let Err(killed) = self.tick().await {
                return killed;
            }
            let changed = before.word() != self.state.word();
            if changed {
                (self.tell)(&format!("state: {}", self.state.word()));
            }
            let looked = (&before, &self.state);
            let at_once = changed && looked != (&State::ReportedSteady, &State::NoNewUpdate);
            if !at_once {
                let rest = rest(&self.state, self.config.steady_interval, jitter());
                tokio::time::sleep(rest.div_f64(self.speed)).await;
            }
        }
    }

    async fn tick(&mut self) -> Result<(), Killed> {
        let next = match &self.state {
            State::Start if self.config.enabled => Some(State::Initialized),
            State::Start | State::UpdateFinalized(_) => Some(State::End),
            State::Initialized => self.reports_steady().await.then_some(State::ReportedSteady),
            State::ReportedSteady | State::NoNewUpdate => match self.host.staged().await {
                Ok(Some(release)) => Some(State::UpdateStaged(release, POSTPONEMENTS)),
                Ok(None) => Some(State::NoNewUpdate),
                Err(error) => {
                    (self.tell)(&format!("failed to look for an update: {error}"));
                    Some(State::NoNewUpdate)
                }
            },
            State::UpdateStaged(release, left) => {
                let (release, left) = (release.clone(), *left);
                Some(self.finalize(release, left).await?)
            }
            State::End => None,
        };
        self.state = next.unwrap_or(self.state.clone());
        Ok(())
    }

    async fn reports_steady(&mut self) -> bool {
        let Some(client) = &self.client else { return true };
        let answer = client.steady_state().await;
        self.told("steady-state", &answer)
    }

    /// The slot comes first, and at each tick; then those who are logged in.
    async fn finalize(&mut self, release: String, left: u8) -> Result<State, Killed> {
        if !self.can_finalize().await {
            return Ok(State::UpdateStaged(release, POSTPONEMENTS));
        }
        if self.faults.contains(&Fault::KilledAfterGrant) {
            return Err(Killed);
        }
        if left > 0 && self.host.has_users().await {
            (self.tell)("interactive sessions detected, postponing");
            return Ok(State::UpdateStaged(release, left - 1));
        }
        let finalized = if self.faults.contains(&Fault::FinalizeFails) {
            Err("error: Staged deployment already unlocked".to_owned())
        } else {
            self.host.finalize(&release).await
        };
        Ok(match finalized {
            Ok(()) => State::UpdateFinalized(release),
            Err(error) => {
                (self.tell)(&format!("failed to finalize deployment: {error}"));
                State::UpdateStaged(release, left)
            }
        })
    }

    async fn can_finalize(&mut self) -> bool {
        let Some(client) = &self.client else { return true };
        if !self.faults.contains(&Fault::TwoAtOnce) {
            let answer = client.pre_reboot().await;
            return self.told("pre-reboot", &answer);
        }
        let (one, other) = tokio::join!(client.pre_reboot(), client.pre_reboot());
        self.told("pre-reboot of the other", &other);
        self.told("pre-reboot", &one)
    }

    fn told(&mut self, api: &str, answer: &Result<(), LockError>) -> bool {
        match answer {
            Ok(()) => (self.tell)(&format!("{api}: granted")),
            Err(error) => (self.tell)(&format!("{api}: {}: {error}", error.kind())),
        }
        answer.is_ok()
    }
}

impl<H> fmt::Debug for Machine<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({:?})", self.state)
    }
}

/// 0 to 10.
fn jitter() -> u64 {
    RandomState::new().hash_one(()) % 11
}

/// How long it rests in a state that did not change. There is no back-off, and no Retry-After.
pub(crate) fn rest(state: &State, steady_interval: u64, jitter: u64) -> Duration {
    let secs = match state {
        State::UpdateStaged(_, left) if *left < POSTPONEMENTS => return Duration::from_secs(60),
        State::ReportedSteady | State::NoNewUpdate => steady_interval,
        State::End => 10_800,
        State::Start | State::Initialized | State::UpdateStaged(..) | State::UpdateFinalized(_) => {
            300
        }
    };
    Duration::from_secs(secs + jitter * (secs / 100).max(1))
}

impl State {
    /// Zincati's name for it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Start => "StartState",
            Self::Initialized => "Initialized",
            Self::ReportedSteady => "ReportedSteady",
            Self::NoNewUpdate => "NoNewUpdate",
            Self::UpdateStaged(..) => "UpdateStaged",
            Self::UpdateFinalized(_) => "UpdateFinalized",
            Self::End => "EndState",
        }
    }
}
