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
    host.stage(&world.version(), &[]);
    host.waits_for("config-wrong", 30);
    assert!(world.cluster.holders().is_empty(), "no slot is asked for");
    let said = host.exec(&["lockkeeper", "config", "check"]);
    assert_eq!(said.status, 1, "{}{}", said.out, said.err);
}

/// A configuration that goes wrong while the node is down, or a key that an older agent does not know: the
/// node comes home all the same, says what is wrong, and begins nothing.
pub fn a_node_comes_home_under_a_wrong_configuration(world: &World) {
    world.expect_error("the configuration is wrong, and in use only as far as it is right");
    let host = world.host("n3");
    world.hold_up_drains(host);
    host.stage(&world.version(), &[]);
    host.comes_to("draining", 30);
    // The last look at the gates finds it before the reboot.
    host.write("/etc/lockkeeper/config.d/99-story.toml", "[drain]\nnewer = true\n");
    world.let_go();
    host.waits_for("config-wrong", 60);
    assert_eq!(host.boots(), 0);
    // Mended, and wrong once more in the new boot.
    host.write("/etc/systemd/system/story-wrong.service", WRONG_AT_BOOT);
    host.sh("rm /etc/lockkeeper/config.d/99-story.toml && systemctl enable story-wrong");
    host.ends("updated", 120);
    assert_eq!(host.boots(), 1);
    assert_eq!(world.cluster.cordon("n3"), (false, None));
    assert!(world.cluster.holders().is_empty());
    let status = host.status().expect("the agent runs");
    let trouble = status["config_trouble"].as_str().unwrap_or_default();
    assert!(trouble.contains("drain.newer"), "{status}");
    host.stage(&world.version(), &[]);
    let status = host.waits_for("config-wrong", 30);
    assert!(status["reason"]["text"].as_str().is_some_and(|text| text.contains("drain.newer")));
    host.sh("systemctl disable story-wrong; rm /etc/systemd/system/story-wrong.service");
    host.configure_no_more();
    crate::lab::until(120, "the mended node goes round", || (host.boots() == 2).then_some(()));
    host.ends("updated", 60);
}

/// Spoils the configuration before the agent of a new boot reads it.
const WRONG_AT_BOOT: &str = "[Unit]\nBefore=lockkeeper.service\n\
    [Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c 'echo drain.newer = true > /etc/lockkeeper/config.d/99-story.toml'\n\
    [Install]\nWantedBy=multi-user.target\n";
