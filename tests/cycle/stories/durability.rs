//! What others hear is on disk, by the agent's own system calls.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::host::{Host, text};
use crate::lab::until;
use crate::trace::{self, Told, Watched};
use crate::world::World;

/// strace on a host's agent; it ends with what it traces.
struct Strace(Child);

/// Each record is written, flushed, renamed and its folder flushed, before the slot is asked for,
/// before a pod is evicted, and before the reboot is.
pub fn the_record_is_on_disk_before_anybody_hears(world: &World) {
    let host = world.host("n1");
    world.cluster.pin("cart", "n1");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let strace = Strace::on_agent(host, &file);
    host.stage(&world.version(), &[]);
    host.comes_to("settling", 90);
    strace.end();
    host.ends("updated", 60);
    let watched = Watched {
        new: "/var/lib/lockkeeper/record.new",
        file: "/var/lib/lockkeeper/record",
        folder: "/var/lib/lockkeeper",
        said: &|call| call.sends(&["POST /v1/pre-reboot", "FinalizeDeployment"]),
    };
    let text = std::fs::read_to_string(&file).unwrap();
    let told = trace::told(&text, &watched).unwrap_or_else(|wrong| panic!("{wrong}"));
    let kept = |told: &Told| match told {
        Told::Kept { content, at } => Some((content.replace('\\', ""), *at)),
        Told::Said(_) => None,
    };
    let before = |word: &str, stage: &str| {
        let said = |one: &Told| matches!(one, Told::Said(said) if said == word);
        let at = told.iter().position(said).unwrap_or_else(|| panic!("nobody said {word}"));
        let (content, _) = told[..at].iter().rev().find_map(kept).expect("a record before");
        let stage = format!(r#""stage":"{stage}""#);
        assert!(content.contains(&stage), "before {word}: {content}");
    };
    before("POST /v1/pre-reboot", "requesting");
    before("FinalizeDeployment", "rebooting");
    let evicted = first_eviction(world, host, &told.iter().find_map(kept).expect("a record").1);
    let mut records = told.iter().filter_map(kept).rev();
    let (content, _) = records.find(|(_, at)| *at < evicted).expect("a record");
    for words in [r#""stage":"draining""#, r#""cordon":"ours""#, r#""state":"held""#] {
        assert!(content.contains(words), "before the eviction: {content}");
    }
    world.cluster.sweep();
}

/// When the API server was first asked by this host's agent, after that time, to evict a pod and
/// mean it; microseconds since the epoch.
fn first_eviction(world: &World, host: &Host, after: &u64) -> u64 {
    let audit = std::fs::read_to_string(world.folder().join("audit.log")).unwrap();
    let user = format!("system:node:{}", host.name);
    let times = audit.lines().filter(|line| line.contains("/eviction?")).filter_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        let meant = !text(&event["requestURI"]).contains("dryRun");
        let time: jiff::Timestamp = text(&event["requestReceivedTimestamp"]).parse().ok()?;
        let time = u64::try_from(time.as_microsecond()).ok()?;
        (meant && event["user"]["username"] == user.as_str() && time > *after).then_some(time)
    });
    times.min().expect("a pod was evicted")
}

// === impl Strace ===

impl Strace {
    /// Returns once the agent is traced.
    fn on_agent(host: &Host, file: &std::path::Path) -> Self {
        let inside = host.sh("systemctl show --property=MainPID --value lockkeeper");
        let pid = seen_from_here(host, inside.trim());
        let strace = Command::new("strace")
            .args(trace::OPTIONS)
            .args(["--attach", &pid, "--output"])
            .arg(file)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace is there");
        until(20, "the agent is traced", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
            let traced = |task: std::io::Result<std::fs::DirEntry>| {
                let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
                let line = status.lines().find(|line| line.starts_with("TracerPid:"))?;
                (line != "TracerPid:\t0").then_some(())
            };
            tasks.map(traced).all(|one| one.is_some()).then_some(())
        });
        Self(strace)
    }

    /// Waits until it has ended with the agent.
    fn end(mut self) {
        until(20, "strace ends", || self.0.try_wait().expect("strace"));
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The machine's id of a process that a host knows by this one.
fn seen_from_here(host: &Host, inside: &str) -> String {
    let of_host = format!("/{}/", host.name);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let found = processes.map(|entry| entry.path()).find(|path| {
        let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        read("comm").trim() == "lockkeeper"
            && read("cgroup").contains(&of_host)
            && read("status").lines().any(|line| {
                line.starts_with("NSpid:") && line.split_whitespace().last() == Some(inside)
            })
    });
    let found = found.expect("the agent, seen from the machine");
    found.file_name().unwrap().to_string_lossy().into_owned()
}
