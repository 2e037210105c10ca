//! Turns addresses into names, once, at the end of a session.
//!
//! Kernel symbols are read anew each time, because programs and modules come and go. A
//! process that lives is asked for its mappings; one that ended is named by the mappings it
//! had when it was first seen. Whatever has no name gets the name of what it lies in, in
//! brackets. All of it is dropped on return.

use super::maps::{self, Region};
use super::table::{Process, RawStack, Table};
use super::{Frame, Profile, Stack};
use crate::sys;
use blazesym::symbolize::source::{self, Source};
use blazesym::symbolize::{Input, Symbolizer};
use blazesym::{MaybeDefault, Pid};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use tracebyte_ebpf_common::sampler::FRAMES_MAX;

/// The kernel's name as a module, and of its frames where symbols are hidden.
const KERNEL: &str = "[kernel]";
/// Stands for the frames beyond the deepest stack that the kernel takes.
const TRUNCATED: &str = "[truncated]";
/// Stands for frames of a process of which nothing is left to look at.
const EXITED: &str = "[exited]";
/// Stands for an address in no mapping.
const UNKNOWN: &str = "[unknown]";
/// Stands for what lies beyond code without frame pointers: the walk met no return address.
const BROKEN: &str = "[broken stack]";
/// The longest name in characters: some compilers write kilobytes.
const NAME_CHARS_MAX: usize = 512;
/// How many files without symbols are listed.
const FILES_SHOWN: usize = 3;
/// The largest map of just-in-time compiled code that is read, in bytes.
const PERF_MAP_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Frames by address.
type Names = HashMap<u64, Frame>;

/// Names every stack of `table` and puts them into `profile`.
pub(super) fn resolve(table: &Table, profile: &mut Profile) {
    let stacks = table.stacks();
    // One for all: a file that several processes map is read once.
    let symbolizer = Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .enable_demangling(true)
        .build();
    let kernel = name_kernel(&symbolizer, addresses(stacks.iter().map(|stack| &stack.kernel)), &mut profile.notes);
    let mut nameless = BTreeSet::new();
    let mut frames = Frames { depth_max: depth_max(), ..Frames::default() };
    for of_process in stacks.chunk_by(|a, b| a.pid == b.pid) {
        let pid = of_process[0].pid;
        let process = &table.processes[&pid];
        let wanted = addresses(of_process.iter().map(|stack| &stack.user));
        let user = name_user(&symbolizer, pid, process, wanted);
        let bare = user.values().filter(|frame| frame.name.starts_with('[') && !frame.module.is_empty());
        nameless.extend(bare.map(|frame| frame.module.clone()));
        // Stacks that differ only in addresses are one by now.
        let mut merged = BTreeMap::<Vec<u32>, u64>::new();
        for stack in of_process {
            *merged.entry(frames.number(stack, &user, &kernel)).or_default() += stack.count;
        }
        profile.stacks.extend(merged.into_iter().map(|(frames, count)| Stack {
            pid,
            process: process.name.clone(),
            frames,
            count,
        }));
    }
    profile.frames = frames.all;
    profile.notes.extend(missing_symbols(&nameless));
}

/// What to say about files that lack symbols.
fn missing_symbols(files: &BTreeSet<String>) -> Option<String> {
    let shown: Vec<&str> = files.iter().take(FILES_SHOWN).map(String::as_str).collect();
    let more = match files.len().checked_sub(FILES_SHOWN) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    let shown = shown.join(", ");
    (!files.is_empty())
        .then(|| format!("frames in brackets have no symbol; their debug symbols would name them: {shown}{more}"))
}

/// The deepest stack that this kernel takes.
fn depth_max() -> usize {
    sys::kernel::setting("kernel/perf_event_max_stack").unwrap_or(FRAMES_MAX).min(FRAMES_MAX)
}

/// The addresses to look up: all but the innermost are return addresses, which may lie
/// behind the end of the function that called.
fn looked_up(stack: &[u64]) -> impl DoubleEndedIterator<Item = u64> + '_ {
    stack.iter().enumerate().map(|(at, address)| if at == 0 { *address } else { address.saturating_sub(1) })
}

fn addresses<'a>(stacks: impl Iterator<Item = &'a Vec<u64>>) -> Vec<u64> {
    let mut addresses: Vec<u64> = stacks.flat_map(|stack| looked_up(stack)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn name_kernel(symbolizer: &Symbolizer, addresses: Vec<u64>, notes: &mut Vec<String>) -> Names {
    if addresses.is_empty() {
        return Names::new();
    }
    if kernel_addresses_hidden() {
        let restrict = sys::kernel::setting::<i32>("kernel/kptr_restrict").map_or("unknown".into(), |v| v.to_string());
        notes.push(format!(
            "kernel symbols are hidden (kernel.kptr_restrict is {restrict}), so kernel frames are shown as {KERNEL}; \
             `sysctl kernel.kptr_restrict=1` and CAP_SYSLOG show them"
        ));
        return Names::new();
    }
    let kernel = source::Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Default::default() };
    let symbols = match symbolizer.symbolize(&Source::Kernel(kernel), Input::AbsAddr(&addresses)) {
        Ok(symbols) => symbols,
        Err(error) => {
            notes.push(format!("kernel frames are shown as {KERNEL}: cannot read the kernel's symbols: {error}"));
            return Names::new();
        }
    };
    let named = addresses.iter().zip(symbols).filter_map(|(address, symbol)| {
        let symbol = symbol.into_sym()?;
        Some((*address, Frame { name: shorten(&symbol.name), module: KERNEL.into(), kernel: true }))
    });
    named.collect()
}

/// Whether the kernel gives every symbol the address 0.
fn kernel_addresses_hidden() -> bool {
    let mut head = Vec::new();
    let read = std::fs::File::open("/proc/kallsyms").and_then(|file| file.take(64 * 1024).read_to_end(&mut head));
    read.is_err() || head.split(|byte| *byte == b'\n').all(|line| line.iter().take(16).all(|byte| *byte == b'0'))
}

fn name_user(symbolizer: &Symbolizer, pid: u32, process: &Process, addresses: Vec<u64>) -> Names {
    if addresses.is_empty() {
        return Names::new();
    }
    let same = process.start_time.is_some() && sys::proc::start_time(pid).ok() == process.start_time;
    let now = if same { std::fs::read(format!("/proc/{pid}/maps")).ok() } else { None };
    // A process that ended and was not waited for yet is there, without mappings.
    let now = now.filter(|maps| !maps.is_empty());
    let alive = now.is_some();
    let text = now.or_else(|| process.maps.clone());
    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
    let regions = text.as_deref().map(maps::parse);
    let symbols = match (&regions, alive) {
        (_, true) => symbolize_process(symbolizer, pid, &addresses),
        (Some(regions), false) => symbolize_files(symbolizer, regions, &addresses),
        (None, false) => HashMap::new(),
    };
    let name = |address: u64| {
        let region = regions.as_deref().map(|regions| maps::find(regions, address));
        let file = region.flatten().filter(|region| region.is_executable()).and_then(Region::file);
        let module = file.unwrap_or_default().to_owned();
        let name = match (symbols.get(&address), region) {
            (Some(name), _) => shorten(name),
            (None, None) => EXITED.into(),
            (None, Some(None)) => UNKNOWN.into(),
            (None, Some(Some(region))) if !region.is_executable() => BROKEN.into(),
            (None, Some(Some(region))) => region.label(),
        };
        (address, Frame { name, module, kernel: false })
    };
    addresses.iter().map(|address| name(*address)).collect()
}

/// Names by address, for a process that lives.
fn symbolize_process(symbolizer: &Symbolizer, pid: u32, addresses: &[u64]) -> HashMap<u64, String> {
    let mut process = source::Process::new(Pid::from(pid));
    process.perf_map = perf_map_is_sane(pid);
    let mut names = HashMap::new();
    let mut left = addresses.to_vec();
    // The mapped files themselves, and where that is not permitted, what is at their paths;
    // at last, where there are any, the debug files that a stripped file names.
    let debug_files = std::path::Path::new("/usr/lib/debug/.build-id").exists();
    for (map_files, debug_syms) in [(true, false), (false, false), (true, true)] {
        if debug_syms && !debug_files {
            break;
        }
        (process.map_files, process.debug_syms) = (map_files, debug_syms);
        let Ok(symbols) = symbolizer.symbolize(&Source::Process(process.clone()), Input::AbsAddr(&left)) else {
            continue;
        };
        let named =
            left.iter().zip(symbols).filter_map(|(at, symbol)| Some((*at, symbol.into_sym()?.name.into_owned())));
        names.extend(named);
        left.retain(|address| !names.contains_key(address));
        if left.is_empty() {
            break;
        }
    }
    names
}

/// Names by address, for a process that ended, from the files that it had mapped.
fn symbolize_files(symbolizer: &Symbolizer, regions: &[Region<'_>], addresses: &[u64]) -> HashMap<u64, String> {
    let mut files = BTreeMap::<&str, Vec<(u64, u64)>>::new();
    for address in addresses {
        let region = maps::find(regions, *address);
        if let Some((region, file)) = region.and_then(|region| Some((region, region.file()?))) {
            files.entry(file).or_default().push((*address, region.file_offset(*address)));
        }
    }
    let mut names = HashMap::new();
    for (file, places) in files {
        // A device or a pipe of that name would block or worse.
        if !std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        let mut elf = source::Elf::new(file);
        elf.debug_syms = false;
        let offsets: Vec<u64> = places.iter().map(|(_, offset)| *offset).collect();
        let Ok(symbols) = symbolizer.symbolize(&Source::Elf(elf), Input::FileOffset(&offsets)) else { continue };
        let named = places.iter().zip(symbols);
        names.extend(named.filter_map(|((address, _), symbol)| Some((*address, symbol.into_sym()?.name.into_owned()))));
    }
    names
}

/// Whether the map that a just-in-time compiler may have written can be read: its writer is
/// the process, which is not to be believed, so no pipe and nothing huge.
fn perf_map_is_sane(pid: u32) -> bool {
    // The file is named by the pid that the process has in its own namespace.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own_pid = ids.and_then(|ids| ids.split_whitespace().last()).map_or(pid.to_string(), str::to_owned);
    let metadata = std::fs::metadata(format!("/proc/{pid}/root/tmp/perf-{own_pid}.map"));
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() <= PERF_MAP_BYTES_MAX)
}

fn shorten(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.into(),
    }
}

/// Every distinct frame, numbered.
#[derive(Default)]
struct Frames {
    /// A stack as deep as this has lost its root.
    depth_max: usize,
    all: Vec<Frame>,
    numbers: HashMap<Frame, u32>,
}

impl Frames {
    /// A stack as the profile has it: root first, user before kernel.
    fn number(&mut self, stack: &RawStack, user: &Names, kernel: &Names) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(stack.user.len() + stack.kernel.len());
        let truncated = |kernel| Frame { name: TRUNCATED.into(), module: String::new(), kernel };
        if stack.user.len() >= self.depth_max {
            self.push(&mut numbers, &truncated(false));
        }
        for address in looked_up(&stack.user).rev() {
            let frame = &user[&address];
            if frame.name == BROKEN {
                // What the walk found further out hangs on something that is no frame.
                numbers.clear();
            }
            self.push(&mut numbers, frame);
        }
        if stack.kernel.len() >= self.depth_max {
            self.push(&mut numbers, &truncated(true));
        }
        let hidden = Frame { name: KERNEL.into(), module: KERNEL.into(), kernel: true };
        for address in looked_up(&stack.kernel).rev() {
            self.push(&mut numbers, kernel.get(&address).unwrap_or(&hidden));
        }
        numbers
    }

    /// Adds a frame's number; a run of frames in one module without symbols is one frame.
    fn push(&mut self, numbers: &mut Vec<u32>, frame: &Frame) {
        let number = match self.numbers.get(frame) {
            Some(number) => *number,
            None => {
                let number = self.all.len() as u32;
                self.all.push(frame.clone());
                self.numbers.insert(frame.clone(), number);
                number
            }
        };
        if !(frame.name.starts_with('[') && numbers.last() == Some(&number)) {
            numbers.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, kernel: bool) -> Frame {
        Frame { name: name.into(), module: String::new(), kernel }
    }

    #[test]
    fn return_addresses_are_looked_up_inside_their_call() {
        assert!(looked_up(&[10, 20, 0]).eq([10, 19, 0]));
        assert_eq!(addresses([vec![10, 20], vec![19]].iter()), [10, 19]);
    }

    #[test]
    fn a_stack_is_root_first_and_user_before_kernel() {
        let user = Names::from([(1, frame("leaf", false)), (9, frame("main", false))]);
        let kernel = Names::from([(5, frame("sys_read", true))]);
        let stack = RawStack { pid: 1, kernel: vec![5, 7, 8], user: vec![1, 10], count: 1 };
        let mut frames = Frames { depth_max: FRAMES_MAX, ..Frames::default() };
        let numbers = frames.number(&stack, &user, &kernel);
        let names: Vec<&str> = numbers.iter().map(|at| frames.all[*at as usize].name.as_str()).collect();
        assert_eq!(names, ["main", "leaf", KERNEL, "sys_read"]);
    }

    #[test]
    fn a_walk_that_left_the_code_is_cut_there() {
        let user = Names::from([(1, frame("leaf", false)), (2, frame(BROKEN, false)), (3, frame("chance", false))]);
        let stack = RawStack { pid: 1, kernel: vec![], user: vec![1, 3, 4], count: 1 };
        let mut frames = Frames { depth_max: FRAMES_MAX, ..Frames::default() };
        let numbers = frames.number(&stack, &user, &Names::new());
        let names: Vec<&str> = numbers.iter().map(|at| frames.all[*at as usize].name.as_str()).collect();
        assert_eq!(names, [BROKEN, "leaf"]);
    }

    #[test]
    fn files_without_symbols_are_named() {
        let files = ["/a", "/b", "/c", "/d", "/e"].map(str::to_owned);
        assert_eq!(missing_symbols(&BTreeSet::new()), None);
        let note = missing_symbols(&BTreeSet::from(files)).unwrap();
        assert!(note.ends_with("/a, /b, /c and 2 more"), "{note}");
    }

    #[test]
    fn a_stack_of_the_deepest_kind_says_that_it_is_cut() {
        let user = Names::from([(1, frame("deep", false)), (0, frame("deep", false))]);
        let stack = RawStack { pid: 1, kernel: vec![], user: vec![1; FRAMES_MAX], count: 1 };
        let mut frames = Frames { depth_max: FRAMES_MAX, ..Frames::default() };
        let numbers = frames.number(&stack, &user, &Names::new());
        assert_eq!(frames.all[numbers[0] as usize].name, TRUNCATED);
        assert_eq!(numbers.len(), FRAMES_MAX + 1);
    }
}
