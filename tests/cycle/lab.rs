//! The lab as a whole: tests/lab/lab, and the guard that ends it when this process does not.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/lab");

/// What a command said.
#[derive(Debug)]
pub struct Said {
    /// Its exit status; -1 when it was killed.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// A lab that is up.
pub struct Lab {
    /// Its state.
    pub folder: PathBuf,
    /// Ends the lab that we started when we are killed.
    guard: Option<Child>,
}

// === impl Said ===

impl Said {
    /// Its output, if it went well.
    #[track_caller]
    pub fn good(self) -> String {
        assert!(self.status == 0, "it failed with {}: {}{}", self.status, self.out, self.err);
        self.out
    }
}

// === impl Lab ===

impl Lab {
    /// Uses the lab that is up, or brings one up.
    pub fn new() -> Self {
        let folder = std::env::var_os("LAB_DIR").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/lab"),
            PathBuf::from,
        );
        if folder.join("run/up").exists()
            && lab(&["kubectl", "get", "--raw", "/readyz"]).status == 0
        {
            eprintln!("using the lab in {}, which stays up", folder.display());
            let lab = Self { folder, guard: None };
            let built = env!("CARGO_BIN_EXE_lockkeeper");
            for host in lab.hosts() {
                self::lab(&["install-agent", &host, built]).good();
            }
            return lab;
        }
        // Reads until its input ends: with our word that all is done, or without it with our end.
        let guard = Command::new("setsid")
            .args(["sh", "-c", "read -r word; [ \"$word\" = done ] || exec \"$0\" down", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a guard for the lab");
        let lab = Self { folder, guard: Some(guard) };
        let up = Command::new(SCRIPT).arg("up").stdin(Stdio::null()).status().expect("lab up");
        assert!(up.success(), "the lab did not come up");
        lab
    }

    /// The names of the hosts.
    pub fn hosts(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.folder.join("hosts"))
            .expect("the lab's hosts")
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with('n'))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        use std::io::Write;
        let Some(mut guard) = self.guard.take() else { return };
        let down = lab(&["down"]);
        if down.status != 0 {
            eprintln!("the lab did not end: {}", down.err);
        }
        if let Some(mut word) = guard.stdin.take() {
            drop(word.write_all(b"done\n"));
        }
        drop(guard.wait());
    }
}

/// Runs a command of the lab to its end.
pub fn lab(arguments: &[&str]) -> Said {
    lab_with(arguments, "")
}

/// The same with something on its standard input.
pub fn lab_with(arguments: &[&str], input: &str) -> Said {
    use std::io::Write;
    let mut child = Command::new(SCRIPT)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tests/lab/lab runs");
    // Small texts only: the pipe takes them whole.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("its output");
    Said {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Looks until there is something to see, for so many seconds (times `LAB_PATIENCE`) at most.
#[track_caller]
pub fn until<T>(seconds: u64, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let patience = std::env::var("LAB_PATIENCE").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds * patience.unwrap_or(1));
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "waited {seconds} s in vain until {what}");
        // Sleeps: what it looks at is other programs' state, which tells nobody when it changes.
        std::thread::sleep(Duration::from_millis(100));
    }
}
