//! What an answer changes: the pod that was asked, its budget, and how the server is treated.

use std::time::Duration;

use super::{Answer, Budget, BudgetKey, Entry, How, Limits, Queue, State};
use crate::drain::pace::{Jitter, Pace};
use crate::drain::progress::ObstacleKind;

/// How often a missing right must be told before it is believed, and how long apart. An API server
/// that has just started refuses what it will allow a moment later.
const FORBIDDEN_TIMES: u32 = 3;
const FORBIDDEN_AGAIN: Duration = Duration::from_secs(2);

/// A pod with two budgets waits for a person.
const SEVERAL_BUDGETS_AGAIN: Duration = Duration::from_secs(30);

impl Queue {
    /// The answer to a request for this pod.
    pub fn answered(&mut self, uid: &str, answer: &Answer, now: Duration) {
        self.in_flight.remove(uid);
        self.note_server(answer, now);
        if matches!(answer, Answer::Gone | Answer::Elsewhere) {
            self.told_gone.insert(uid.to_owned());
        }
        let probed = self.end_probe(uid);
        if *answer == Answer::Accepted {
            self.opened(uid, probed.as_ref(), now);
        }
        let refused = self.shut(uid, probed.as_ref(), answer, now);
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if matches!(entry.state, State::Finished { .. }) {
            return;
        }
        entry.state = match refused {
            Some(key) => State::Behind(key),
            None => next_state(entry, answer, probed, now, &mut self.jitter, &self.limits),
        };
        if entry.terminating {
            entry.state = State::Leaving;
        }
        entry.complete(now);
    }

    /// What the answer says about the server as a whole.
    fn note_server(&mut self, answer: &Answer, now: Duration) {
        let wait = match answer {
            Answer::Unreachable { .. } | Answer::CredentialRefused { .. } => {
                self.outages = self.outages.saturating_add(1);
                self.jitter.backoff(self.outages)
            }
            Answer::TooManyRequests { retry_after: Some(wait), .. } => {
                self.outages = 0;
                self.jitter.scatter_up(*wait)
            }
            Answer::Accepted
            | Answer::Gone
            | Answer::Elsewhere
            | Answer::BudgetExhausted { .. }
            | Answer::BudgetBusy { .. }
            | Answer::TooManyRequests { retry_after: None, .. }
            | Answer::SeveralBudgets { .. }
            | Answer::NamespaceTerminating
            | Answer::Forbidden { .. }
            | Answer::ApiTrouble { .. } => {
                self.outages = 0;
                return;
            }
        };
        self.hold_until = self.hold_until.max(now + wait);
    }

    /// The budget that this pod was the probe of.
    fn end_probe(&mut self, uid: &str) -> Option<BudgetKey> {
        let probed = |budget: &Budget| budget.probe.as_deref() == Some(uid);
        let (key, budget) = self.budgets.iter_mut().find(|(_, budget)| probed(budget))?;
        budget.probe = None;
        Some(key.clone())
    }

    /// A pod was allowed to go: its budget is open. One that was asked before its siblings were
    /// refused is known by its controller.
    fn opened(&mut self, uid: &str, probed: Option<&BudgetKey>, now: Duration) {
        let by_owner = self.pods.get(uid).and_then(|e| e.owner.as_ref());
        let key = probed.or_else(|| by_owner.and_then(|owner| self.owners.get(owner)));
        if let Some(budget) = key.and_then(|key| self.budgets.get_mut(key)) {
            budget.pace.accepted(now, &mut self.jitter);
        }
    }

    /// Notes the budget that refused a pod, if the answer names one.
    fn shut(
        &mut self,
        uid: &str,
        probed: Option<&BudgetKey>,
        answer: &Answer,
        now: Duration,
    ) -> Option<BudgetKey> {
        let (name, says, wait, busy) = match answer {
            Answer::BudgetExhausted { budget, says, retry_after } => {
                (budget.clone()?, says, *retry_after, false)
            }
            Answer::BudgetBusy { budget, says, retry_after } => {
                (budget.clone()?, says, Some(*retry_after), true)
            }
            Answer::Accepted
            | Answer::Gone
            | Answer::Elsewhere
            | Answer::TooManyRequests { .. }
            | Answer::SeveralBudgets { .. }
            | Answer::NamespaceTerminating
            | Answer::Forbidden { .. }
            | Answer::CredentialRefused { .. }
            | Answer::ApiTrouble { .. }
            | Answer::Unreachable { .. } => return None,
        };
        let entry = self.pods.get(uid)?;
        let key = BudgetKey { namespace: entry.id.namespace.clone(), name };
        if let Some(owner) = &entry.owner {
            self.owners.insert(owner.clone(), key.clone());
        }
        let budget = self.budgets.entry(key.clone()).or_insert_with(|| Budget {
            pace: Pace::new(now, self.limits.budget_retry, &mut self.jitter),
            probe: None,
            says: String::new(),
        });
        budget.says.clone_from(says);
        match wait {
            Some(wait) if busy => budget.pace.busy(now, wait, &mut self.jitter),
            // The first refusals come together and say one thing; only probes move the pace.
            wait if probed == Some(&key) => budget.pace.refused(now, wait, &mut self.jitter),
            Some(_) | None => {}
        }
        Some(key)
    }
}

/// Where an answer leaves the pod, budgets with a name aside.
fn next_state(
    entry: &mut Entry,
    answer: &Answer,
    probed: Option<BudgetKey>,
    now: Duration,
    jitter: &mut Jitter,
    limits: &Limits,
) -> State {
    let (failures, forbidden) = (entry.failures, entry.forbidden);
    (entry.failures, entry.forbidden) = (0, 0);
    let api = |says: &str| Some(ObstacleKind::Api { says: says.to_owned() });
    match answer {
        // Not counted as gone: that is for the watch to say.
        Answer::Accepted | Answer::Gone | Answer::Elsewhere => State::Leaving,
        Answer::BudgetExhausted { budget, says, retry_after } => {
            let wait = retry_after.unwrap_or_default().max(jitter.scatter(limits.budget_retry));
            let because = ObstacleKind::Budget { budget: budget.clone(), says: says.clone() };
            State::Due { from: now + wait, because: Some(because) }
        }
        Answer::BudgetBusy { budget, says, retry_after } => {
            let because = ObstacleKind::Budget { budget: budget.clone(), says: says.clone() };
            State::Due { from: now + jitter.scatter_up(*retry_after), because: Some(because) }
        }
        Answer::TooManyRequests { says, retry_after } => {
            let wait = retry_after.unwrap_or_else(|| jitter.scatter(limits.budget_retry));
            State::Due { from: now + wait, because: api(says) }
        }
        Answer::SeveralBudgets { says } => State::Due {
            from: now + jitter.scatter(SEVERAL_BUDGETS_AGAIN),
            because: Some(ObstacleKind::SeveralBudgets { says: says.clone() }),
        },
        Answer::NamespaceTerminating if entry.how == How::Evict => {
            entry.how = How::Delete;
            State::Due { from: now, because: None }
        }
        Answer::NamespaceTerminating => {
            entry.failures = failures + 1;
            let from = now + jitter.backoff(entry.failures);
            State::Due { from, because: api("its namespace is terminating") }
        }
        Answer::Forbidden { says } => {
            entry.forbidden = forbidden + 1;
            if entry.forbidden >= FORBIDDEN_TIMES {
                return State::Forbidden(says.clone());
            }
            let because = ObstacleKind::Forbidden { says: says.clone() };
            State::Due { from: now + FORBIDDEN_AGAIN, because: Some(because) }
        }
        Answer::CredentialRefused { says } | Answer::Unreachable { says } => match probed {
            Some(key) => State::Behind(key),
            // The whole queue waits; this pod needs no wait of its own.
            None => State::Due { from: now, because: api(says) },
        },
        Answer::ApiTrouble { says } => {
            entry.failures = failures.saturating_add(1);
            State::Due { from: now + jitter.backoff(entry.failures), because: api(says) }
        }
    }
}
