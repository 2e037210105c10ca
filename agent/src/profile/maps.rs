//! A process's memory map: which file an address belongs to.

/// A mapped range, or what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region<'a> {
    start: u64,
    end: u64,
    offset: u64,
    executable: bool,
    /// A file, a name in brackets, or nothing.
    path: &'a str,
}

impl Region<'_> {
    /// What a frame without a symbol is called.
    pub(super) fn label(&self) -> String {
        let name = self.path.strip_suffix(" (deleted)").unwrap_or(self.path);
        match name.rsplit('/').next() {
            None | Some("") => "[anon]".into(),
            Some(name) if name.starts_with('[') => name.into(),
            Some(name) => format!("[{name}]"),
        }
    }

    /// Whether code can run here; what lies elsewhere is no return address.
    pub(super) fn is_executable(&self) -> bool {
        self.executable
    }

    /// The mapped file as the process names it, if it is one.
    pub(super) fn file(&self) -> Option<&str> {
        self.path.starts_with('/').then_some(self.path)
    }

    /// Where in the file an address of this region is.
    pub(super) fn file_offset(&self, address: u64) -> u64 {
        self.offset.wrapping_add(address - self.start)
    }
}

/// The regions of `/proc/PID/maps`, in its order; lines that are none are left out.
pub(super) fn parse(maps: &str) -> Vec<Region<'_>> {
    maps.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Region<'_>> {
    // start-end perms offset dev inode path: the path may hold spaces, or be absent.
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let executable = fields.next()?.contains('x');
    let offset = hex(fields.next()?)?;
    let path = fields.nth(2).unwrap_or("").trim_start();
    (start < end).then_some(Region { start, end, offset, executable, path })
}

/// The region that holds an address.
pub(super) fn find<'a, 'm>(regions: &'a [Region<'m>], address: u64) -> Option<&'a Region<'m>> {
    let after = regions.partition_point(|region| region.start <= address);
    regions[..after].last().filter(|region| address < region.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d000-55e000 r-xp 00002000 fe:00 123   /usr/lib/lib a.so
7f0000-7f1000 rw-p 00000000 00:00 0 
7f1000-7f2000 r-xp 00000000 00:00 0     [vdso]
7f3000-7f4000 r-xp 00000000 fe:00 9     /tmp/x (deleted)
garbage
";

    #[test]
    fn an_address_has_a_file_and_a_label() {
        let regions = parse(MAPS);
        assert_eq!(regions.len(), 4);
        let at = |address| find(&regions, address);
        let file = at(0x55d010).unwrap();
        assert_eq!((file.file(), file.file_offset(0x55d010)), (Some("/usr/lib/lib a.so"), 0x2010));
        assert_eq!(file.label(), "[lib a.so]");
        assert!(file.is_executable() && !at(0x7f0000).unwrap().is_executable());
        assert_eq!(at(0x7f0fff).unwrap().label(), "[anon]");
        assert_eq!(at(0x7f1000).unwrap().label(), "[vdso]");
        assert_eq!(at(0x7f3000).unwrap().label(), "[x]");
        assert_eq!((at(0x55e000), at(0), at(u64::MAX)), (None, None, None));
    }
}
