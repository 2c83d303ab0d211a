//! What people type.

use serde_json::Value;

use crate::world::World;

/// Only root speaks to the agent; anybody else is told so.
pub fn another_user_is_turned_away(world: &World) {
    let host = world.host("n1");
    for words in [vec!["status"], vec!["why"], vec!["history"], vec!["hold", "x"], vec!["retry"]] {
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "lockkeeper"];
        let said = host.exec(&[&nobody[..], &words].concat());
        assert_eq!(said.status, 1, "{words:?}: {}{}", said.out, said.err);
        assert!(said.err.contains("root"), "{words:?} says who may: {}", said.err);
        assert_eq!(said.out, "", "{words:?}");
    }
    assert_eq!(host.reason(), "no-update");
}

/// `status --json` has the keys that the golden file has, of that version.
pub fn the_status_keeps_its_schema(world: &World) {
    let golden: Value = serde_json::from_str(include_str!("../../golden/status.json")).unwrap();
    for host in world.hosts() {
        let status = host.status().expect("the agent answers");
        assert_eq!(status["schema"], golden["schema"]);
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&status), keys(&golden), "{}", host.name);
        assert_eq!(status["node"], host.name.as_str());
    }
}

/// A reload of something wrong keeps what there was, and names file and key.
pub fn a_wrong_configuration_is_refused(world: &World) {
    world.expect_error("the new configuration is wrong");
    let host = world.host("n2");
    host.configure("[drain]\ndeadlin = \"5s\"\n");
    crate::lab::until(10, "the agent refuses it", || {
        let line =
            host.entries().iter().map(crate::journal::Entry::line).find(|l| l.contains("<3>"));
        line.filter(|line| line.contains("99-story.toml") && line.contains("deadlin"))
    });
    assert_eq!(host.reason(), "no-update", "the agent goes on");
    let said = host.exec(&["lockkeeper", "config", "check"]);
    assert_eq!(said.status, 1, "{}{}", said.out, said.err);
}
