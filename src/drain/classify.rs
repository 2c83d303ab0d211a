//! Which pods leave the node: one filter for rehearsal, drain and the last look.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::wish::{Wish, wish_of};

/// The annotation by which the kubelet marks the copy of a static pod in the API.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Priority from which on a pod is critical (`system-cluster-critical`).
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// What the configuration says about pods that not everybody would evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Pods without a controller.
    pub unmanaged: Unmanaged,
    /// Pods with an emptyDir.
    pub empty_dir: EmptyDirs,
}

/// What happens to pods that no controller would create again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unmanaged {
    /// They stay: the shutdown stops them, and they start again with the node.
    Leave,
    /// Evicted, and thereby deleted for good.
    Evict,
    /// No drain while there is one.
    Refuse,
}

/// What happens to pods with an emptyDir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EmptyDirs {
    /// Evicted like others.
    Evict,
    /// No drain while there is one.
    Refuse,
}

/// What a drain does with one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It has to leave, and has to be asked.
    Evict {
        /// When its turn is.
        tier: Tier,
    },
    /// It is terminating already: it is waited for and not asked again.
    Await {
        /// Whose turn it holds up.
        tier: Tier,
    },
    /// It has to leave and says that it ends by itself: it is waited for and not asked, until the
    /// drain's deadline.
    Complete {
        /// Whose turn it holds up.
        tier: Tier,
    },
    /// It stays.
    Leave {
        /// Why.
        why: Stays,
    },
    /// It must not be evicted, so there is no drain.
    Refuse {
        /// Which rule says so.
        rule: RefusalRule,
    },
}

/// Whose turn it is: a tier is asked only when the one before has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// What the node runs for others.
    Ordinary,
    /// What the cluster itself needs (a critical priority class), DNS for instance: it goes last,
    /// so that the others can still use it while they end.
    Critical,
}

/// Why a pod stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stays {
    /// The mirror of a static pod: evicting the mirror does not stop the pod.
    Static,
    /// Its DaemonSet would put it back onto this node.
    DaemonSet,
    /// It ran to its end.
    Finished,
    /// Nobody would create it again.
    Unmanaged,
    /// It, or its namespace, says `skip`.
    Skipped,
}

/// Which rule refuses a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalRule {
    /// `drain.unmanaged_pods = "refuse"`.
    Unmanaged,
    /// `drain.empty_dir = "refuse"`.
    EmptyDir,
}

/// Says what a drain does with a pod.
///
/// Decided by the pod alone. Whether its DaemonSet still exists is not asked: a node's credential
/// may not read one, and a failed look-up must not make an agent evict what comes back at once.
pub fn classify(pod: &Pod, namespace: Option<Wish>, rules: &Rules) -> Verdict {
    if let Some(why) = stays_anyway(pod) {
        return Verdict::Leave { why };
    }
    let wish = wish_of(&pod.metadata).unwrap_or_default().or(namespace);
    if wish == Some(Wish::Skip) {
        return Verdict::Leave { why: Stays::Skipped };
    }
    let owned = controller(pod).is_some();
    let completes = wish == Some(Wish::WaitCompleted);
    // One that says that it ends by itself is worth waiting for, whoever made it.
    if !owned && !completes && rules.unmanaged == Unmanaged::Leave {
        return Verdict::Leave { why: Stays::Unmanaged };
    }
    let tier = tier(pod);
    if is_terminating(pod) {
        return Verdict::Await { tier };
    }
    // Past the deadline it may be deleted, so that the rules hold for it as well.
    if !owned && rules.unmanaged == Unmanaged::Refuse {
        return Verdict::Refuse { rule: RefusalRule::Unmanaged };
    }
    if rules.empty_dir == EmptyDirs::Refuse && volumes(pod).any(|v| v.empty_dir.is_some()) {
        return Verdict::Refuse { rule: RefusalRule::EmptyDir };
    }
    if completes { Verdict::Complete { tier } } else { Verdict::Evict { tier } }
}

/// Whether what its namespace says makes a difference to this pod.
pub fn asks_its_namespace(pod: &Pod) -> bool {
    stays_anyway(pod).is_none() && !matches!(wish_of(&pod.metadata), Ok(Some(_)))
}

/// Why a pod stays whatever is configured and whatever anybody says.
fn stays_anyway(pod: &Pod) -> Option<Stays> {
    let owner = controller(pod);
    if is_mirror(pod) || owner.is_some_and(|o| o.kind == "Node") {
        return Some(Stays::Static);
    }
    // Any group: DaemonSets of other makers come back onto a cordoned node just as well.
    if owner.is_some_and(|o| o.kind == "DaemonSet") {
        return Some(Stays::DaemonSet);
    }
    is_finished(pod).then_some(Stays::Finished)
}

/// The owner that controls the pod. Only this one would create it again.
pub(super) fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.metadata.owner_references.as_deref()?.iter().find(|o| o.controller == Some(true))
}

/// Its containers have all ended and will not start again.
pub(super) fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// It was deleted and has not gone yet.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Its priority, 0 where none is set.
pub(super) fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0)
}

/// Its volumes.
pub(super) fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().filter_map(|s| s.volumes.as_deref()).flatten()
}

fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(MIRROR_ANNOTATION))
}

fn tier(pod: &Pod) -> Tier {
    let class = pod.spec.as_ref().and_then(|s| s.priority_class_name.as_deref());
    let critical = matches!(class, Some("system-cluster-critical" | "system-node-critical"));
    if critical || priority(pod) >= CRITICAL_PRIORITY { Tier::Critical } else { Tier::Ordinary }
}

// === impl RefusalRule ===

impl fmt::Display for RefusalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unmanaged => "drain.unmanaged_pods = \"refuse\" (it has no controller)",
            Self::EmptyDir => "drain.empty_dir = \"refuse\" (it has an emptyDir)",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, from_value, json};

    use super::super::wish::DRAIN;
    use super::*;

    const EVICT_ALL: Rules = Rules { unmanaged: Unmanaged::Evict, empty_dir: EmptyDirs::Evict };
    const LEAVE: Rules = Rules { unmanaged: Unmanaged::Leave, ..EVICT_ALL };
    const REFUSE: Rules = Rules { unmanaged: Unmanaged::Refuse, empty_dir: EmptyDirs::Refuse };
    const ORDINARY: Verdict = Verdict::Evict { tier: Tier::Ordinary };
    const CRITICAL: Verdict = Verdict::Evict { tier: Tier::Critical };
    const AWAITED: Verdict = Verdict::Await { tier: Tier::Ordinary };

    fn leaves(why: Stays) -> Verdict {
        Verdict::Leave { why }
    }

    fn refused(rule: RefusalRule) -> Verdict {
        Verdict::Refuse { rule }
    }

    fn owned(kind: &str, version: &str) -> Value {
        json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "o-1", "controller": true}])
    }

    fn pod(owners: Value, change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u", "ownerReferences": owners},
            "spec": {"containers": []},
            "status": {"phase": "Running"},
        });
        change(&mut pod);
        from_value(pod).unwrap()
    }

    /// Checks the verdicts under the rules evict, leave and refuse.
    #[track_caller]
    fn check(pod: &Pod, evict: Verdict, leave: Verdict, refuse: Verdict) {
        assert_eq!(
            [&EVICT_ALL, &LEAVE, &REFUSE].map(|rules| classify(pod, None, rules)),
            [evict, leave, refuse]
        );
    }

    fn says(pod: &Pod, word: &str) -> Pod {
        let mut pod = pod.clone();
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(DRAIN.to_owned(), word.to_owned());
        pod
    }

    fn replica(change: impl FnOnce(&mut Value)) -> Pod {
        pod(owned("ReplicaSet", "apps/v1"), change)
    }

    #[test]
    fn what_a_controller_would_create_again_is_evicted() {
        check(&replica(|_| ()), ORDINARY, ORDINARY, ORDINARY);
        let pending = replica(|p| p["status"]["phase"] = json!("Pending"));
        check(&pending, ORDINARY, ORDINARY, ORDINARY);
    }

    #[test]
    fn daemons_and_static_pods_stay_whatever_the_rules() {
        for version in ["apps/v1", "apps/v1beta2", "extensions/v1beta1", "apps.kruise.io/v1alpha1"]
        {
            let daemon = pod(owned("DaemonSet", version), |_| ());
            let stays = leaves(Stays::DaemonSet);
            check(&daemon, stays, stays, stays);
        }
        let stays = leaves(Stays::Static);
        check(&pod(owned("Node", "v1"), |_| ()), stays, stays, stays);
        let mirror = pod(json!([]), |p| {
            p["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "3f"});
        });
        check(&mirror, stays, stays, stays);
    }

    #[test]
    fn an_owner_that_does_not_control_is_no_owner() {
        let adopted = pod(
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "o-1"}]),
            |_| (),
        );
        let no = refused(RefusalRule::Unmanaged);
        check(&adopted, ORDINARY, leaves(Stays::Unmanaged), no);
    }

    #[test]
    fn finished_pods_stay() {
        for phase in ["Succeeded", "Failed"] {
            let done = pod(json!([]), |p| p["status"]["phase"] = json!(phase));
            let stays = leaves(Stays::Finished);
            check(&done, stays, stays, stays);
        }
    }

    #[test]
    fn empty_dirs_go_by_their_rule() {
        let scratch = replica(|p| p["spec"]["volumes"] = json!([{"name": "s", "emptyDir": {}}]));
        check(&scratch, ORDINARY, ORDINARY, refused(RefusalRule::EmptyDir));
    }

    #[test]
    fn what_terminates_is_waited_for_and_no_longer_refused() {
        let going = json!("2026-03-01T10:00:00Z");
        let scratch = replica(|p| {
            p["spec"]["volumes"] = json!([{"name": "s", "emptyDir": {}}]);
            p["metadata"]["deletionTimestamp"] = going.clone();
        });
        check(&scratch, AWAITED, AWAITED, AWAITED);
        let bare = pod(json!([]), |p| p["metadata"]["deletionTimestamp"] = going);
        check(&bare, AWAITED, leaves(Stays::Unmanaged), AWAITED);
    }

    #[test]
    fn critical_pods_go_last() {
        for class in ["system-cluster-critical", "system-node-critical"] {
            let dns = replica(|p| p["spec"]["priorityClassName"] = json!(class));
            check(&dns, CRITICAL, CRITICAL, CRITICAL);
        }
        let by_number = |n: i32| replica(|p| p["spec"]["priority"] = json!(n));
        check(&by_number(2_000_000_000), CRITICAL, CRITICAL, CRITICAL);
        check(&by_number(1_999_999_999), ORDINARY, ORDINARY, ORDINARY);
    }

    #[test]
    fn what_says_skip_stays_whatever_the_rules() {
        let stays = leaves(Stays::Skipped);
        let bare = pod(json!([]), |_| ());
        let scratch = replica(|p| p["spec"]["volumes"] = json!([{"name": "s", "emptyDir": {}}]));
        let going = replica(|p| p["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:00:00Z"));
        for kind in [&replica(|_| ()), &bare, &scratch, &going] {
            check(&says(kind, "skip"), stays, stays, stays);
        }
        // What stays anyway, stays for its own reason.
        let daemon = says(&pod(owned("DaemonSet", "apps/v1"), |_| ()), "skip");
        let stays = leaves(Stays::DaemonSet);
        check(&daemon, stays, stays, stays);
    }

    #[test]
    fn what_ends_by_itself_is_waited_for_unless_a_rule_refuses_it() {
        let waits = Verdict::Complete { tier: Tier::Ordinary };
        let job = says(&pod(owned("Job", "batch/v1"), |_| ()), "wait-completed");
        check(&job, waits, waits, waits);
        let bare = says(&pod(json!([]), |_| ()), "wait-completed");
        check(&bare, waits, waits, refused(RefusalRule::Unmanaged));
        let scratch = replica(|p| p["spec"]["volumes"] = json!([{"name": "s", "emptyDir": {}}]));
        let scratch = says(&scratch, "wait-completed");
        check(&scratch, waits, waits, refused(RefusalRule::EmptyDir));
        let done = says(&replica(|p| p["status"]["phase"] = json!("Succeeded")), "wait-completed");
        let stays = leaves(Stays::Finished);
        check(&done, stays, stays, stays);
        let going = replica(|p| p["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:00:00Z"));
        check(&says(&going, "wait-completed"), AWAITED, AWAITED, AWAITED);
    }

    #[test]
    fn the_pod_wins_over_its_namespace_and_an_unknown_word_is_none() {
        let (skip, wait) = (Some(Wish::Skip), Some(Wish::WaitCompleted));
        let stays = leaves(Stays::Skipped);
        let waits = Verdict::Complete { tier: Tier::Ordinary };
        let plain = replica(|_| ());
        for (pod, namespace, verdict, asks) in [
            (plain.clone(), None, ORDINARY, true),
            (plain.clone(), skip, stays, true),
            (plain.clone(), wait, waits, true),
            (says(&plain, "skip"), wait, stays, false),
            (says(&plain, "wait-completed"), skip, waits, false),
            (says(&plain, "later"), None, ORDINARY, true),
            (says(&plain, "later"), skip, stays, true),
        ] {
            assert_eq!(classify(&pod, namespace, &EVICT_ALL), verdict, "{pod:?} {namespace:?}");
            assert_eq!(asks_its_namespace(&pod), asks, "{pod:?}");
        }
        let daemon = pod(owned("DaemonSet", "apps/v1"), |_| ());
        assert_eq!(classify(&daemon, wait, &EVICT_ALL), leaves(Stays::DaemonSet));
        assert!(!asks_its_namespace(&daemon));
    }
}
