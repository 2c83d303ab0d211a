//! `lockkeeper import`: from what another tool is told to a configuration that does the same.
//!
//! ```text
//! manifest, flags, environment ─► given: each thing that is told ─► zincati, locksmith, kured, fluo
//!                                                                              │
//!                                  text that `config check` takes ◄─ draft ◄───┘
//! ```
//! Nothing is lost on the way: what has no equal here stands in the draft as a comment with what to do
//! instead, and what the other tool itself would refuse ends the translation. The files may come from
//! anywhere: they are bounded, and what may be a secret is named but not printed.

mod draft;
mod environment;
mod flags;
mod fluo;
mod given;
mod kured;
mod locksmith;
mod manifest;
mod told;
mod windows;
mod zincati;

use std::io::{self, Read};
use std::path::Path;

use crate::config::file::read_text_bounded;

use super::arguments::ImportCommand;
use draft::{Draft, ImportError};

/// Longest manifest that is read; with all that a cluster runs it has less than a tenth.
const MANIFEST_MAX: u64 = 4 << 20;

/// Translates; `-` stands for `stdin`.
///
/// # Errors
/// A file that cannot be read, and everything in it that the other tool would not take.
pub(super) fn import(
    root: &Path,
    command: &ImportCommand,
    stdin: &mut dyn Read,
) -> Result<String, ImportError> {
    let mut draft = Draft::default();
    match command {
        ImportCommand::Zincati => zincati::translate(root, &mut draft)?,
        ImportCommand::Locksmith { files } => locksmith::translate(root, files, &mut draft)?,
        ImportCommand::Kured { file } => {
            let (name, text) = manifest(file, stdin)?;
            kured::translate(&name, &text, &mut draft)?;
        }
        ImportCommand::Fluo { file } => {
            let (name, text) = manifest(file, stdin)?;
            fluo::translate(&name, &text, &mut draft)?;
        }
    }
    draft.finish()
}

/// The name and text of a manifest.
fn manifest(file: &Path, stdin: &mut dyn Read) -> Result<(String, String), ImportError> {
    if file != Path::new("-") {
        let name = told::line(&file.display().to_string());
        let text = read_text_bounded(file, MANIFEST_MAX)
            .map_err(|error| ImportError::unreadable(&name, &error))?;
        return Ok((name, text));
    }
    let name = "standard input".to_owned();
    let mut text = String::new();
    let read = stdin.take(MANIFEST_MAX + 1).read_to_string(&mut text);
    let too_long = || io::Error::other(format!("found more than {MANIFEST_MAX} bytes"));
    match read {
        Ok(read) if read as u64 > MANIFEST_MAX => Err(ImportError::unreadable(&name, &too_long())),
        Ok(_) => Ok((name, text)),
        Err(error) => Err(ImportError::unreadable(&name, &error)),
    }
}

#[cfg(test)]
mod noise;
#[cfg(test)]
mod tests;
