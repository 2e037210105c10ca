//! To come.

/// Arguments.
#[derive(clap::Args)]
pub struct Args {}

/// Installs.
pub fn install(_args: &Args) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}

/// Removes.
pub fn uninstall(_args: &Args) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}
