//! What the API server's answer to an eviction or a deletion means.

use std::time::Duration;

/// An answer as it came over the wire.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Reply {
    /// HTTP status code.
    pub code: u16,
    /// `reason` of the Status object; empty where the body was none.
    pub reason: String,
    /// `message` of the Status object, else the body.
    pub message: String,
    /// `details.causes`: reason and message.
    pub causes: Vec<Cause>,
    /// `details.retryAfterSeconds`, else the header `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// One of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Cause {
    /// Its word, `DisruptionBudget` for instance.
    pub reason: String,
    /// Its sentence.
    pub message: String,
}

/// What an answer means for the pod that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is on its way.
    Accepted,
    /// This pod (by UID) does not exist any more.
    Gone,
    /// Its name belongs to a pod on another node: this one has gone.
    Elsewhere,
    /// A disruption budget allows no disruption now.
    BudgetExhausted {
        /// Name of the budget, where the server gave one.
        budget: Option<String>,
        /// The server's own words.
        says: String,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The disruption controller has not looked at the budget's last change yet.
    BudgetBusy {
        /// Name of the budget, where the server gave one.
        budget: Option<String>,
        /// The server's own words.
        says: String,
        /// When the server wants to be asked again.
        retry_after: Duration,
    },
    /// The server sheds load, or something in its admission asks for patience.
    TooManyRequests {
        /// The server's own words.
        says: String,
        /// When it wants to be asked again; `None`: it did not say, and means this pod only.
        retry_after: Option<Duration>,
    },
    /// More than one budget matches the pod; no eviction until a person changes that.
    SeveralBudgets {
        /// The server's own words.
        says: String,
    },
    /// Its namespace is being deleted, so no eviction can be created there; a deletion can.
    NamespaceTerminating,
    /// The identity has no right to do this.
    Forbidden {
        /// The server's own words.
        says: String,
    },
    /// 401: the credential is expired or unknown.
    CredentialRefused {
        /// The server's own words.
        says: String,
    },
    /// The server failed on this request, or refused it for a reason of its own.
    ApiTrouble {
        /// What it said.
        says: String,
    },
    /// No server answered, or a proxy or server that says it is not there (502, 503).
    Unreachable {
        /// What happened.
        says: String,
    },
}

/// Longest text of a server that is kept, characters: enough for its longest sentence.
const SAYS_LENGTH: usize = 300;

/// How long a budget is left alone that is being processed when the server names no time; the
/// server itself says 10 s.
const BUSY_DEFAULT: Duration = Duration::from_secs(10);

/// Longest time a server can make us wait.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(60);

/// Reads an answer to an eviction or a deletion (texts of Kubernetes 1.33 to 1.36).
pub fn judge(reply: &Reply) -> Answer {
    let says = || says(&reply.message);
    let retry_after = reply.retry_after.map(|wait| wait.min(RETRY_AFTER_LIMIT));
    match reply.code {
        200..=299 => Answer::Accepted,
        401 => Answer::CredentialRefused { says: says() },
        403 => forbidden(reply),
        // A proxy, or a server that has not installed its paths yet, says 404 without a Status.
        404 if reply.reason == "NotFound" => Answer::Gone,
        // Any other conflict is one of resource versions, and the pod is still there.
        409 if reply.message.contains("UID in precondition") => Answer::Gone,
        429 => too_many_requests(reply, retry_after),
        500 if reply.message.contains("more than one PodDisruptionBudget") => {
            Answer::SeveralBudgets { says: says() }
        }
        502 | 503 => Answer::Unreachable { says: says() },
        code => Answer::ApiTrouble { says: format!("{code}: {}", says()) },
    }
}

/// A 403 has many meanings; only one of them is a missing right.
fn forbidden(reply: &Reply) -> Answer {
    let message = &reply.message;
    if reply.causes.iter().any(|c| c.reason == "NamespaceTerminating") {
        return Answer::NamespaceTerminating;
    }
    if message.contains("pods with spec.nodeName set to itself") {
        return Answer::Elsewhere;
    }
    if message.contains("pdb disruptions allowed is negative")
        || message.contains("DisruptedPods map too big")
    {
        let budget = between(message, "poddisruptionbudgets.policy \"", "\"");
        return Answer::BudgetExhausted { budget, says: says(message), retry_after: None };
    }
    if message.contains(" cannot create resource ") || message.contains(" cannot delete resource ")
    {
        return Answer::Forbidden { says: says(message) };
    }
    // An admission webhook or policy: it may change its mind, and it is no matter of rights.
    Answer::ApiTrouble { says: format!("403: {}", says(message)) }
}

fn too_many_requests(reply: &Reply, retry_after: Option<Duration>) -> Answer {
    let Some(cause) = reply.causes.iter().find(|c| c.reason == "DisruptionBudget") else {
        return Answer::TooManyRequests { says: says(&reply.message), retry_after };
    };
    let budget = between(&cause.message, "disruption budget ", " ");
    let says = says(&cause.message);
    if cause.message.contains("still being processed") {
        let retry_after = retry_after.unwrap_or(BUSY_DEFAULT);
        return Answer::BudgetBusy { budget, says, retry_after };
    }
    Answer::BudgetExhausted { budget, says, retry_after }
}

/// The text between two marks, if both are there and something is between them.
fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    let (found, _) = rest.split_once(after)?;
    (!found.is_empty()).then(|| says(found))
}

/// A server's words, bounded and on one line.
pub(super) fn says(text: &str) -> String {
    text.chars().take(SAYS_LENGTH).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16, reason: &str, message: &str) -> Reply {
        Reply { code, reason: reason.into(), message: message.into(), ..Reply::default() }
    }

    fn because(mut reply: Reply, reason: &str, message: &str) -> Reply {
        reply.causes.push(Cause { reason: reason.into(), message: message.into() });
        reply
    }

    fn after(mut reply: Reply, seconds: u64) -> Reply {
        reply.retry_after = Some(Duration::from_secs(seconds));
        reply
    }

    const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
    const NEEDS: &str = "The disruption budget web needs 3 healthy pods and has 3 currently";
    const BUSY: &str = "The disruption budget web is still being processed by the server.";

    #[test]
    fn budgets() {
        let refusal = reply(429, "TooManyRequests", VIOLATES);
        let web = Some("web".to_owned());
        assert_eq!(
            judge(&because(refusal.clone(), "DisruptionBudget", NEEDS)),
            Answer::BudgetExhausted { budget: web.clone(), says: NEEDS.into(), retry_after: None }
        );
        assert_eq!(
            judge(&after(because(refusal.clone(), "DisruptionBudget", BUSY), 10)),
            Answer::BudgetBusy {
                budget: web.clone(),
                says: BUSY.into(),
                retry_after: Duration::from_secs(10)
            }
        );
        assert_eq!(
            judge(&because(refusal, "DisruptionBudget", "no more of this")),
            Answer::BudgetExhausted {
                budget: None,
                says: "no more of this".into(),
                retry_after: None
            }
        );
        let negative = "poddisruptionbudgets.policy \"web\" is forbidden: \
                        pdb disruptions allowed is negative";
        assert_eq!(
            judge(&reply(403, "Forbidden", negative)),
            Answer::BudgetExhausted { budget: web, says: negative.into(), retry_after: None }
        );
        let two = "This pod has more than one PodDisruptionBudget, which the eviction \
                   subresource does not support.";
        assert_eq!(judge(&reply(500, "", two)), Answer::SeveralBudgets { says: two.into() });
    }

    #[test]
    fn a_server_under_load_is_no_budget() {
        let text = "Too many requests, please try again later.";
        assert_eq!(
            judge(&after(reply(429, "", text), 1)),
            Answer::TooManyRequests {
                says: text.into(),
                retry_after: Some(Duration::from_secs(1))
            }
        );
        assert_eq!(
            judge(&after(reply(429, "", text), 86_400)),
            Answer::TooManyRequests { says: text.into(), retry_after: Some(RETRY_AFTER_LIMIT) }
        );
    }

    #[test]
    fn a_pod_that_has_gone() {
        assert_eq!(judge(&reply(404, "NotFound", "pods \"web-0\" not found")), Answer::Gone);
        let uid = "Operation cannot be fulfilled on pods \"web-0\": Precondition failed: \
                   UID in precondition: 1, UID in object meta: 2";
        assert_eq!(judge(&reply(409, "Conflict", uid)), Answer::Gone);
        let moved = "pods \"web-0\" is forbidden: node \"n1\" can only evict pods with \
                     spec.nodeName set to itself";
        assert_eq!(judge(&reply(403, "Forbidden", moved)), Answer::Elsewhere);
        assert_eq!(
            judge(&reply(403, "Forbidden", &moved.replace("evict", "delete"))),
            Answer::Elsewhere
        );
    }

    #[test]
    fn what_only_looks_as_if_it_had_gone() {
        for reply in [
            reply(404, "", "404 page not found"),
            reply(
                409,
                "Conflict",
                "Operation cannot be fulfilled on pods \"web-0\": Precondition failed: \
                 ResourceVersion in precondition: 7, ResourceVersion in object meta: 8",
            ),
        ] {
            assert!(matches!(judge(&reply), Answer::ApiTrouble { .. }), "{reply:?}");
        }
    }

    #[test]
    fn rights_and_what_only_looks_like_them() {
        let right = "pods \"web-0\" is forbidden: User \"agent\" cannot create resource \
                     \"pods/eviction\" in API group \"\" in the namespace \"shop\"";
        assert_eq!(
            judge(&reply(403, "Forbidden", right)),
            Answer::Forbidden { says: right.into() }
        );
        let ending = reply(
            403,
            "Forbidden",
            "pods \"web-0\" is forbidden: unable to create new content in namespace shop \
             because it is being terminated",
        );
        assert_eq!(
            judge(&because(ending, "NamespaceTerminating", "namespace shop is being terminated")),
            Answer::NamespaceTerminating
        );
        let hook = "admission webhook \"guard.example.com\" denied the request: not today";
        assert_eq!(
            judge(&reply(403, "Forbidden", hook)),
            Answer::ApiTrouble { says: format!("403: {hook}") }
        );
        assert_eq!(
            judge(&reply(401, "Unauthorized", "Unauthorized")),
            Answer::CredentialRefused { says: "Unauthorized".into() }
        );
    }

    #[test]
    fn a_server_that_fails() {
        assert_eq!(judge(&reply(201, "", "")), Answer::Accepted);
        for code in [502, 503] {
            assert!(matches!(judge(&reply(code, "", "down")), Answer::Unreachable { .. }));
        }
        for code in [100, 302, 400, 405, 422, 500, 504] {
            assert_eq!(
                judge(&reply(code, "", "odd\nway")),
                Answer::ApiTrouble { says: format!("{code}: odd way") }
            );
        }
        assert!(matches!(
            judge(&reply(500, "", &"x".repeat(9000))),
            Answer::ApiTrouble { says } if says.chars().count() < 400
        ));
    }
}
