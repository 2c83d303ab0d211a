//! Others try for the lock as locksmithd and the login message do: open by name, then lock.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Puts something in the way into the folder.
type Breaks = fn(&Path);

const STATES: [CoordinatorState; 4] = [
    CoordinatorState::Starting,
    CoordinatorState::Running,
    CoordinatorState::RebootPlanned,
    CoordinatorState::Rebooting,
];

fn path(root: &Path) -> PathBuf {
    root.join(FOLDER).join(FILE_NAME)
}

/// `flock` with these arguments on the file.
fn flock(root: &Path, arguments: &[&str]) -> Command {
    let mut flock = Command::new("flock");
    flock.args(["--nonblock", "--exclusive"]).arg(path(root)).args(arguments);
    flock
}

/// What the login message asks: can nobody else lock the file?
fn is_locked(root: &Path) -> bool {
    let status = flock(root, &["--command", "true"]).status();
    !status.expect("this test needs flock (package util-linux)").success()
}

fn text_of(root: &Path) -> String {
    fs::read_to_string(path(root)).unwrap()
}

#[test]
fn the_file_tells_the_state_and_is_locked_in_each() {
    let root = tempfile::tempdir().unwrap();
    let mut ours = UpdateCoordinator::new(root.path(), "fleetlock");
    assert!(!path(root.path()).exists(), "nothing is taken before something is said");
    for state in STATES {
        for _ in 0..2 {
            ours.say(state).unwrap();
            let expected = format!("NAME=lockkeeper\nSTRATEGY=fleetlock\nSTATE={}\n", state.word());
            assert_eq!(text_of(root.path()), expected);
            assert!(is_locked(root.path()), "{state:?}");
        }
    }
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    assert_eq!(mode(&path(root.path())), 0o644);
    assert_eq!(mode(&root.path().join(FOLDER)), 0o755);
    let names = fs::read_dir(root.path().join(FOLDER)).unwrap().count();
    assert_eq!(names, 1, "nothing is left beside it");
    drop(ours);
    assert!(!is_locked(root.path()), "given up with the process");
}

#[test]
fn locksmithd_is_named_with_what_to_do_and_its_end_lets_us_in() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join(FOLDER)).unwrap();
    fs::write(path(root.path()), "STATE=running\nNAME=locksmithd\nSTRATEGY=reboot").unwrap();
    let mut locksmithd = flock(root.path(), &["--command", "echo held; read rest || true"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(locksmithd.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let mut ours = UpdateCoordinator::new(root.path(), "fleetlock");
    for _ in 0..2 {
        let error = ours.say(CoordinatorState::Running).unwrap_err();
        assert!(matches!(error, CoordinatorError::Locksmithd), "{error:?}");
        assert!(error.text().contains("systemctl mask --now locksmithd"), "{error}");
    }
    assert!(text_of(root.path()).contains("locksmithd"), "its file is left alone");
    drop(locksmithd.stdin.take());
    locksmithd.wait().unwrap();
    ours.say(CoordinatorState::Running).unwrap();
    assert!(text_of(root.path()).contains("NAME=lockkeeper"));
}

#[test]
fn other_holders_are_named_as_far_as_they_say() {
    for (text, expected) in [
        ("NAME=lockkeeper\n", "lockkeeper coordinates"),
        ("NAME=\"other one\"\nSTATE=x", "other one coordinates"),
        ("", "another process coordinates"),
        ("NAME=\n", "another process coordinates"),
        ("NAME=x\u{1b}[2J\u{85}y", "x [2J y coordinates"),
        ("NAME=locksmithd2", "locksmithd2 coordinates"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let mut other = UpdateCoordinator::new(root.path(), "none");
        other.say(CoordinatorState::Running).unwrap();
        fs::write(path(root.path()), text).unwrap();
        let mut ours = UpdateCoordinator::new(root.path(), "none");
        let error = ours.say(CoordinatorState::Running).unwrap_err();
        assert!(matches!(error, CoordinatorError::Held { .. }), "{text:?}: {error:?}");
        assert!(error.text().starts_with(expected), "{text:?}: {error}");
        assert!(!error.text().contains(char::is_control), "{error:?}");
    }
    let root = tempfile::tempdir().unwrap();
    let mut other = UpdateCoordinator::new(root.path(), "none");
    other.say(CoordinatorState::Running).unwrap();
    fs::write(path(root.path()), format!("NAME={}", "x".repeat(1 << 20))).unwrap();
    let error = UpdateCoordinator::new(root.path(), "none").say(CoordinatorState::Running);
    assert!(error.unwrap_err().text().starts_with("another process coordinates"));
}

/// Whoever opens the file by its name and locks it, at any moment of our replacing it, never holds
/// the file that has the name.
#[test]
fn nobody_gets_the_lock_between_two_states() {
    let root = tempfile::tempdir().unwrap();
    let mut ours = UpdateCoordinator::new(root.path(), "fleetlock");
    ours.say(CoordinatorState::Starting).unwrap();
    let ends = AtomicBool::new(false);
    let path = path(root.path());
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let file = File::open(&path).expect("the name is always there");
                    let said = fs::read_to_string(&path).unwrap();
                    assert!(said.ends_with('\n') && said.contains("STATE="), "{said:?}");
                    let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
                        continue;
                    };
                    assert!(!is_at(&file, &path).unwrap(), "locked by somebody else");
                }
            });
        }
        let said: Result<(), CoordinatorError> =
            (0..2000).try_for_each(|time| ours.say(STATES[time % STATES.len()]));
        ends.store(true, Ordering::Relaxed);
        said.unwrap();
    });
}

/// Opened before a state was said and locked after it, as by a locksmithd that starts just then.
#[test]
fn who_opened_the_file_a_state_ago_does_not_get_it() {
    let root = tempfile::tempdir().unwrap();
    let mut ours = UpdateCoordinator::new(root.path(), "fleetlock");
    ours.say(CoordinatorState::Starting).unwrap();
    let file = File::open(path(root.path())).unwrap();
    ours.say(CoordinatorState::Running).unwrap();
    let (_, errno) = Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap_err();
    assert_eq!(errno, Errno::EWOULDBLOCK);
}

#[test]
fn a_file_that_was_taken_away_is_put_back_and_one_of_another_is_left() {
    let root = tempfile::tempdir().unwrap();
    let mut ours = UpdateCoordinator::new(root.path(), "fleetlock");
    ours.say(CoordinatorState::Running).unwrap();
    fs::remove_dir_all(root.path().join(FOLDER)).unwrap();
    ours.say(CoordinatorState::Running).unwrap();
    assert!(is_locked(root.path()));
    // Somebody removes it, and another one takes the place.
    fs::remove_file(path(root.path())).unwrap();
    let mut other = UpdateCoordinator::new(root.path(), "other");
    other.say(CoordinatorState::Running).unwrap();
    let error = ours.say(CoordinatorState::Rebooting).unwrap_err();
    assert!(matches!(error, CoordinatorError::Held { .. }), "{error:?}");
    assert!(text_of(root.path()).contains("STRATEGY=other"));
    drop(other);
    ours.say(CoordinatorState::Rebooting).unwrap();
    assert!(text_of(root.path()).contains("STATE=rebooting"));
}

#[test]
fn what_lies_in_the_way_is_named_and_never_waited_for() {
    let broken: [(&str, Breaks); 5] = [
        ("coordinator.conf: ", |folder| fs::create_dir(folder.join(FILE_NAME)).unwrap()),
        ("expected a file", |folder| {
            let mode = nix::sys::stat::Mode::S_IRWXU;
            nix::unistd::mkfifo(&folder.join(FILE_NAME), mode).unwrap();
        }),
        ("coordinator.conf: ", |folder| {
            std::os::unix::fs::symlink("/etc/passwd", folder.join(FILE_NAME)).unwrap();
        }),
        (".coordinator.conf.lockkeeper: ", |folder| {
            fs::create_dir(folder.join(NEXT_NAME)).unwrap();
        }),
        ("run/update-engine: ", |folder| {
            fs::remove_dir(folder).unwrap();
            fs::write(folder, "").unwrap();
        }),
    ];
    for (expected, breaks) in broken {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        breaks(&folder);
        let mut ours = UpdateCoordinator::new(root.path(), "none");
        let error = ours.say(CoordinatorState::Running).unwrap_err();
        assert!(matches!(error, CoordinatorError::Io { .. }), "{error:?}");
        assert!(error.text().contains(expected), "{expected}: {}", error.text());
    }
    // What an earlier process left half done.
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join(FOLDER)).unwrap();
    fs::write(root.path().join(FOLDER).join(NEXT_NAME), "NAME=half").unwrap();
    UpdateCoordinator::new(root.path(), "none").say(CoordinatorState::Running).unwrap();
}

/// Shells run the file.
#[test]
fn a_strategy_is_a_word_and_no_command() {
    for (given, expected) in [
        ("fleetlock", "fleetlock"),
        ("$(reboot)", "__reboot_"),
        ("a b\n;c`d`'\"&|<>{}#~\\", "a_b__c_d____________"),
        ("", ""),
    ] {
        let ours = UpdateCoordinator::new(Path::new("/"), given);
        assert_eq!(ours.strategy, expected, "{given:?}");
    }
    assert_eq!(word(&"x".repeat(1000)).len(), WORD_LENGTH);
}
