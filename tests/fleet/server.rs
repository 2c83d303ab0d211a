//! The slot server: what comes over the wire is read, decided and answered by the real code, over a
//! store that survives.

use lockkeeper::coordinator::slots::{Ask, Claim, Decision, GroupPolicy, Holder, Policies, Slots};
use lockkeeper::fleetlock::{ErrorKind, Operation, RemoteError, parse_request};

use crate::broken::Broken;
use crate::profile::Profile;

/// A request on its way: path, headers and body.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) operation: Operation,
    pub(crate) attempt: Option<String>,
    pub(crate) boot: String,
    pub(crate) node: String,
    pub(crate) body: Vec<u8>,
}

/// An answer on its way.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// The coordinator.
#[derive(Debug)]
pub(crate) struct Server {
    policies: Policies,
    /// What is on disk: an answer goes out only after it is there.
    pub(crate) kept: Slots,
    /// What was on disk before the last change.
    before: Slots,
    /// Until when it is down, milliseconds of the world.
    pub(crate) down_until: u64,
    broken: Broken,
}

// === impl Server ===

impl Server {
    pub(crate) fn new(profile: &Profile, broken: Broken) -> Self {
        let groups = profile.slots.iter().enumerate();
        let policies = groups.map(|(n, slots)| (group(n), GroupPolicy { slots: *slots })).collect();
        let (kept, before) = (Slots::default(), Slots::default());
        Self { policies, kept, before, down_until: 0, broken }
    }

    /// Decides and writes.
    pub(crate) fn decide(&mut self, ask: &Ask, now: jiff::Timestamp) -> Decision {
        let before = self.kept.clone();
        let (decision, changed) = self.kept.decide(&self.policies, ask, now);
        if changed {
            self.before = before;
        }
        decision
    }

    /// Killed and started again: what it keeps is what it wrote, as it reads it.
    pub(crate) fn crash(&mut self, until: u64) {
        self.down_until = until;
        let text = serde_json::to_vec(&self.kept).expect("JSON");
        self.kept = serde_json::from_slice(&text).expect("as it was written");
        self.kept.check().expect("no id twice");
        if self.broken == Broken::ServerForgets {
            self.kept = Slots::default();
        } else if self.broken == Broken::ServerAnswersBeforeItWrites {
            self.kept = self.before.clone();
        } else if self.broken == Broken::ServerGrantsOneMore {
            self.policies.values_mut().for_each(|policy| policy.slots += 1);
        }
    }

    /// Who holds a slot of this group.
    pub(crate) fn holders(&self, group: &str) -> Vec<Holder> {
        self.kept.groups.get(group).map(|group| group.holders.clone()).unwrap_or_default()
    }

    /// Who holds a slot under this id.
    pub(crate) fn holder(&self, group: &str, id: &str) -> Option<&Holder> {
        self.kept.groups.get(group)?.holders.iter().find(|holder| holder.id == id)
    }

    /// A person frees the slot of this id.
    pub(crate) fn free(&mut self, group: &str, id: &str) {
        if let Some(group) = self.kept.groups.get_mut(group) {
            group.holders.retain(|holder| holder.id != id);
        }
    }
}

/// Reads a request, as the server does.
pub(crate) fn read(message: &Message) -> Ask {
    let Message { operation, attempt, boot, node, body } = message;
    let claim = Claim::read(attempt.as_deref(), Some(boot), Some(node)).expect("our own headers");
    let params = parse_request(body).expect("our own request");
    Ask { group: params.group, id: params.id, operation: *operation, claim }
}

/// The answer to a decision, as the server gives it.
pub(crate) fn answer(decision: &Decision, retry_after: u64) -> Answer {
    match decision {
        Decision::Granted { .. }
        | Decision::Released { .. }
        | Decision::NotHeld
        | Decision::NotTheirs { .. } => {
            Answer { status: 200, retry_after: None, body: body(word(decision)) }
        }
        Decision::Full { .. } => refusal(ErrorKind::SemaphoreFull, Some(retry_after)),
        Decision::OtherAttempt { .. } => refusal(ErrorKind::HeldByOtherAttempt, Some(retry_after)),
        Decision::UnknownGroup => refusal(ErrorKind::UnknownGroup, None),
    }
}

/// A refusal of the server.
pub(crate) fn refusal(kind: ErrorKind, retry_after: Option<u64>) -> Answer {
    let retry_after = retry_after.map(|seconds| seconds.to_string());
    Answer { status: kind.status(), retry_after, body: body(kind.word()) }
}

fn body(kind: &str) -> Vec<u8> {
    let error = RemoteError { kind: kind.to_owned(), value: "as decided".to_owned() };
    serde_json::to_vec(&error).expect("JSON")
}

/// The word for a decision.
pub(crate) fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Granted { .. } => "granted",
        Decision::Full { .. } => "full",
        Decision::OtherAttempt { .. } => "other attempt",
        Decision::Released { .. } => "released",
        Decision::NotHeld => "not held",
        Decision::NotTheirs { .. } => "not theirs",
        Decision::UnknownGroup => "unknown group",
    }
}

/// The name of group number n.
pub(crate) fn group(n: usize) -> String {
    format!("g{n}")
}
