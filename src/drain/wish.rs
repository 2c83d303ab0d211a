//! What a pod or a namespace says about drains, by an annotation or a label.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::answer::says;

/// The annotation or label by which a pod or a namespace says what a drain does with it.
pub const DRAIN: &str = "lockkeeper.dev/drain";

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wish {
    /// `skip`: the drain leaves the pod alone.
    Skip,
    /// `wait-completed`: the drain waits until the pod has ended by itself.
    WaitCompleted,
}

/// A word under [`DRAIN`] that means nothing, on one line and cut short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWish(pub String);

/// What this pod or namespace says; the annotation counts before the label.
///
/// # Errors
/// It says something else, which counts for nothing.
pub fn wish_of(meta: &ObjectMeta) -> Result<Option<Wish>, UnknownWish> {
    let said = [&meta.annotations, &meta.labels];
    let Some(word) = said.iter().find_map(|all| all.as_ref()?.get(DRAIN)) else { return Ok(None) };
    match word.trim() {
        "skip" => Ok(Some(Wish::Skip)),
        "wait-completed" => Ok(Some(Wish::WaitCompleted)),
        other => Err(UnknownWish(says(other))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn words_are_read_from_annotation_and_label() {
        let unknown = |word: &str| Err(UnknownWish(word.to_owned()));
        for (annotation, label, meant) in [
            (None, None, Ok(None)),
            (Some("skip"), None, Ok(Some(Wish::Skip))),
            (None, Some("skip"), Ok(Some(Wish::Skip))),
            (Some(" wait-completed\n"), None, Ok(Some(Wish::WaitCompleted))),
            (Some("skip"), Some("wait-completed"), Ok(Some(Wish::Skip))),
            (Some("Skip"), None, unknown("Skip")),
            (Some("true"), Some("skip"), unknown("true")),
            (Some(""), None, unknown("")),
        ] {
            let mut meta = json!({});
            for (place, word) in [("annotations", annotation), ("labels", label)] {
                if let Some(word) = word {
                    meta[place] = json!({ DRAIN: word });
                }
            }
            assert_eq!(wish_of(&from_value(meta).unwrap()), meant, "{annotation:?} {label:?}");
        }
    }
}
