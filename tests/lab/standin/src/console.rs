//! What goes to the caller and to systemd.

use std::io::Write;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Prints a line for the caller; a closed pipe is not our problem.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line for the journal of the unit.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The command that is used for `systemctl`.
pub(crate) fn systemctl_name() -> String {
    std::env::var("STANDIN_SYSTEMCTL").unwrap_or_else(|_| "systemctl".to_owned())
}

/// Runs systemctl and waits for it.
pub(crate) fn systemctl(arguments: &[&str]) -> Result<()> {
    let name = systemctl_name();
    let status = Command::new(&name)
        .args(arguments)
        .status()
        .with_context(|| format!("running {name} {}", arguments.join(" ")))?;
    if !status.success() {
        bail!("{name} {}: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Tells systemd about our state, if it wants to know.
pub(crate) fn notify(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
