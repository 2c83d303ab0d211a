//! What an error of the client means for the cycle.

use std::error::Error;

use crate::fleetlock::clean_value;
use crate::lifecycle::NodeTrouble;

/// An error of the client in the cycle's words.
pub(super) fn trouble(error: &kube::Error) -> NodeTrouble {
    let text = describe(error);
    #[expect(clippy::wildcard_enum_match_arm, reason = "the client library's enum grows")]
    match error {
        kube::Error::Api(status) => match status.code {
            401 => NodeTrouble::Refused(format!(
                "the API server does not take the credential (expired or unknown): {text}"
            )),
            403 => NodeTrouble::Forbidden(text),
            404 => NodeTrouble::Missing(text),
            _ => NodeTrouble::Unreachable(text),
        },
        kube::Error::Auth(_) | kube::Error::InferKubeconfig(_) => NodeTrouble::NoCredential(text),
        _ => NodeTrouble::Unreachable(text),
    }
}

/// One line: the server's own words with their code, or the chain of causes, each said once.
pub(super) fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        let message = if status.message.is_empty() { &status.reason } else { &status.message };
        return clean_value(&format!("{} {message}", status.code));
    }
    let mut parts: Vec<String> = Vec::new();
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        // The library repeats the cause in its own text: the innermost saying is kept.
        for part in &mut parts {
            if let Some(start) = part.strip_suffix(text.as_str()) {
                *part = start.trim_end_matches([' ', ':']).to_owned();
            }
        }
        parts.push(text);
        next = cause.source();
    }
    parts.retain(|part| !part.is_empty());
    parts.dedup();
    clean_value(&parts.join(": "))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn each_answer_has_its_word() {
        for (code, kind) in [
            (401, "credential-refused"),
            (403, "forbidden"),
            (404, "node-missing"),
            (409, "api-unreachable"),
            (429, "api-unreachable"),
            (500, "api-unreachable"),
        ] {
            let status = Status::failure("words of the server", "Reason").with_code(code);
            let trouble = trouble(&kube::Error::Api(status.boxed()));
            assert_eq!(trouble.kind(), kind, "{code}");
            let said = format!("{code} words of the server");
            assert!(trouble.text().ends_with(&said), "{}", trouble.text());
        }
        let cause = std::io::Error::other("refused");
        let error = trouble(&kube::Error::Service(Box::new(cause)));
        assert_eq!(error, NodeTrouble::Unreachable("ServiceError: refused".to_owned()));
    }
}
