//! The status for people: one fact a line, the most wanted first.

use std::io::{self, Write};

use crate::admin::{DrainStatus, FinishedStatus, GatesStatus, ObstacleStatus, SlotStatus, Status};

use super::words::{self, Eyes, line, more};

/// Writes it.
pub(super) fn write(status: &Status, eyes: &Eyes, out: &mut dyn Write) -> io::Result<()> {
    line(
        out,
        "Node",
        status.node.as_deref().unwrap_or("none (a host without Kubernetes, or not seen yet)"),
    )?;
    line(out, "State", &status.state)?;
    line(out, "Reason", &reason(status, eyes))?;
    if let Some(since) = status.reason.since {
        line(out, "Since", &eyes.since(since))?;
    }
    line(out, "Next", &next(status, eyes))?;
    for hold in &status.holds {
        let by = hold.by.as_ref().map(|by| format!(", by {by}")).unwrap_or_default();
        let since = hold.since.map(|since| format!(", since {}", eyes.since(since)));
        let since = since.unwrap_or_default();
        line(out, "Hold", &format!("{} ({}{by}{since})", hold.reason, hold.origin))?;
    }
    if let Some(trouble) = &status.record_unwritable {
        line(out, "Record", &format!("cannot be written: {trouble}"))?;
    }
    if let Some(trouble) = &status.config_trouble {
        line(out, "Config", &format!("the one {trouble}"))?;
    }
    write_pods(status, eyes, out)?;
    write_systems(status, eyes, out)?;
    line(out, "Slot", &slot(&status.slot, eyes))?;
    if let Some(answer) = &status.slot.answer {
        let kind = answer.kind.as_ref().map(|kind| format!(" ({kind})")).unwrap_or_default();
        more(out, &format!("last answer: {}{kind}: {}", answer.answer, answer.text))?;
    }
    line(out, "Cordon", cordon(&status.cordon))?;
    if let Some(gates) = &status.gates {
        write_gates(gates, out)?;
    }
    if let Some(last) = &status.last {
        line(out, "Last", &last_attempt(last, eyes))?;
    }
    line(out, "Agent", &format!("lockkeeper {}", status.version))
}

/// `9 of 12 pods gone, 1 blocked`.
pub(super) fn drain_counts(drain: &DrainStatus) -> String {
    let kinds = || drain.obstacles.iter().filter(|pod| pod.pod != "*").map(|pod| &*pod.kind);
    let blocked = kinds().filter(|kind| !["terminating", "completing"].contains(kind)).count();
    let completing = kinds().filter(|kind| *kind == "completing").count();
    let mut text = format!("{} of {} pods gone", drain.gone, drain.total);
    if blocked > 0 {
        text.push_str(&format!(", {blocked} blocked"));
    }
    if completing > 0 {
        text.push_str(&format!(", {completing} to end by themselves"));
    }
    if !drain.volumes.is_empty() {
        text.push_str(&format!(", {} volumes still attached", drain.volumes.len()));
    }
    text
}

/// The pods that a reason names have lines of their own further down.
fn reason(status: &Status, eyes: &Eyes) -> String {
    let text = match status.reason.text.split_once(": ") {
        Some((short, _)) if named_below(&status.reason.code) => short,
        Some(_) | None => &status.reason.text,
    };
    let left = status.reason.until.and_then(|until| eyes.until(until));
    let left = left.map(|left| format!(", {left}")).unwrap_or_default();
    format!("{text}{left} ({})", status.reason.code)
}

fn named_below(code: &str) -> bool {
    matches!(code, "drain-would-block" | "draining")
}

fn next(status: &Status, eyes: &Eyes) -> String {
    let Some(wake) = &status.wake else { return status.next.clone() };
    let passed = eyes.now.duration_since(status.at).as_secs();
    let left = i64::try_from(wake.in_seconds).unwrap_or(i64::MAX).saturating_sub(passed);
    format!("{} (looks again in {}: {})", status.next, words::duration(left), wake.reason)
}

/// The drain if there is one; else what stands in the way of one.
fn write_pods(status: &Status, eyes: &Eyes, out: &mut dyn Write) -> io::Result<()> {
    if let Some(drain) = &status.drain {
        line(out, "Drain", &drain_counts(drain))?;
        write_obstacles(&drain.obstacles, out)?;
        for volume in &drain.volumes {
            more(out, &format!("volume {volume} is still attached"))?;
        }
        return Ok(());
    }
    let Some(rehearsal) = &status.rehearsal else { return Ok(()) };
    let passed = eyes.now.duration_since(status.at).as_secs();
    let ago = i64::try_from(rehearsal.seconds_ago).unwrap_or(i64::MAX).saturating_add(passed);
    let ago = words::duration(ago);
    match &rehearsal.error {
        Some(error) => line(out, "Drain", &format!("rehearsal failed {ago} ago: {error}"))?,
        None => line(out, "Drain", &format!("rehearsal {ago} ago: {}", rehearsal.result))?,
    }
    write_obstacles(&rehearsal.obstacles, out)
}

fn write_obstacles(obstacles: &[ObstacleStatus], out: &mut dyn Write) -> io::Result<()> {
    obstacles.iter().try_for_each(|obstacle| more(out, &obstacle.text))
}

fn write_systems(status: &Status, eyes: &Eyes, out: &mut dyn Write) -> io::Result<()> {
    if let Some(attempt) = &status.attempt {
        let tries = status.tries.iter().find(|tries| tries.identity == attempt.target.identity);
        let tries = tries.map(|tries| format!(", reboots into its target so far: {}", tries.count));
        let mut text = format!("{}{}", attempt.id, tries.unwrap_or_default());
        if let Some(ending) = &attempt.ending {
            text.push_str(&format!(", {}", will_end(status, ending)));
        }
        line(out, "Attempt", &text)?;
        for reason in &attempt.also {
            more(out, &format!("also for {}", reason.name()))?;
        }
    }
    if let Some(target) = &status.target {
        let since = status.target_since.map(|since| format!(", waits since {}", eyes.since(since)));
        let text = named(target.version.as_deref(), &target.identity);
        line(out, "Update", &format!("{text}{}", since.unwrap_or_default()))?;
    }
    if let Some(booted) = &status.booted {
        line(out, "Running", &named(booted.version.as_deref(), &booted.identity))?;
    }
    for denied in &status.denied {
        let name = named(denied.version.as_deref(), &denied.identity);
        let since = eyes.since(denied.since);
        line(out, "Denied", &format!("{name}, since {since}: {}", denied.because))?;
    }
    Ok(())
}

/// An update that has booted must still prove itself.
fn will_end(status: &Status, ending: &str) -> String {
    let proves = matches!(status.state.as_str(), "settling" | "stuck");
    if proves && ending == "updated" && status.reason.code != "settle-time" {
        return format!("if it becomes well: {ending}");
    }
    format!("will end as {ending}")
}

fn named(version: Option<&str>, identity: &str) -> String {
    version.map_or_else(|| identity.to_owned(), |version| format!("{version} ({identity})"))
}

fn slot(slot: &SlotStatus, eyes: &Eyes) -> String {
    let told = |before: &str, value: &Option<String>| {
        value.as_ref().map(|value| format!(", {before}{value}")).unwrap_or_default()
    };
    let place = [("", &slot.server), ("group ", &slot.group), ("as ", &slot.id)];
    let from: String = place.map(|(before, value)| told(before, value)).concat();
    match slot.since {
        Some(since) => format!("{} since {}{from}", slot.state, eyes.since(since)),
        None => format!("{}{from}", slot.state),
    }
}

fn cordon(cordon: &str) -> &str {
    match cordon {
        "none" => "none by the agent",
        "ours" => "by the agent, which lifts it",
        "foreign" => "by a person (or another tool); the agent leaves it alone",
        other => other,
    }
}

/// Only the gates that are closed, or may be.
fn write_gates(gates: &GatesStatus, out: &mut dyn Write) -> io::Result<()> {
    let mut closed = Vec::new();
    closed.extend(gates.inhibitors.iter().map(|who| format!("shutdown blocked by {who}")));
    if !gates.users.is_empty() {
        closed.push(format!("logged in: {}", gates.users.join(", ")));
    }
    if gates.legacy_lock {
        closed.push("/run/ostree/staged-deployment-locked lies there".to_owned());
    }
    if !gates.clock_synchronised {
        closed.push("the clock is not synchronised".to_owned());
    }
    if let Some(server) = &gates.other_lock_client {
        closed.push(format!("another client asks {server}"));
    }
    closed.extend(gates.unreadable.iter().map(|what| format!("cannot be read: {what}")));
    let Some((first, others)) = closed.split_first() else { return Ok(()) };
    line(out, "Host", first)?;
    others.iter().try_for_each(|gate| more(out, gate))
}

fn last_attempt(last: &FinishedStatus, eyes: &Eyes) -> String {
    let detail = last.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    let (outcome, target) = (&last.outcome, last.target.name());
    let ago = last.ended.map(|ended| format!(" {} ago", eyes.age(ended))).unwrap_or_default();
    format!("{} at {target}: {outcome}{ago}{detail}", last.attempt)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use expect_test::{Expect, expect};
    use jiff::tz::TimeZone;

    use super::*;
    use crate::admin::{Snapshot, sample};
    use crate::drain::Obstacle;
    use crate::lifecycle::{Cordon, Hold, HostView, Inhibitor, Outcome, Rehearsed, Stage, Waiting};

    fn check(snapshot: &Snapshot, expected: &Expect) {
        let eyes = Eyes { zone: TimeZone::UTC, now: "2026-11-30T12:00:20Z".parse().unwrap() };
        let mut out = Vec::new();
        write(&Status::of(snapshot), &eyes, &mut out).unwrap();
        expected.assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn idle() {
        check(
            &sample::idle(),
            &expect![[r#"
                Node     n1
                State    idle
                Reason   no update waits (no-update)
                Since    2026-11-30 10:00:00 UTC (2 h ago)
                Next     nothing, until an update is staged or a reboot is asked for
                Running  42.0 (sha256:4200)
                Slot     none, http://slots.example:3333, group workers, as 978a225b3d7b40e9acd7ce9b62f68444
                Cordon   none by the agent
                Agent    lockkeeper 0.1.0
            "#]],
        );
    }

    #[test]
    fn draining() {
        check(
            &sample::draining(),
            &expect![[r#"
                Node     n1
                State    draining
                Reason   pods are leaving, but not all (draining)
                Since    2026-11-30 11:50:31 UTC (9 min 49 s ago)
                Next     once empty: confirm the slot, look once more, reboot (looks again in 2 min 30 s: confirm the slot)
                Drain    9 of 12 pods gone, 1 blocked
                           shop/cart-0: disruption budget cart: The disruption budget cart needs 2 healthy pods and has 2 currently
                           shop/web-7f9: is terminating
                Attempt  3f2a9c1e-2, reboots into its target so far: 1
                Update   42.1 (sha256:42a1), waits since 2026-11-30 10:30:00 UTC (1 h 30 min ago)
                Running  42.0 (sha256:4200)
                Denied   42.05 (sha256:0bad), since 2026-11-30 09:00:00 UTC (3 h ago): the host runs 42.0 again
                Slot     held since 2026-11-30 11:50:30 UTC (9 min 50 s ago), http://slots.example:3333, group workers, as 978a225b3d7b40e9acd7ce9b62f68444
                Cordon   by the agent, which lifts it
                Last     3f2a9c1e-1 at 42.1: yielded 30 min 8 s ago: shop/cart-0: disruption budget cart: needs 2, has 2
                Agent    lockkeeper 0.1.0
            "#]],
        );
    }

    /// The lines that tell what a halted node, a refused file and a person's cordon are about.
    #[test]
    fn halted_with_a_newer_update_and_a_wrong_file() {
        let mut snapshot = sample::draining();
        snapshot.state.record.core.stage = Stage::Halted;
        snapshot.state.record.core.cordon = Cordon::None;
        snapshot.state.view.system.as_mut().unwrap().deployments[0].identity = "sha256:new".into();
        snapshot.config_trouble = Some("on disk is not in use: a.toml:1: unknown key".to_owned());
        let until = "2026-11-30T12:04:20.5Z".parse().unwrap();
        snapshot.waiting = Waiting::BackingOff { until };
        let status = Status::of(&snapshot);
        let update = status.target.as_ref().map(|target| target.identity.as_str());
        assert_eq!(update, Some("sha256:new"));
        let eyes = Eyes { zone: TimeZone::UTC, now: snapshot.at.wall };
        let mut out = Vec::new();
        write(&status, &eyes, &mut out).unwrap();
        let told = String::from_utf8(out).unwrap();
        for line in [
            "Reason   backing off until 2026-11-30 12:04:20 UTC, in 4 min 20 s (backing-off)\n",
            "Config   the one on disk is not in use: a.toml:1: unknown key\n",
        ] {
            assert!(told.contains(line), "{told}");
        }
    }

    #[test]
    fn what_runs_is_no_update_and_may_yet_fail() {
        let mut snapshot = sample::draining();
        let record = &mut snapshot.state.record;
        record.core.stage = Stage::Settling;
        record.ending = Some(Outcome::Updated);
        let attempt = record.core.attempt.as_mut().unwrap();
        attempt.boot_before = Some(snapshot.state.boot.clone());
        let system = snapshot.state.view.system.as_mut().unwrap();
        system.deployments.truncate(1);
        system.deployments[0].booted = true;
        system.deployments[0].staged = false;
        snapshot.waiting = Waiting::NotWell(vec!["kubelet.service".to_owned()]);
        let status = Status::of(&snapshot);
        assert_eq!(status.target, None);
        assert_eq!(will_end(&status, "updated"), "if it becomes well: updated");
        snapshot.waiting = Waiting::SettleTime;
        assert_eq!(will_end(&Status::of(&snapshot), "updated"), "will end as updated");
    }

    #[test]
    fn held_and_blocked_by_the_host_and_by_pods() {
        let mut snapshot = sample::idle();
        let since = snapshot.at.wall;
        let hold = Hold { reason: "disk \u{7}swap".to_owned(), by: "alice".to_owned(), since };
        snapshot.state.record.hold = Some(hold);
        let obstacles: Vec<Obstacle> = sample::progress().obstacles;
        snapshot.waiting = Waiting::DrainWouldBlock(obstacles.clone());
        snapshot.state.view.rehearsal =
            Some((Rehearsed::Blocked(obstacles), snapshot.at.since_boot));
        let host: HostView = sample::draining().state.view.host.unwrap().0;
        let inhibitors = vec![Inhibitor { who: "backup".to_owned(), why: "runs".to_owned() }];
        let host = HostView { inhibitors, users: vec!["alice".to_owned()], ..host };
        snapshot.state.view.host = Some((host, snapshot.at.since_boot));
        check(
            &snapshot,
            &expect![[r#"
                Node     n1
                State    idle
                Reason   the drain would not finish (drain-would-block)
                Next     nothing, until an update is staged or a reboot is asked for
                Hold     disk  swap (command, by alice, since 2026-11-30 12:00:00 UTC (20 s ago))
                Drain    rehearsal 20 s ago: blocked
                           shop/cart-0: disruption budget cart: The disruption budget cart needs 2 healthy pods and has 2 currently
                           shop/web-7f9: is terminating
                Running  42.0 (sha256:4200)
                Slot     none, http://slots.example:3333, group workers, as 978a225b3d7b40e9acd7ce9b62f68444
                Cordon   none by the agent
                Host     shutdown blocked by backup (runs)
                           logged in: alice
                Agent    lockkeeper 0.1.0
            "#]],
        );
    }
}
