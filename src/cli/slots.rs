//! `lockkeeper slots list|release`: what a coordinator has handed out.

use std::io::{BufRead, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail};
use jiff::Timestamp;
use serde_json::json;

use crate::coordinator::admin::{self, AdminError, Answer, ListedGroup, Question};
use crate::coordinator::slots::Holder;
use crate::signals::clock;

/// Version of the JSON that `slots list --json` prints.
const SCHEMA: u32 = 1;

/// Who holds what, as a table or as JSON, ready to be printed.
///
/// # Errors
/// The coordinator of this host does not answer, or not to this user.
pub async fn list(run_dir: &Path, json: bool) -> anyhow::Result<String> {
    let groups = listed(run_dir).await?;
    let now = clock::now().wall;
    if json { as_json(&groups, now) } else { Ok(table(&groups, now)) }
}

/// Takes the slot of `who` in `group` away: an id, or the name of a node that has one slot there, after `confirm` was shown what that means and said yes.
/// The result is the sentence to print.
///
/// # Errors
/// The coordinator of this host does not answer, the group or the holder does not exist, or the
/// answer was no.
pub async fn release(
    run_dir: &Path,
    group: &str,
    who: &str,
    confirm: impl FnOnce(&str) -> anyhow::Result<bool>,
) -> anyhow::Result<String> {
    let groups = listed(run_dir).await?;
    let Some(listed) = groups.iter().find(|listed| listed.group == group) else {
        let names: Vec<&str> = groups.iter().map(|listed| listed.group.as_str()).collect();
        bail!("there is no group {group:?}; there are: {}", names.join(", "));
    };
    let holder = find(listed, who)?;
    let (id, name) = (holder.id.as_str(), holder.name());
    if !confirm(&meaning(group, holder, clock::now().wall))? {
        bail!("not released");
    }
    let question = Question::Release { group: group.to_owned(), id: id.to_owned() };
    match ask(run_dir, &question).await? {
        Answer::Released(_) => Ok(format!("released the slot of {name} in {group}")),
        Answer::NotHeld => Ok(format!("{name} has given back its slot in {group} meanwhile")),
        Answer::Failed(because) => bail!(because),
        Answer::Listed(_) => bail!("the coordinator answered something else"),
    }
}

/// Shows a text and reads yes or no from a terminal; anything but `y` or `yes` is no.
///
/// # Errors
/// The terminal fails.
pub fn ask_yes_or_no(
    text: &str,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> anyhow::Result<bool> {
    write!(output, "{text}\nRelease it? [y/N] ").context("asking for confirmation")?;
    output.flush().context("asking for confirmation")?;
    let mut answer = String::new();
    input.read_line(&mut answer).context("reading the confirmation")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// The holder of that id, else the only one of that node's name.
fn find<'a>(listed: &'a ListedGroup, who: &str) -> anyhow::Result<&'a Holder> {
    if let Some(holder) = listed.holders.iter().find(|holder| holder.id == who) {
        return Ok(holder);
    }
    let named = |holder: &&Holder| holder.claim.node.as_deref() == Some(who);
    let found: Vec<&Holder> = listed.holders.iter().filter(named).collect();
    let group = &listed.group;
    match found.as_slice() {
        [] => bail!("{who:?} holds no slot of {group}; see: lockkeeper slots list"),
        [holder] => Ok(holder),
        several => {
            let ids: Vec<&str> = several.iter().map(|holder| holder.id.as_str()).collect();
            let ids = ids.join(", ");
            bail!("{who:?} is the name of several nodes with a slot of {group}; name one: {ids}")
        }
    }
}

async fn listed(run_dir: &Path) -> anyhow::Result<Vec<ListedGroup>> {
    match ask(run_dir, &Question::List).await? {
        Answer::Listed(groups) => Ok(groups),
        Answer::Failed(because) => bail!(because),
        Answer::Released(_) | Answer::NotHeld => bail!("the coordinator answered something else"),
    }
}

async fn ask(run_dir: &Path, question: &Question) -> anyhow::Result<Answer> {
    admin::ask(run_dir, question).await.map_err(|error| {
        let hint = hint(&error);
        let error = anyhow::Error::new(error);
        if hint.is_empty() { error } else { error.context(hint) }
    })
}

fn hint(error: &AdminError) -> &'static str {
    match error {
        AdminError::File { source, .. } => {
            let kind = source.kind();
            if kind == ErrorKind::NotFound || kind == ErrorKind::ConnectionRefused {
                "no coordinator runs on this host: ask on the host where it runs"
            } else if kind == ErrorKind::PermissionDenied {
                "only root may ask the coordinator"
            } else {
                ""
            }
        }
        AdminError::InUse(_) | AdminError::NotAnAnswer { .. } | AdminError::NoAnswer(_) => "",
    }
}

fn meaning(group: &str, holder: &Holder, now: Timestamp) -> String {
    let Holder { id, since, claim, .. } = holder;
    let node = claim.node.as_deref().unwrap_or(id);
    let who = match &claim.node {
        Some(node) => format!("Node {node} (id {id})"),
        None => format!("{id} (it did not tell its node's name)"),
    };
    let attempt = claim.attempt.as_deref().unwrap_or("unknown");
    format!(
        "{who} holds a slot of {group} since {since:.0} ({}), attempt {attempt}.\n\
         Released, the slot goes to the next node that asks, even while {node} is still down or not \
         well:\nmore nodes than allowed may then be down at once. Its agent, if it lives, yields \
         when it confirms the slot and finds it taken.\n\
         Release it only if {node} is well, or will not come back.",
        age(*since, now)
    )
}

fn table(groups: &[ListedGroup], now: Timestamp) -> String {
    let head = ["GROUP", "HELD", "NODE", "ID", "SINCE", "AGE", "ATTEMPT"].map(str::to_owned);
    let mut rows = vec![head];
    for ListedGroup { group, slots, holders } in groups {
        let of = slots.map_or_else(|| "-".to_owned(), |slots| slots.to_string());
        let held = format!("{}/{of}", holders.len());
        if holders.is_empty() {
            let none = || "-".to_owned();
            rows.push([group.clone(), held, none(), none(), none(), none(), none()]);
            continue;
        }
        for holder in holders {
            rows.push([
                group.clone(),
                held.clone(),
                holder.claim.node.clone().unwrap_or_else(|| "-".to_owned()),
                holder.id.clone(),
                format!("{:.0}", holder.since),
                age(holder.since, now),
                holder.claim.attempt.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
    }
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 7]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn as_json(groups: &[ListedGroup], now: Timestamp) -> anyhow::Result<String> {
    let groups: Vec<_> = groups
        .iter()
        .map(|listed| {
            let holders: Vec<_> = listed
                .holders
                .iter()
                .map(|holder| {
                    json!({
                        "id": holder.id,
                        "node": holder.claim.node,
                        "since": holder.since,
                        "age_seconds": now.duration_since(holder.since).as_secs().max(0),
                        "attempt": holder.claim.attempt,
                        "boot_id": holder.claim.boot,
                    })
                })
                .collect();
            json!({ "group": listed.group, "slots": listed.slots, "holders": holders })
        })
        .collect();
    let text = serde_json::to_string_pretty(&json!({ "schema": SCHEMA, "groups": groups }))?;
    Ok(text + "\n")
}

/// The two greatest units of an age: `3d 4h`, `4h 5m`, `5m 6s`, `6s`.
fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (1.., _, _) => format!("{days}d {}h", hours % 24),
        (_, 1.., _) => format!("{hours}h {}m", minutes % 60),
        (_, _, 1..) => format!("{minutes}m {}s", seconds % 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests;
