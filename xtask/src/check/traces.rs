//! Nothing under version control may tell where it was made: no home directory, no folder
//! of the working copy, no private registry. What to look for is asked of the machine
//! that runs the check, so the check itself holds none of it.

use crate::run;
use anyhow::{Result, bail};
use std::path::PathBuf;

/// Hosts that anyone may name.
const PUBLIC_HOSTS: [&str; 3] = ["crates.io", "github.com", "static.crates.io"];

/// Fails where a tracked file, text or not, holds a trace.
pub fn check() -> Result<()> {
    let wanted = wanted();
    let mut found = Vec::new();
    for file in super::tracked()? {
        let Ok(bytes) = std::fs::read(run::root().join(&file)) else { continue };
        let traces = wanted.iter().filter(|trace| holds(&bytes, trace.as_bytes()));
        found.extend(traces.map(|trace| format!("`{trace}` in {file}")));
    }
    if !found.is_empty() {
        bail!("{}", found.join(", "));
    }
    Ok(())
}

fn wanted() -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let folders = [home.clone(), cargo_home.clone(), run::root()];
    // A folder right below `/` has too common a name, unless it is a home.
    let telling = folders.iter().filter(|folder| folder.components().count() > 2 || **folder == home);
    let mut wanted: Vec<String> = telling.map(|folder| format!("{}/", folder.display())).collect();
    wanted.retain(|folder| folder.len() > 1 && folder != "//");
    for name in ["config.toml", "config"] {
        wanted.extend(hosts(&std::fs::read_to_string(cargo_home.join(name)).unwrap_or_default()));
    }
    wanted
}

/// The hosts of the addresses in cargo's configuration that are not everybody's.
fn hosts(config: &str) -> Vec<String> {
    let addresses = config.split("://").skip(1);
    let hosts = addresses.filter_map(|rest| rest.split(['/', '"', '\'', ':', '\n']).next());
    let private = hosts.map(|host| host.rsplit('@').next().unwrap_or(host));
    private
        .filter(|host| !PUBLIC_HOSTS.iter().any(|public| host == public || host.ends_with(&format!(".{public}"))))
        .filter(|host| host.contains('.'))
        .map(str::to_owned)
        .collect()
}

/// Whether `trace` begins somewhere in `bytes` other than in the middle of a longer path.
fn holds(bytes: &[u8], trace: &[u8]) -> bool {
    let starts = bytes.windows(trace.len()).enumerate().filter(|(_, part)| *part == trace);
    let mut befores = starts.map(|(at, _)| at.checked_sub(1).map(|before| bytes[before]));
    befores.any(|before| before.is_none_or(|byte| !byte.is_ascii_alphanumeric() && !b"_-.}".contains(&byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_path_is_no_trace() {
        assert!(holds(b"see /somebody/x", b"/somebody/"));
        assert!(holds(b"/somebody/x", b"/somebody/"));
        assert!(!holds(b"/proc/7/somebody/x", b"/somebody/"));
        assert!(!holds(b"nothing", b"/somebody/"));
    }

    #[test]
    fn public_hosts_are_no_trace() {
        let public = concat!("https://index.", "crates.io/");
        let config = format!("registry = \"sparse+https://mirror.example.net/x/\"\nindex = \"{public}\"");
        assert_eq!(hosts(&config), ["mirror.example.net"]);
    }
}
