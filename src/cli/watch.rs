//! `status --watch`: one line that is drawn anew on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use crate::admin::{Client, Status};

use super::status::drain_counts;
use super::words::{Eyes, clean};

/// A line that wraps cannot be drawn anew; this is what every terminal has.
const COLUMNS: usize = 80;

/// Cells of the drain's bar.
const BAR_CELLS: usize = 10;

/// Follows the status until the agent ends (a reboot, say) or the caller has enough.
pub(super) async fn watch(run_dir: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut lines = Client::new(run_dir).follow("/v1/status/watch").await?;
    let draws = !json && io::stdout().is_terminal();
    let mut drawn: Option<String> = None;
    while let Some(text) = lines.next_line().await? {
        if json {
            writeln!(out, "{text}")?;
            out.flush()?;
            continue;
        }
        let status: Status = serde_json::from_str(&text)?;
        let eyes = Eyes::open();
        if draws {
            draw(&status, &mut drawn, out)?;
        } else {
            writeln!(out, "{} {}", eyes.clock(status.at), progress(&status))?;
        }
        out.flush()?;
    }
    if draws {
        writeln!(out)?;
    }
    writeln!(io::stderr(), "The agent has ended; on a node that reboots, try again in a minute.")?;
    Ok(())
}

/// Draws over the last line while the stage is the same, else below it.
fn draw(status: &Status, drawn: &mut Option<String>, out: &mut dyn Write) -> io::Result<()> {
    if drawn.as_ref().is_some_and(|stage| *stage != status.state) {
        writeln!(out)?;
    }
    let line: String = progress(status).chars().take(COLUMNS - 1).collect();
    *drawn = Some(status.state.clone());
    write!(out, "\r\u{1b}[K{line}")
}

/// `n1 draining [#######---] 9 of 12 pods gone, 1 blocked: shop/cart-0 (budget cart)`.
fn progress(status: &Status) -> String {
    let node = status.node.as_deref().unwrap_or("this host");
    let text = match &status.drain {
        Some(drain) if status.state == "draining" => {
            let cells = BAR_CELLS * drain.gone.min(drain.total) / drain.total.max(1);
            let bar = "#".repeat(cells) + &"-".repeat(BAR_CELLS - cells);
            let blocked = drain.obstacles.iter().find(|pod| pod.kind != "terminating");
            let blocked = blocked.map(|pod| {
                let by = pod.budget.as_ref().map(|budget| format!(" (budget {budget})"));
                format!(": {}/{}{}", pod.namespace, pod.pod, by.unwrap_or_default())
            });
            format!("[{bar}] {}{}", drain_counts(drain), blocked.unwrap_or_default())
        }
        Some(_) | None => status.reason.text.clone(),
    };
    clean(&format!("{node} {} {text}", status.state))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::admin::sample;

    #[test]
    fn a_drain_is_one_line() {
        assert_eq!(
            progress(&Status::of(&sample::draining())),
            "n1 draining [#######---] 9 of 12 pods gone, 1 blocked: shop/cart-0 (budget cart)"
        );
        assert_eq!(progress(&Status::of(&sample::idle())), "n1 idle no update waits");
    }

    #[test]
    fn a_terminal_keeps_one_line_a_stage() {
        let (mut out, mut drawn) = (Vec::new(), None);
        let draining = Status::of(&sample::draining());
        draw(&draining, &mut drawn, &mut out).unwrap();
        draw(&draining, &mut drawn, &mut out).unwrap();
        draw(&Status::of(&sample::idle()), &mut drawn, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('\r').count(), 3);
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.lines().all(|line| line.chars().count() < COLUMNS * 2 + 8));
    }
}
