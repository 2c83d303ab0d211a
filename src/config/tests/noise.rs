//! Whatever a file holds, the answer is settings or errors, and an error has words.

use proptest::prelude::*;

use crate::config::keys::KEYS;
use crate::config::merge;

use super::host;

/// Loads a text without a file system in between.
fn load_quickly(text: String) -> Result<merge::Loaded, crate::config::ConfigErrors> {
    let files = || {
        let mut files = crate::config::folder::Files::default();
        files.texts.push(("a.toml".into(), text.clone()));
        files
    };
    let whole = merge::load(files());
    match (merge::load_in_part(files()), &whole) {
        (Ok((loaded, None)), Ok(same)) => assert_eq!(loaded, *same),
        (Ok((_, Some(wrong))), Err(errors)) => assert_eq!(wrong.errors, *errors),
        // What is right may be no configuration by itself: then it is told as a whole.
        (Err(found), Err(errors)) => assert_eq!(found, *errors),
        (found, _) => panic!("whole: {whole:?}, in part: {found:?}"),
    }
    whole
}

/// TOML-like values, right and wrong.
fn any_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("true".to_owned()),
        Just("\"\"".to_owned()),
        Just("nan".to_owned()),
        Just("1979-05-27T07:32:00Z".to_owned()),
        Just("22:30:00".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:e}")),
        (0_u64..1_000_000, "(ns|ms|s|m|h|d|w|mo|y| )")
            .prop_map(|(n, unit)| format!("\"{n}{unit}\"")),
        "\"[a-z:/@.0-9 -]{0,40}\"",
        "\"https?://[a-z@:/.?#]{0,20}\"",
        "'''\\PC{0,20}'''",
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let name = prop_oneof![
            Just("days"),
            Just("start"),
            Just("length"),
            Just("zone"),
            Just("name"),
            Just("slots"),
            Just("x")
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|l| format!("[{}]", l.join(", "))),
            proptest::collection::vec((name, inner), 0..4).prop_map(|fields| {
                let fields: Vec<String> =
                    fields.into_iter().map(|(k, v)| format!("{k} = {v}")).collect();
                format!("{{ {} }}", fields.join(", "))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "(\\PC|\n|\t){0,200}") {
        if let Err(errors) = load_quickly(text) {
            prop_assert!(errors.iter().count() > 0);
            prop_assert!(errors.iter().all(|error| !error.to_string().contains('\n')));
        }
    }

    #[test]
    fn any_value_of_any_key_is_answered(
        pairs in proptest::collection::vec((0..KEYS.len(), any_value()), 1..6),
    ) {
        let text: String =
            pairs.iter().map(|(n, value)| format!("{} = {value}\n", KEYS[*n].name)).collect();
        match load_quickly(text) {
            // What is shown of a good file is good again, if nothing in it is secret.
            Ok(loaded) => {
                let shown: String = loaded
                    .values
                    .iter()
                    .filter_map(|v| v.text.as_ref().map(|text| format!("{} = {text}\n", v.key)))
                    .collect();
                if !shown.contains("***") {
                    let again = load_quickly(shown).map(|again| again.settings);
                    prop_assert_eq!(again, Ok(loaded.settings));
                }
            }
            Err(errors) => {
                prop_assert!(errors.iter().all(|error| !error.to_string().contains('\n')));
            }
        }
    }

    #[test]
    fn any_bytes_in_a_file_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let root = host(&[("etc/lockkeeper/config.d/a.toml", "")]);
        let file = root.path().join("etc/lockkeeper/config.d/a.toml");
        std::fs::write(&file, &bytes).unwrap();
        if let Err(errors) = crate::config::load(root.path()) {
            let name = file.display().to_string();
            prop_assert!(errors.iter().all(|error| error.to_string().starts_with(&name)));
        }
    }
}

#[test]
fn depth_and_length_are_bounded() {
    for text in ["windows = ".to_owned() + &"[".repeat(100_000), "a.".repeat(100_000) + "a = 1"] {
        assert!(load_quickly(text).is_err());
    }
    let many: String = (0..10_000).map(|n| format!("key{n} = 1\n")).collect();
    let errors = load_quickly(many).unwrap_err();
    assert_eq!(errors.iter().count(), 51);
    assert_eq!(
        errors.iter().last().unwrap().to_string(),
        "a.toml: and more errors than the 50 above"
    );
}

/// One value of every kind that TOML has, and some of bad will.
fn shapes() -> Vec<String> {
    let mut shapes: Vec<String> = [
        "\"\"",
        "\"x\"",
        "\"-1\"",
        "\"\\u0000\"",
        "\"a\\nb\"",
        "\"\\u001b[2J\"",
        "0",
        "-1",
        "1",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5",
        "-0.0",
        "inf",
        "nan",
        "1e308",
        "true",
        "false",
        "1979-05-27T07:32:00Z",
        "1979-05-27",
        "07:32:00",
        "[]",
        "[\"\"]",
        "[1]",
        "[[]]",
        "[{}]",
        "[\"a\", 1]",
        "{}",
        "{ a = 1 }",
        "{ \"\" = \"\" }",
        "{ a = { b = {} } }",
    ]
    .map(str::to_owned)
    .to_vec();
    shapes.push(format!("\"{}\"", "x".repeat(100_000)));
    shapes.push(format!("[{}]", "\"x\", ".repeat(10_000)));
    shapes.push("[".repeat(60) + &"]".repeat(60));
    shapes
}

#[test]
fn every_wrong_shape_of_every_key_is_named_with_file_and_key() {
    let mut wrong = 0;
    for key in &KEYS {
        for shape in shapes() {
            let Err(errors) = load_quickly(format!("{} = {shape}\n", key.name)) else { continue };
            wrong += 1;
            for error in errors.iter() {
                let text = error.to_string();
                let shown: String = shape.chars().take(40).collect();
                assert!(text.starts_with("a.toml"), "{} = {shown}: {text}", key.name);
                let last = key.name.rsplit('.').next().unwrap();
                let more = text.ends_with("and more errors than the 50 above");
                assert!(more || text.contains(last), "{} = {shown}: {text}", key.name);
                assert!(!text.chars().any(char::is_control), "{} = {shown}: {text:?}", key.name);
                assert!(text.len() < 1000, "{} = {shown}: {} bytes", key.name, text.len());
            }
        }
    }
    assert!(wrong > KEYS.len() * 20, "only {wrong} shapes were wrong");
}

#[test]
fn what_is_no_file_is_named_and_not_waited_for() {
    use std::os::unix::fs::symlink;
    use std::path::Path;
    type Make = fn(&Path);
    let cases: [(&str, Make); 8] = [
        ("found a folder", |at| std::fs::create_dir(at).unwrap()),
        ("found a pipe", |at| nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap()),
        ("a device", |at| symlink("/dev/zero", at).unwrap()),
        ("symbolic links", |at| symlink("a.toml", at).unwrap()),
        ("link to nothing", |at| symlink("nowhere", at).unwrap()),
        ("more", |at| std::fs::File::create(at).unwrap().set_len(1 << 40).unwrap()),
        ("UTF-8", |at| std::fs::write(at, b"a = \"\xff\"").unwrap()),
        ("", |at| std::fs::write(at, "\0\0\0").unwrap()),
    ];
    for (expected, make) in cases {
        let root = host(&[("etc/lockkeeper/config.d/b.toml", "")]);
        let file = root.path().join("etc/lockkeeper/config.d/a.toml");
        make(&file);
        let errors = crate::config::load(root.path()).unwrap_err();
        let text = errors.to_string();
        assert!(text.contains("a.toml") && text.contains(expected), "{expected}: {text}");
    }
}

proptest! {
    #[test]
    fn the_shipped_file_cut_or_changed_anywhere_is_answered(
        at: proptest::sample::Index,
        noise in "(\\PC|\n|\"|\\[|=|'|#){0,4}",
        cut: bool,
    ) {
        let text = crate::config::default_toml();
        let mut place = at.index(text.len());
        while !text.is_char_boundary(place) {
            place -= 1;
        }
        let (before, after) = text.split_at(place);
        let rest = if cut { "" } else { after };
        if let Err(errors) = load_quickly(format!("{before}{noise}{rest}")) {
            prop_assert!(errors.iter().count() > 0);
            for error in errors.iter() {
                let text = error.to_string();
                prop_assert!(text.starts_with("a.toml"), "{}", text);
                prop_assert!(!text.chars().any(char::is_control), "{:?}", text);
            }
        }
    }
}
