//! Entries with fields for the journal, by its native protocol.

use std::os::unix::net::UnixDatagram;

use crate::paths::Paths;

/// MESSAGE_ID: finalization of a staged deployment begins.
pub(crate) const FINALIZING: &str = "e8646cd63dff4625b77909a8e7a40994";
/// MESSAGE_ID: finalization has ended well.
pub(crate) const FINALIZED: &str = "dd440e3e549083b63d0efc7dc15255f1";
/// MESSAGE_ID: which deployment this boot runs.
pub(crate) const BOOTED: &str = "7170336a73ba4601bad31af888aa0df7";
/// MESSAGE_ID: a deployment was made.
pub(crate) const DEPLOYED: &str = "9bddbda177cd44d891b1b561a8a0ce9e";
/// MESSAGE_ID: a transaction was started.
pub(crate) const TRANSACTION: &str = "d5bea37a8fc84ff59dbcfd79177b7df8";

/// Sends one entry; a host without a journal loses it, which harms nobody.
pub(crate) fn send(paths: &Paths, message: &str, fields: &[(&str, &str)]) {
    let mut entry = Vec::new();
    let identifier = std::env::args()
        .next()
        .and_then(|name| Some(std::path::Path::new(&name).file_name()?.to_str()?.to_owned()))
        .unwrap_or_else(|| "standin".to_owned());
    put(&mut entry, "MESSAGE", message);
    put(&mut entry, "PRIORITY", "6");
    put(&mut entry, "SYSLOG_IDENTIFIER", &identifier);
    for (key, value) in fields {
        put(&mut entry, key, value);
    }
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.send_to(&entry, paths.journal_socket());
    }
}

/// A value with line breaks is sent with its length.
fn put(entry: &mut Vec<u8>, key: &str, value: &str) {
    entry.extend_from_slice(key.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}
