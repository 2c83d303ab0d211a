//! Which files count: order, replacement, masks, and files that cannot be.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::config::*;

use super::{errors, host};

/// The value of `drain.parallel` and where it came from.
fn parallel(root: &Path) -> (String, String) {
    let loaded = load(root).unwrap();
    let value = loaded.values.iter().find(|value| value.key == "drain.parallel").unwrap();
    let origin = value.origin.to_string().replace(root.to_str().unwrap(), "");
    (value.text.clone().unwrap(), origin)
}

fn relative(paths: &[PathBuf], root: &Path) -> Vec<String> {
    paths.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
}

#[test]
fn the_name_decides_the_order_and_the_folder_which_of_a_name() {
    let text = |n: u32| format!("# A comment.\n[drain]\nparallel = {n}\n");
    let (one, two, three, four) = (text(1), text(2), text(3), text(4));
    let usr = ("usr/lib/lockkeeper/config.d/50.toml", one.as_str());
    let run = ("run/lockkeeper/config.d/50.toml", two.as_str());
    let etc = ("etc/lockkeeper/config.d/50.toml", three.as_str());
    let late = ("usr/lib/lockkeeper/config.d/60.toml", four.as_str());
    let table = [
        (vec![usr], "1", "/usr/lib/lockkeeper/config.d/50.toml:3"),
        (vec![usr, run], "2", "/run/lockkeeper/config.d/50.toml:3"),
        (vec![usr, etc], "3", "/etc/lockkeeper/config.d/50.toml:3"),
        (vec![run, etc], "3", "/etc/lockkeeper/config.d/50.toml:3"),
        (vec![usr, run, etc], "3", "/etc/lockkeeper/config.d/50.toml:3"),
        // A later name wins, although its folder is the vendor's.
        (vec![usr, run, etc, late], "4", "/usr/lib/lockkeeper/config.d/60.toml:3"),
        (vec![], "10", "default"),
    ];
    for (files, value, origin) in table {
        let root = host(&files);
        assert_eq!(parallel(root.path()), (value.to_owned(), origin.to_owned()), "{files:?}");
    }
}

#[test]
fn a_replaced_file_has_no_say_at_all() {
    let root = host(&[
        ("usr/lib/lockkeeper/config.d/a.toml", "drain.parallel = 1\nthis = \"is broken\""),
        ("etc/lockkeeper/config.d/a.toml", "drain.deadline = \"1m\"\n"),
    ]);
    assert_eq!(parallel(root.path()), ("10".to_owned(), "default".to_owned()));
    let loaded = load(root.path()).unwrap();
    assert_eq!(relative(&loaded.files, root.path()), ["etc/lockkeeper/config.d/a.toml"]);
    let masked = Masked {
        file: root.path().join("usr/lib/lockkeeper/config.d/a.toml"),
        by: root.path().join("etc/lockkeeper/config.d/a.toml"),
    };
    assert_eq!(loaded.masked, [masked]);
}

#[test]
fn a_link_to_dev_null_or_an_empty_file_masks() {
    let vendor = ("usr/lib/lockkeeper/config.d/a.toml", "drain.parallel = 1\n");
    let root = host(&[vendor, ("etc/lockkeeper/config.d/a.toml", "")]);
    assert_eq!(parallel(root.path()).0, "10", "an empty file");

    let root = host(&[vendor]);
    let folder = root.path().join("etc/lockkeeper/config.d");
    fs::create_dir_all(&folder).unwrap();
    symlink("../../../null", folder.join("a.toml")).unwrap();
    symlink("/dev/null", root.path().join("null")).unwrap();
    assert_eq!(parallel(root.path()).0, "10", "a link to a link");
    fs::remove_file(folder.join("a.toml")).unwrap();
    symlink("/dev/null", folder.join("a.toml")).unwrap();
    assert_eq!(parallel(root.path()).0, "10", "a link");
    let loaded = load(root.path()).unwrap();
    assert!(loaded.files.is_empty());
    assert_eq!(loaded.masked[0].by, folder.join("a.toml"));
}

#[test]
fn lists_and_headers_are_replaced_as_a_whole_and_keys_one_by_one() {
    let window =
        |day: &str| format!("[[windows]]\ndays = \"{day}\"\nstart = \"01:00\"\nlength = \"1h\"\n");
    let first = format!(
        "slot = {{ backend = \"none\", headers = {{ a = \"1\", b = \"2\" }} }}\n{}{}",
        window("mon"),
        window("tue")
    );
    let second = format!("slot.headers = {{ c = \"3\" }}\n{}", window("wed"));
    let root = host(&[
        ("etc/lockkeeper/config.d/1.toml", &first),
        ("etc/lockkeeper/config.d/2.toml", &second),
    ]);
    let loaded = load(root.path()).unwrap();
    assert_eq!(loaded.settings.policy.windows.to_string(), "wed 01:00 for 1h, UTC");
    assert_eq!(loaded.settings.slot, Some(SlotBackend::None), "a key of its own");
    let headers = loaded.values.iter().find(|value| value.key == "slot.headers").unwrap();
    assert_eq!(headers.text.as_deref(), Some("{ \"c\" = \"***\" }"));

    fs::write(root.path().join("etc/lockkeeper/config.d/3.toml"), "windows = []\n").unwrap();
    assert!(load(root.path()).unwrap().settings.policy.windows.is_empty(), "taken back");
}

#[test]
fn only_what_nobody_means_as_configuration_is_passed_over() {
    let root = host(&[
        ("etc/lockkeeper/config.d/.hidden", "x"),
        ("etc/lockkeeper/config.d/.a.toml.swp", "x"),
        ("etc/lockkeeper/config.d/a.toml~", "x"),
        ("etc/lockkeeper/config.d/README", "x"),
        ("etc/lockkeeper/config.d/README.md", "x"),
    ]);
    assert!(load(root.path()).unwrap().files.is_empty());

    let root = host(&[
        ("usr/lib/lockkeeper/config.d/50.conf", ""),
        ("etc/lockkeeper/config.d/50.TOML", ""),
        ("etc/lockkeeper/config.d/50.toml.rpmsave", ""),
        ("etc/lockkeeper/config.d/50.yaml", "slot: none"),
        ("etc/lockkeeper/config.d/more/50.toml", ""),
    ]);
    let why = "expected a name that ends in .toml, or the file would be ignored: rename it or take it away";
    assert_eq!(
        errors(root.path()),
        [
            format!("/usr/lib/lockkeeper/config.d/50.conf: {why}"),
            format!("/etc/lockkeeper/config.d/50.TOML: {why}"),
            format!("/etc/lockkeeper/config.d/50.toml.rpmsave: {why}"),
            format!("/etc/lockkeeper/config.d/50.yaml: {why}"),
            format!("/etc/lockkeeper/config.d/more: {why}"),
        ]
        .join("\n")
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let root = host(&[]);
    let folder = root.path().join("etc/lockkeeper/config.d");
    fs::create_dir_all(folder.join("1-folder.toml")).unwrap();
    symlink("nowhere.toml", folder.join("2-link.toml")).unwrap();
    symlink("3-loop.toml", folder.join("3-loop.toml")).unwrap();
    symlink("/dev/zero", folder.join("4-endless.toml")).unwrap();
    nix::unistd::mkfifo(&folder.join("5-pipe.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(folder.join("6-latin.toml"), b"# one\n# caf\xe9\n").unwrap();
    fs::write(folder.join("7-long.toml"), "#".repeat((1 << 20) + 1)).unwrap();
    fs::write(folder.join("8-good.toml"), "#".repeat(1 << 20)).unwrap();
    let etc = "/etc/lockkeeper/config.d";
    assert_eq!(
        errors(root.path()),
        [
            format!("{etc}/1-folder.toml: expected a file, found a folder"),
            format!("{etc}/2-link.toml: expected a file, found nothing (or a link to nothing)"),
            format!("{etc}/3-loop.toml: expected a file that can be read: Too many levels of symbolic links (os error 40)"),
            format!("{etc}/4-endless.toml: expected a file, found a pipe, a socket or a device"),
            format!("{etc}/5-pipe.toml: expected a file, found a pipe, a socket or a device"),
            format!("{etc}/6-latin.toml: expected UTF-8 text, found a byte that is none in line 2"),
            format!("{etc}/7-long.toml: expected at most 1 MiB, found more"),
        ]
        .join("\n")
    );
}

#[test]
fn a_folder_that_is_none_is_named() {
    let root = host(&[("etc/lockkeeper/config.d", "a file")]);
    assert_eq!(
        errors(root.path()),
        "/etc/lockkeeper/config.d: expected a folder, found a file where a folder must be"
    );
}

#[test]
fn named_files_and_folders_stand_alone() {
    let root = host(&[
        ("etc/lockkeeper/config.d/a.toml", "drain.parallel = 1\n"),
        ("some/where.conf", "drain.parallel = 2\ndrain.deadline = \"1m\"\n"),
        ("some/folder/2.toml", "drain.parallel = 4\n"),
        ("some/folder/1.toml", "drain.parallel = 3\n"),
    ]);
    let some = |name: &str| root.path().join("some").join(name);
    let parallel = |paths: &[PathBuf]| load_files(paths).map(|l| l.settings.drain.parallel);
    assert_eq!(parallel(&[some("where.conf")]), Ok(2), "a named file may have any name");
    assert_eq!(parallel(&[some("folder")]), Ok(4));
    assert_eq!(parallel(&[some("folder"), some("where.conf")]), Ok(2), "in the order given");
    assert_eq!(parallel(&[]), Ok(10), "nothing but the defaults");

    fs::write(some("folder/3.yml"), "").unwrap();
    let wrong = load_files(&[some("folder"), some("missing")]).unwrap_err().to_string();
    assert_eq!(
        wrong.replace(root.path().to_str().unwrap(), ""),
        "/some/folder/3.yml: expected a name that ends in .toml, or the file would be ignored: \
         rename it or take it away\n\
         /some/missing: expected a file, found nothing (or a link to nothing)"
    );
}
