//! What strace wrote down, read as: a file was replaced for good, or something was said.

/// So that descriptors are named by what they are, and texts are whole. What is traced is what can
/// change a disk or tell anybody.
pub const OPTIONS: [&str; 6] = [
    "--follow-forks",
    "--absolute-timestamps=format:unix,precision:us",
    "--decode-fds=path,socket",
    "--string-limit=65536",
    "--trace=openat,write,writev,pwrite64,fsync,fdatasync,rename,renameat,renameat2,close,sendto,\
    sendmsg,connect",
    "--quiet=attach,exit,personality",
];

/// One system call.
#[derive(Debug, Clone)]
pub struct Call {
    /// `fsync`.
    pub name: String,
    /// From its arguments to its result.
    pub text: String,
    /// The line in which it began, and the one in which it came back.
    begun: usize,
    ended: usize,
    /// When it came back (or was entered, where one line tells both), microseconds since the epoch.
    at: u64,
}

/// Which file, and what is said of it.
pub struct Watched<'a> {
    /// The end of the path that is written first.
    pub new: &'a str,
    /// The end of the path that it is renamed to.
    pub file: &'a str,
    /// The end of the folder's path.
    pub folder: &'a str,
    /// What a call says to others, if it is one that must wait for the disk.
    pub said: &'a dyn Fn(&Call) -> Option<String>,
}

/// What happened, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The file was replaced for good.
    Kept {
        /// By this, in strace's spelling.
        content: String,
        /// When the last step of that came back, microseconds since the epoch.
        at: u64,
    },
    /// This was said.
    Said(String),
}

/// How far the replacement of the file is, and the line in which that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    OnDisk,
    Opened,
    Written,
    Flushed,
    Renamed,
}

// === impl Call ===

impl Call {
    /// The first of these that it sends.
    pub fn sends(&self, words: &[&str]) -> Option<String> {
        let sends = ["write", "writev", "sendto", "sendmsg"].contains(&self.name.as_str());
        let word = words.iter().find(|word| self.text.contains(**word))?;
        sends.then(|| (*word).to_owned())
    }

    fn names(&self, path: &str) -> bool {
        self.text.contains(&format!("{path}>"))
    }

    fn is_good(&self) -> bool {
        self.text.rsplit_once(" = ").is_some_and(|(_, result)| !result.starts_with('-'))
    }
}

/// What a trace tells of a file; the error is what was done out of order.
pub fn told(trace: &str, watched: &Watched<'_>) -> Result<Vec<Told>, String> {
    let Watched { new, file, folder, said } = watched;
    let (mut told, mut content) = (Vec::new(), String::new());
    // A step counts from the line in which it came back.
    let (mut stand, mut since) = (Stand::OnDisk, 0);
    for call in calls(trace)? {
        let renames = call.name.starts_with("rename") && call.text.contains(&format!("{new}\""));
        let (from, to) = match call.name.as_str() {
            "openat" if call.text.contains(&format!("{new}\"")) => (Stand::OnDisk, Stand::Opened),
            "write" | "writev" | "pwrite64" if call.names(new) => {
                content.push_str(&call.text);
                let from = if stand == Stand::Written { stand } else { Stand::Opened };
                (from, Stand::Written)
            }
            "fsync" | "fdatasync" if call.names(new) => (Stand::Written, Stand::Flushed),
            _ if renames && call.text.contains(&format!("{file}\"")) => {
                (Stand::Flushed, Stand::Renamed)
            }
            "fsync" if call.names(folder) && stand != Stand::OnDisk => {
                told.push(Told::Kept { content: std::mem::take(&mut content), at: call.at });
                (Stand::Renamed, Stand::OnDisk)
            }
            _ => match said(&call) {
                None => continue,
                Some(words) => {
                    told.push(Told::Said(words));
                    (Stand::OnDisk, Stand::OnDisk)
                }
            },
        };
        if stand != from || call.begun < since {
            let Call { name, text, .. } = call;
            let text: String = text.chars().take(300).collect();
            return Err(format!("expected {from:?}, and it is {stand:?}, at {name}({text}"));
        }
        if !call.is_good() {
            return Err(format!("it failed: {}({}", call.name, call.text));
        }
        if to != from || to != Stand::OnDisk {
            since = call.ended;
        }
        stand = to;
    }
    Ok(told)
}

/// All calls, in the order in which they began. Those of several threads are cut into two lines.
fn calls(trace: &str) -> Result<Vec<Call>, String> {
    let mut calls: Vec<Call> = Vec::new();
    let mut open: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for (at, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((time, rest)) = rest.trim_start().split_once(' ') else { continue };
        let time = time.replace('.', "").parse().map_err(|_| format!("no time: {line}"))?;
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let (_, tail) = resumed.split_once(" resumed>").ok_or("half a line")?;
            // One that was under way when strace came.
            let Some(index) = open.remove(thread) else { continue };
            calls[index].text.push_str(tail);
            calls[index].ended = at;
            calls[index].at = time;
            continue;
        }
        let Some((name, text)) = rest.split_once('(') else { continue };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let unfinished = text.strip_suffix(" <unfinished ...>");
        if unfinished.is_some() {
            open.insert(thread, calls.len());
        }
        let text = unfinished.unwrap_or(text).to_owned();
        calls.push(Call { name: name.to_owned(), text, begun: at, ended: at, at: time });
    }
    Ok(calls)
}
