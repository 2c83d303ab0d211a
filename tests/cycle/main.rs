//! The cycle on real parts: a real control plane and hosts that really reboot.

#[test]
fn the_lab_is_there() {
    assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/lab").exists());
}
