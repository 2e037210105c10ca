//! What the running kernel says about itself.

use std::str::FromStr;

/// Major and minor version of the running kernel.
pub fn version() -> Option<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether this kernel charges eBPF memory against the limit of locked memory.
pub fn before_5_11() -> bool {
    version().is_some_and(|version| version < (5, 11))
}

/// A setting by its path under `/proc/sys`.
pub fn setting<T: FromStr>(path: &str) -> Option<T> {
    std::fs::read_to_string(format!("/proc/sys/{path}")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_a_version_and_settings() {
        assert!(version().unwrap() >= (5, 8));
        assert!(setting::<u32>("kernel/pid_max").unwrap() > 1);
        assert_eq!(setting::<u32>("kernel/no_such_setting"), None);
    }
}
