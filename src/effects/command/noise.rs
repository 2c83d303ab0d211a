//! Programs of ill will: they end when their time is over, and what they say can be shown.

#![allow(clippy::unwrap_used)]

use std::os::unix::ffi::OsStrExt;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

const LONG: Duration = Duration::from_secs(60);

async fn shell(script: &str, within: Duration) -> Result<Ended, CommandError> {
    run(Path::new("/bin/sh"), &["-c", script], within).await
}

#[tokio::test]
async fn each_bad_end_is_told_in_plain_words() {
    for (script, expected) in [
        ("kill -SEGV $$", "signal: 11"),
        ("kill -KILL $$", "signal: 9"),
        ("exit 255", "exit status: 255"),
        (
            "printf 'a\\033[2J\\nLOCKKEEPER_TO=rebooting\\001\\n'; exit 1",
            "LOCKKEEPER_TO=rebooting\"",
        ),
        ("printf '\\377\\376\\000\\n'; exit 1", "exit status: 1"),
        ("head -c 100000 /dev/zero | tr '\\0' y; exit 1", "exit status: 1"),
        ("exec >&- 2>&-; exit 1", "exit status: 1"),
    ] {
        let failure = shell(script, LONG).await.unwrap().failure().unwrap();
        assert!(failure.contains(expected), "{script}: {failure}");
        assert!(!failure.chars().any(char::is_control), "{script}: {failure:?}");
        assert!(failure.chars().count() < 1000, "{script}");
    }
}

#[tokio::test]
async fn one_that_leaves_its_group_or_floods_without_end_is_not_waited_for() {
    // It takes the pipes along and cannot be killed with its group.
    let away = "setsid sh -c 'echo $$; exec sleep 20' & sleep 0.1; exit 3";
    let ended = tokio::time::timeout(LONG, shell(away, LONG)).await.unwrap().unwrap();
    assert_eq!(ended.status.code(), Some(3));
    let left: i32 = ended.output.trim().parse().unwrap();
    let _ = nix::sys::signal::kill(Pid::from_raw(left), Signal::SIGKILL);
    for flood in [
        "cat /dev/zero",
        "cat /dev/zero >&2",
        "while :; do echo x; done",
        "trap '' TERM; cat /dev/zero",
    ] {
        let ended = tokio::time::timeout(LONG, shell(flood, Duration::from_millis(500))).await;
        assert!(matches!(ended, Ok(Err(CommandError::TimedOut { .. }))), "{flood}: {ended:?}");
    }
}

#[test]
fn any_output_is_told_in_plain_words_and_bounded() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let folder = tempfile::tempdir().unwrap();
    let said = (proptest::collection::vec(any::<u8>(), 0..6000), 1..=255_u8, any::<bool>());
    let ran = TestRunner::new(config).run(&said, |(bytes, code, to_errors)| {
        let file = folder.path().join("says");
        std::fs::write(&file, &bytes).unwrap();
        let file = String::from_utf8_lossy(file.as_os_str().as_bytes()).into_owned();
        let to = if to_errors { ">&2" } else { "" };
        let ended =
            runtime.block_on(shell(&format!("cat {file} {to}; exit {code}"), LONG)).unwrap();
        prop_assert_eq!(ended.status.code(), Some(i32::from(code)));
        let failure = ended.failure().unwrap();
        prop_assert!(!failure.chars().any(char::is_control), "{failure:?}");
        prop_assert!(failure.chars().count() < 3000);
        prop_assert!(ended.output.len() <= 3 * OUTPUT_LENGTH);
        Ok(())
    });
    ran.unwrap();
}
