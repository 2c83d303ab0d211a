//! Who is at the other end of a connection from this host.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use crate::config::file::read_text_bounded;

/// Zincati's user; its agent refuses to run as another one.
const USER: &str = "zincati";

/// The users of the host, where it looks first in front. On image-based systems those of the image
/// lie in /usr/lib.
const USER_FILES: [&str; 2] = ["etc/passwd", "usr/lib/passwd"];

/// Thousands of users.
const USERS_BYTES_MAX: u64 = 1 << 20;

/// The kernel's tables of TCP connections: proc(5). A socket of IPv6 that speaks IPv4 stands in the
/// second. `/proc/net` itself is hidden where a unit has `ProcSubset=pid`.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// 200 000 connections at 150 bytes each; the search ends at the one that is looked for.
const TABLE_BYTES_MAX: u64 = 32 << 20;

/// While a table is read piece by piece, a line of it can slip through between two pieces.
const LOOKS: usize = 3;

/// The kernel needs milliseconds, also for large tables.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);

/// What `st` says of a socket that only listens.
const LISTENING: &str = "0A";

/// Finds out who calls.
#[derive(Debug, Clone)]
pub(super) struct Callers {
    root: PathBuf,
    tables: [PathBuf; 2],
}

/// Why one may not call: the sentence for it.
pub(super) type NotAllowed = String;

// === impl Callers ===

impl Callers {
    /// On the host whose files are seen under `root`.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, tables: TABLES.map(PathBuf::from) }
    }

    /// With other tables than the kernel's.
    #[cfg(test)]
    pub(super) fn with_tables(self, tables: [PathBuf; 2]) -> Self {
        Self { tables, ..self }
    }

    /// Whether the one who connected from `from` to `to` may call: root, or the user `zincati`.
    pub(super) async fn check(&self, from: SocketAddr, to: SocketAddr) -> Result<(), NotAllowed> {
        let unknown = |why: &str| format!("who calls cannot be found out: {why}");
        if !from.ip().to_canonical().is_loopback() {
            return Err(format!("calls from this host alone, found {}", from.ip()));
        }
        let callers = self.clone();
        let looked = tokio::task::spawn_blocking(move || callers.allowed(from, to));
        match timeout(LOOKED_WITHIN, looked).await {
            Ok(Ok(allowed)) => allowed,
            Ok(Err(error)) => Err(unknown(&error.to_string())),
            Err(_) => Err(unknown("the kernel's tables were not read in time")),
        }
    }

    fn allowed(&self, from: SocketAddr, to: SocketAddr) -> Result<(), NotAllowed> {
        let unknown = |why: String| format!("who calls cannot be found out: {why}");
        let uid = match owner(&self.tables, from, to) {
            Ok(Some(uid)) => uid,
            Ok(None) => {
                return Err(unknown(format!("{} does not show it", self.tables[0].display())));
            }
            Err(why) => return Err(unknown(why)),
        };
        if uid == 0 {
            return Ok(());
        }
        let zincati = user(&self.root)?;
        if zincati == Some(uid) {
            return Ok(());
        }
        let zincati = zincati.map_or("there is none".to_owned(), |uid| format!("uid {uid}"));
        Err(format!("expected root or the user {USER} ({zincati}), found uid {uid}"))
    }
}

/// The uid of the socket at the other end of a connection; `None`: there is no such socket.
fn owner(tables: &[PathBuf], from: SocketAddr, to: SocketAddr) -> Result<Option<u32>, String> {
    for _ in 0..LOOKS {
        for table in tables {
            let found = File::open(table).and_then(|file| find(file, from, to));
            match found {
                Ok(Some(uid)) => return Ok(Some(uid)),
                Ok(None) => {}
                // Without IPv6 there is no such table.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("{}: {error}", table.display())),
            }
        }
    }
    Ok(None)
}

/// Looks for the socket that connects `from` to `to`: the caller's own, not ours.
fn find(table: impl Read, from: SocketAddr, to: SocketAddr) -> io::Result<Option<u32>> {
    for line in BufReader::new(table.take(TABLE_BYTES_MAX)).lines() {
        if let Some((local, remote, uid)) = socket(&line?)
            && (local, remote) == (canonical(from), canonical(to))
        {
            return Ok(Some(uid));
        }
    }
    Ok(None)
}

/// Local address, remote address and uid of a line. `None`: none, or a socket that nobody has any
/// more: the kernel calls root the owner of what is left of those.
fn socket(line: &str) -> Option<(SocketAddr, SocketAddr, u32)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let local = address(words.next()?)?;
    let remote = address(words.next()?)?;
    let state = words.next()?;
    // Behind the queues, the timer and the retransmissions.
    let uid = words.nth(3)?.parse().ok()?;
    let inode = words.nth(1)?;
    (state != LISTENING && inode != "0").then_some((local, remote, uid))
}

/// An address as the tables have it: words of 32 bits in the order of the host, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..ip.len()).step_by(8) {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let four = <[u8; 4]>::try_from(bytes.as_slice()).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    let ip = four.or_else(|_| {
        <[u8; 16]>::try_from(bytes.as_slice()).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)))
    });
    Some(canonical(SocketAddr::new(ip.ok()?, port)))
}

/// IPv4 as such, and without the parts of an address that tell no socket from another.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The uid of Zincati's user; `None`: the host has none.
fn user(root: &Path) -> Result<Option<u32>, String> {
    for file in USER_FILES {
        let path = root.join(file);
        let text = match read_text_bounded(&path, USERS_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let uid = text.lines().find_map(|line| {
            let mut words = line.split(':');
            (words.next()? == USER).then_some(())?;
            words.nth(1)?.parse().ok()
        });
        if uid.is_some() {
            return Ok(uid);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:2384 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1
   2: 0100007F:9C40 0100007F:2384 01 00000000:00000000 00:00000000 00000000   991        0 13 1 0 20 4 30 10 -1
   3: 0100007F:9C41 0100007F:2384 06 00000000:00000000 03:000017A0 00000000     0        0 0 3 0
   4: 0100007F:9C42 0100007F:2384 05 00000000:00000000 00:00000000 00000000     0        0 0 3 0
   5: 0200007F:9C40 0100007F:2384 01 00000000:00000000 00:00000000 00000000  1000        0 14 1 0 20 4 30 10 -1
";
    const TABLE_6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:9C40 00000000000000000000000001000000:2384 01 00000000:00000000 00:00000000 00000000    42        0 15 1 0
   1: 0000000000000000FFFF00000100007F:9C43 0000000000000000FFFF00000100007F:2384 01 00000000:00000000 00:00000000 00000000    43        0 16 1 0
";

    #[cfg(target_endian = "little")]
    #[test]
    fn the_callers_socket_is_found_and_no_other() {
        let both = format!("{TABLE}{TABLE_6}");
        for (from, to, uid) in [
            ("127.0.0.1:40000", "127.0.0.1:9092", Some(991)),
            ("127.0.0.2:40000", "127.0.0.1:9092", Some(1000)),
            ("127.0.0.1:40000", "127.0.0.1:9093", None),
            // What is left of a connection belongs to nobody, though the kernel says root.
            ("127.0.0.1:40001", "127.0.0.1:9092", None),
            ("127.0.0.1:40002", "127.0.0.1:9092", None),
            ("[::1]:40000", "[::1]:9092", Some(42)),
            ("127.0.0.1:40003", "127.0.0.1:9092", Some(43)),
            ("[::ffff:127.0.0.1]:40000", "127.0.0.1:9092", Some(991)),
        ] {
            let found = find(both.as_bytes(), from.parse().unwrap(), to.parse().unwrap());
            assert_eq!(found.unwrap(), uid, "{from} to {to}");
        }
    }

    #[tokio::test]
    async fn the_kernels_own_table_shows_us() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = tokio::net::TcpListener::bind(address).await else { continue };
            let to = listener.local_addr().unwrap();
            let client = tokio::net::TcpStream::connect(to).await.unwrap();
            let (_server, from) = listener.accept().await.unwrap();
            let tables = TABLES.map(PathBuf::from);
            let uid = owner(&tables, from, to).unwrap();
            assert_eq!(uid, Some(nix::unistd::geteuid().as_raw()), "{address}");
            // The other direction is ours as well, but it is another socket.
            assert!(owner(&tables, to, from).unwrap().is_some());
            drop(client);
            let gone = SocketAddr::new(to.ip(), 1);
            assert_eq!(owner(&tables, gone, to).unwrap(), None);
        }
    }

    #[test]
    fn zincatis_user_is_found_where_the_image_keeps_it() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(user(root.path()), Ok(None));
        fs::create_dir_all(root.path().join("usr/lib")).unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        let line =
            "root:x:0:0::/:/bin/sh\nzincati-x:x:1::::\nzincati:x:981:981:a:/:/sbin/nologin\n";
        fs::write(root.path().join("usr/lib/passwd"), line).unwrap();
        fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:/bin/sh\nzincati\n").unwrap();
        assert_eq!(user(root.path()), Ok(Some(981)));
        fs::write(root.path().join("etc/passwd"), line.replace("981", "982")).unwrap();
        assert_eq!(user(root.path()), Ok(Some(982)));
    }

    proptest! {
        #[test]
        fn any_table_is_read(
            text in "([0-9A-F]{0,9}|[0-9A-F]{32}|:|\\PC| |\n|0100007F:2384 ){0,60}",
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let (from, to) = (SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 1], 2)));
            prop_assert_eq!(find(text.as_bytes(), from, to).unwrap(), None);
            prop_assert!(find(&bytes[..], from, to).map_or(true, |found| found.is_none()));
        }
    }
}
