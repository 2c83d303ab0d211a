//! The commands that speak to the agent of this node.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::{Client, HoldRequest, SayRequest, Status, Why};

use super::words::{Eyes, clean};
use super::{history, status};

/// Prints the status.
pub(super) async fn status(run_dir: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let status: Status = Client::new(run_dir).get("/v1/status").await?;
    if json {
        return print_json(&status, out);
    }
    status::write(&status, &Eyes::open(), out)?;
    Ok(())
}

/// Prints the attempts.
pub(super) async fn history(run_dir: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let told = Client::new(run_dir).get("/v1/history").await?;
    if json {
        return print_json(&told, out);
    }
    history::write(&told, &Eyes::open(), out)?;
    Ok(())
}

/// Prints why the agent does nothing more.
pub(super) async fn why(run_dir: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let why: Why = Client::new(run_dir).get("/v1/why").await?;
    if json {
        return print_json(&why, out);
    }
    writeln!(out, "{}", clean(&paragraph(&why, &Eyes::open())))?;
    Ok(())
}

/// Holds the node.
pub(super) async fn hold(run_dir: &Path, reason: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let request = HoldRequest { reason: reason.to_owned(), by: by() };
    let says = Client::new(run_dir).post("/v1/hold", &request).await?;
    writeln!(out, "{}", clean(&says))?;
    Ok(())
}

/// Asks for a reboot without an update.
pub(super) async fn reboot(
    run_dir: &Path,
    reason: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let request = HoldRequest { reason: reason.to_owned(), by: by() };
    let says = Client::new(run_dir).post("/v1/reboot", &request).await?;
    writeln!(out, "{}", clean(&says))?;
    Ok(())
}

/// Takes that back.
pub(super) async fn cancel_reboot(run_dir: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let says = Client::new(run_dir).post("/v1/reboot/cancel", &SayRequest { by: by() }).await?;
    writeln!(out, "{}", clean(&says))?;
    Ok(())
}

/// Ends a hold or a halt.
pub(super) async fn resume(run_dir: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let says = Client::new(run_dir).post("/v1/resume", &SayRequest { by: by() }).await?;
    writeln!(out, "{}", clean(&says))?;
    Ok(())
}

/// Tries now.
pub(super) async fn retry(run_dir: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let says = Client::new(run_dir).post("/v1/retry", &SayRequest { by: by() }).await?;
    writeln!(out, "{}", clean(&says))?;
    Ok(())
}

/// Who sudo works for; the socket itself sees root only.
fn by() -> Option<String> {
    std::env::var("SUDO_USER").ok().filter(|by| !by.trim().is_empty())
}

fn print_json<T: Serialize + DeserializeOwned>(
    value: &T,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    // An error of the pipe must stay one, so that it is told apart.
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    writeln!(out, "{text}")?;
    Ok(())
}

/// What it waits for, since when, what ends it, what helps, what comes then.
fn paragraph(why: &Why, eyes: &Eyes) -> String {
    let who = why.node.as_deref().unwrap_or("This host");
    let mut text =
        format!("{who} is {}: {} ({}).", why.state, why.text.trim_end_matches('.'), why.code);
    if let Some(since) = why.since {
        text.push_str(&format!(" So it has been since {}.", eyes.since(since)));
    }
    let left = why.until.and_then(|until| eyes.until(until));
    let left = left.map(|left| format!(", {left}")).unwrap_or_default();
    text.push_str(&format!(" It ends when {}{left}.", why.ends));
    match &why.help {
        Some(help) => text.push_str(&format!(" {help}")),
        None => text.push_str(" There is nothing for you to do."),
    }
    text.push_str(&format!(" Next: {}.", why.next));
    if let Some(trouble) = &why.config_trouble {
        text.push_str(&format!(" The configuration {trouble}"));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use expect_test::expect;
    use jiff::tz::TimeZone;

    use super::*;
    use crate::admin::sample;
    use crate::lifecycle::Waiting;

    fn eyes() -> Eyes {
        Eyes { zone: TimeZone::UTC, now: "2026-11-30T12:00:00Z".parse().unwrap() }
    }

    #[test]
    fn why_is_one_paragraph() {
        let mut snapshot = sample::draining();
        let budget = sample::progress().obstacles.remove(0);
        snapshot.waiting = Waiting::DrainWouldBlock(vec![budget]);
        let told = paragraph(&Why::of(&snapshot), &eyes());
        expect!["n1 is draining: the drain would not finish: shop/cart-0: disruption budget cart: The disruption budget cart needs 2 healthy pods and has 2 currently (drain-would-block). It ends when those pods could be evicted; the rehearsal is repeated every few minutes. `kubectl get poddisruptionbudgets -A` shows the budgets; `lockkeeper retry` rehearses now. Next: once empty: confirm the slot, look once more, reboot."].assert_eq(&told);
    }

    #[test]
    fn why_on_an_idle_host_asks_for_nothing() {
        let told = paragraph(&Why::of(&sample::idle()), &eyes());
        expect!["n1 is idle: no update waits (no-update). So it has been since 2026-11-30 10:00:00 UTC (2 h ago). It ends when an update is staged or a reboot is asked for. There is nothing for you to do. Next: nothing, until an update is staged or a reboot is asked for."].assert_eq(&told);
    }
}
