//! Agents that come and go faster than any real one, while threads run at full speed.

use super::*;
use crate::trace::lane::{self, Reader};
use crate::trace::{Category, Phase};
use runtime_core_abi::page::Names;
use runtime_core_abi::record::Head;
use runtime_core_abi::ring;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;

const SWAPS: usize = if cfg!(debug_assertions) { 3_000 } else { 30_000 };
const RING_BYTES: usize = ring::DATA_BYTES_MIN;

fn memfd(bytes: usize) -> OwnedFd {
    // SAFETY: plain system calls on a descriptor that is then owned.
    unsafe {
        let fd = libc::memfd_create(c"storm".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0 && libc::ftruncate(fd, bytes as i64) == 0);
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

fn agents_page() -> (OwnedFd, Mapping) {
    let fd = memfd(PAGE_BYTES);
    let mapping = Mapping::shared(fd.as_fd(), PAGE_BYTES).unwrap();
    page_in(&mapping).stamp();
    (fd, mapping)
}

fn mappings(name: &str) -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains(name)).count()
}

/// Runs until told to stop: checks, labels, events and flips of an own category.
fn busy(stop: &AtomicBool, own: Category) -> (u64, bool) {
    let (mut lost, mut on) = (0, false);
    lane::claim();
    for round in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let _ = Category::NODE_HTTP.enabled();
        lane::set_phase(Phase::User);
        lane::set_request(lane::next_id());
        lost += u64::from(!lane::push(Reader::Agent, &Head { phase: b'i', ..Head::default() }, "storm", &[]));
        if round % 64 == 0 {
            on = !on;
            own.set_enabled(on);
        }
        lane::set_phase(Phase::Poll);
    }
    (lost, on)
}

#[test]
fn nothing_is_wrong_after_a_storm_of_swaps() {
    let _alone = tests_alone();
    let owns = ["storm.first", "storm.second"].map(Category::named);
    let rings = memfd(ring::memory_bytes(LANES_MAX, RING_BYTES));
    let stop = &AtomicBool::new(false);
    let unlaned_before = EVENTS_UNLANED.load(Ordering::Relaxed);
    let ended = std::thread::scope(|scope| {
        let threads = owns.map(|own| scope.spawn(move || (busy(stop, own), own)));
        for swap in 0..SWAPS {
            let (fd, mapping) = agents_page();
            let mapped = Rings::map(rings.as_fd(), LANES_MAX, RING_BYTES).unwrap();
            page_in(&mapping).enable_byte(0, Owner::Operator).store(1, Ordering::Relaxed);
            install_with(fd.as_fd(), Some(Arc::new(mapped))).unwrap();
            assert_eq!(PAGE.enable_bytes(0)[1], 1);
            // Now from one agent straight to the next, now by way of private memory.
            if swap % 3 != 0 {
                go_private().unwrap();
                assert_eq!(PAGE.enable_bytes(0)[1], 0);
            }
        }
        go_private().unwrap();
        let (fd, mapping) = agents_page();
        install(fd.as_fd()).unwrap();
        stop.store(true, Ordering::Relaxed);
        let ended = threads.map(|thread| thread.join().unwrap());
        for ((_, on), own) in &ended {
            let published = page_in(&mapping).enable_bytes(own.index());
            assert_eq!(published, [u8::from(*on), 0, 0, 0], "an own byte was lost");
            own.set_enabled(false);
        }
        ended
    });
    assert_eq!(PAGE.check(), Ok(()));
    let mut out = [0; 128];
    assert_eq!(PAGE.name(Names::Categories, owns[1].index(), &mut out), Some(&b"storm.second"[..]));
    let unlaned = EVENTS_UNLANED.load(Ordering::Relaxed) - unlaned_before;
    let lost: u64 = ended.iter().map(|((lost, _), _)| lost).sum();
    assert!(unlaned <= lost, "{unlaned} counted, {lost} lost");
    count_unlaned();
    let published = PAGE.header.events_unlaned.load(Ordering::Relaxed);
    assert_eq!(published, EVENTS_UNLANED.load(Ordering::Relaxed), "published as it stands");
    go_private().unwrap();
    // One mapping of the storm's is left at most: the agent's side, which is gone here too.
    assert!(mappings("memfd:storm") <= 1, "mappings pile up: {}", mappings("memfd:storm"));
    assert!(rings.as_raw_fd() > 0);
}
