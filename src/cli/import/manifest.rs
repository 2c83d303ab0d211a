//! Manifests of Kubernetes: the containers in them, with what they are told.

use serde_json::Value;

use super::draft::ImportError;
use super::flags::Style;
use super::given::Given;
use super::told::line;

/// Lists within lists that are looked through.
const LISTS_MAX: usize = 4;

/// Bytes that variables may add to a command line: more than any has.
const EXPANDED_MAX: usize = 64 << 10;

/// A container of a workload.
#[derive(Debug, Clone)]
pub(super) struct Container {
    /// The file, the workload and the container, for people.
    pub(super) place: String,
    /// The workload's name.
    pub(super) workload: String,
    /// Its image.
    pub(super) image: String,
    /// What is run, `command` and `args` one behind the other, `$(NAME)` filled in.
    pub(super) words: Vec<String>,
    /// Its variables; `None`: the value is elsewhere.
    pub(super) environment: Vec<(String, Option<String>)>,
    /// Names of more variables come from elsewhere.
    pub(super) more_environment: bool,
}

/// Reads the containers of every workload in a text of YAML or JSON.
///
/// # Errors
/// It is neither, or too much of it.
pub(super) fn containers(file: &str, text: &str) -> Result<Vec<Container>, ImportError> {
    // What a cluster prints of itself has no anchors at all; a few may be in a file of a person.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 500_000,
            max_nodes: 250_000,
            max_aliases: 100,
            max_anchors: 100,
            max_depth: 64,
            max_documents: 1000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 10_000,
            max_replay_stack_depth: 8,
        },
        // What stands around the error may be a secret.
        with_snippet: false,
    };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
            let error = line(&error.to_string());
            ImportError::Unreadable(format!("{file}: expected YAML or JSON: {error}"))
        })?;
    let mut found = Vec::new();
    for document in &documents {
        workload(file, document, LISTS_MAX, &mut found);
    }
    Ok(found)
}

/// Looks through an object, or through the objects of a list.
fn workload(file: &str, object: &Value, lists: usize, found: &mut Vec<Container>) {
    let kind = text(object, "/kind");
    if let Some(items) = object.get("items").and_then(Value::as_array) {
        if lists > 0 {
            items.iter().for_each(|item| workload(file, item, lists - 1, found));
        }
        return;
    }
    let name = text(object, "/metadata/name");
    let Some(list) = object.pointer("/spec/template/spec/containers").and_then(Value::as_array)
    else {
        return;
    };
    for one in list {
        let environment = environment(one);
        let mut left = EXPANDED_MAX;
        let words = words(one, "/command").chain(words(one, "/args"));
        let words = words.map(|word| expanded(&word, &environment, &mut left)).collect();
        let container = text(one, "/name");
        found.push(Container {
            place: line(&format!("{file}: {kind} {name}, container {container}")),
            workload: name.clone(),
            image: text(one, "/image"),
            words,
            environment,
            more_environment: one.get("envFrom").and_then(Value::as_array).is_some(),
        });
    }
}

fn environment(container: &Value) -> Vec<(String, Option<String>)> {
    let list = container.get("env").and_then(Value::as_array);
    let one = |variable: &Value| {
        let elsewhere = variable.get("valueFrom").is_some();
        (text(variable, "/name"), (!elsewhere).then(|| text(variable, "/value")))
    };
    list.into_iter().flatten().map(one).collect()
}

fn words<'a>(container: &'a Value, at: &str) -> impl Iterator<Item = String> + use<'a> {
    let list = container.pointer(at).and_then(Value::as_array);
    list.into_iter().flatten().map(scalar)
}

/// A word with the variables filled in as the kubelet does: `$(NAME)`, but not `$$(NAME)`. No more
/// than `left` bytes are.
fn expanded(word: &str, environment: &[(String, Option<String>)], left: &mut usize) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(escaped) = from.strip_prefix("$$") {
            out.push('$');
            rest = escaped;
            continue;
        }
        let name = from.strip_prefix("$(").and_then(|inner| inner.split_once(')'));
        let known = |name: &str| environment.iter().rev().find(|(known, _)| known == name);
        match name.and_then(|(name, behind)| Some((known(name)?.1.as_ref()?, behind))) {
            Some((value, behind)) if value.len() <= *left => {
                *left -= value.len();
                out.push_str(value);
                rest = behind;
            }
            Some(_) | None => {
                out.push('$');
                rest = from.strip_prefix('$').unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    out
}

/// The text of a scalar at a place.
fn text(value: &Value, at: &str) -> String {
    value.pointer(at).map(scalar).unwrap_or_default()
}

/// A scalar as text: what is a number or a truth value in YAML was a text to whoever wrote it.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

// === impl Container ===

impl Container {
    /// The last part of the path of what it runs.
    pub(super) fn program(&self) -> &str {
        let first = self.words.first().map(String::as_str).unwrap_or_default();
        if first.starts_with('-') {
            return "";
        }
        first.rsplit('/').next().unwrap_or_default()
    }

    /// The words behind the program.
    pub(super) fn arguments(&self) -> &[String] {
        let program = usize::from(!self.program().is_empty());
        self.words.get(program..).unwrap_or_default()
    }

    /// Something that it is told.
    pub(super) fn given(&self, key: &str, value: &str) -> Given {
        Given { file: self.place.clone(), key: key.to_owned(), value: value.to_owned() }
    }

    /// Its command line.
    pub(super) fn command_line<'a>(
        &'a self,
        style: Style,
        valued: &'a [&'a str],
        switches: &'a [&'a str],
    ) -> super::flags::CommandLine<'a> {
        let (file, words) = (self.place.as_str(), self.arguments());
        super::flags::CommandLine { file, words, style, valued, switches }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn environment(pairs: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.map(Into::into))).collect()
    }

    #[test]
    fn variables_are_filled_in_as_by_the_kubelet() {
        let environment = environment(&[("A", Some("1")), ("B", None), ("A", Some("2"))]);
        for (word, expected) in [
            ("--x=$(A)-$(A)", "--x=2-2"),
            ("$(B) $(C) $A $(A", "$(B) $(C) $A $(A"),
            ("$$(A) $", "$(A) $"),
        ] {
            assert_eq!(expanded(word, &environment, &mut 8), expected, "{word}");
        }
        let word = "$(A)".repeat(9);
        assert_eq!(expanded(&word, &environment, &mut 8), "22222222$(A)");
    }

    #[test]
    fn lists_and_documents_are_looked_through() {
        let pod = "spec: {template: {spec: {containers: [{name: c, command: [/bin/x], args: [1, true]}]}}}";
        let one = format!("kind: DaemonSet\nmetadata: {{name: d}}\n{pod}\n");
        let list = format!("kind: List\nitems:\n- kind: Service\n- kind: DaemonSet\n  {pod}\n");
        let found = containers("f", &format!("---\n{one}---\n# nothing\n---\n{list}")).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].place, "f: DaemonSet d, container c");
        assert_eq!((found[0].program(), found[0].arguments().len()), ("x", 2));
        assert_eq!(found[0].words, ["/bin/x", "1", "true"]);
    }
}
