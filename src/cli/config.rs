//! Configuration at the front desk (stands in until the room is there).

use std::io::Write;
use std::path::{Path, PathBuf};

const DEFAULTS: &str = r#"[agent]
state_dir = "/var/lib/lockkeeper"
run_dir = "/run/lockkeeper"
hold_file = "/etc/lockkeeper/hold"
[health]
checks_dir = "/etc/lockkeeper/health.d"
[coordinator]
state_dir = "/var/lib/lockkeeper/coordinator"
run_dir = "/run/lockkeeper"
"#;

/// Checks.
pub fn check(_root: &Path, files: &[PathBuf], _out: &mut dyn Write) -> anyhow::Result<()> {
    for file in files {
        std::fs::read_to_string(file)?.parse::<toml::Table>()?;
    }
    Ok(())
}

/// Shows.
pub fn show(_root: &Path, _out: &mut dyn Write) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}

/// Prints the defaults.
pub fn default(out: &mut dyn Write) -> anyhow::Result<()> {
    out.write_all(DEFAULTS.as_bytes())?;
    Ok(())
}
