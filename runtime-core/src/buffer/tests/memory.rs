//! What happens to memory: old bytes, sharing, uniqueness, threads, counters.
//!
//! Nothing here needs an operating system's help, so that it also runs under Miri (which the
//! stable toolchain lacks; loops are shorter there) and under a nightly's sanitizers:
//! `RUSTFLAGS=-Zsanitizer=address cargo +nightly test -p runtime-core --lib --target
//! x86_64-unknown-linux-gnu buffer::`.

use crate::buffer::{Buffer, Counters, Home, home};
use std::{collections::VecDeque, sync::mpsc, thread};

/// Runs `test` on a thread of its own, whose pool and counters are fresh.
fn alone<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    thread::spawn(test).join().expect("the test's thread ends")
}

#[test]
fn old_bytes_show_only_where_they_were_asked_for() {
    alone(|| {
        for len in [24, 100, 1000, home::POOL_BYTES_MAX] {
            drop(Buffer::of(&vec![0xaau8; len]));
            assert!(Buffer::alloc(len).iter().all(|&byte| byte == 0), "{len}");
            drop(Buffer::of(&vec![0xaau8; len]));
            let parts: [&[u8]; 2] = [b"abc", b"de"];
            assert!(Buffer::concat_to(&parts, len)[5..].iter().all(|&byte| byte == 0), "{len}");
            drop(Buffer::of(&vec![0xaau8; len]));
            assert_eq!(*Buffer::alloc_unsafe(len), vec![0xaa; len], "the pool was not carved from its front");
        }
        assert!(Buffer::alloc_unsafe(100_000).iter().all(|&byte| byte == 0));
    });
}

#[test]
fn slices_share_and_writes_part() {
    for len in [100, 10_000] {
        let mut whole = Buffer::alloc(len);
        whole.make_mut()[50] = 7;
        let mut part = whole.slice(40..90);
        assert_eq!(part.as_ptr(), whole[40..].as_ptr());
        assert_eq!(part.get_mut(), None);
        part.write_u8(8, 10).expect("in bounds");
        assert_eq!((whole[50], part[10]), (7, 8));
        assert_ne!(part.as_ptr(), whole[40..].as_ptr());
    }
    assert_eq!(Buffer::from_static(&[1; 50]).get_mut(), None);
}

#[test]
fn memory_of_its_own_is_sole_again_after_its_slices() {
    let mut whole = Buffer::alloc(10_000);
    let part = whole.slice(..5_000);
    assert!(whole.get_mut().is_none());
    drop(part);
    assert!(whole.get_mut().is_some());
    let before = whole.as_ptr();
    assert_eq!(whole.make_mut().as_ptr(), before);
}

#[test]
fn a_vec_is_taken_over_and_given_back_to_the_allocator() {
    let bytes = vec![5u8; 50_000];
    let address = bytes.as_ptr();
    let buffer = Buffer::from(bytes);
    assert_eq!(buffer.as_ptr(), address);
    let boxed = vec![6u8; 50_000].into_boxed_slice();
    let address = boxed.as_ptr();
    let part = Buffer::from(boxed).slice(10_000..20_000);
    assert_eq!(part.as_ptr(), address.wrapping_add(10_000));
}

#[test]
fn a_small_slice_that_keeps_much_shows() {
    let counters = alone(|| {
        let kept = Buffer::alloc(1_000_000).slice(10..60);
        let counters = Counters::of_this_thread();
        assert_eq!((counters.own.live(), counters.own.live_bytes()), (1, 50));
        assert_eq!(counters.own.held_bytes(), 1_000_000);
        drop(kept);
        Counters::of_this_thread()
    });
    assert_eq!((counters.own.live(), counters.own.held_bytes()), (0, 0));

    let counters = alone(|| {
        let kept = Buffer::alloc(50);
        let filled: Vec<Buffer> = (0..=home::CHUNK_BYTES / 1000).map(|_| Buffer::alloc(1000)).collect();
        drop(filled);
        let counters = Counters::of_this_thread();
        assert_eq!((counters.pool.live(), counters.pool.live_bytes()), (1, 50));
        assert_eq!(counters.pool.held_bytes(), home::CHUNK_BYTES as u64);
        drop(kept);
        Counters::of_this_thread()
    });
    assert_eq!((counters.pool.live(), counters.pool.held_bytes()), (0, 0));
}

#[test]
fn a_few_bytes_of_much_keep_nothing() {
    let part = Buffer::alloc(1_000_000).slice(10..20);
    assert_eq!(part.home(), Home::InPlace);
}

#[test]
fn in_place_and_copies_on_write_are_counted() {
    let counters = alone(|| {
        let mut shared = Buffer::of(&[1u8; 100]);
        let other = shared.clone();
        shared.make_mut()[0] = 2;
        drop((Buffer::of(&[1, 2, 3]), Buffer::of::<u8>(&[]), other));
        Counters::of_this_thread()
    });
    assert_eq!((counters.in_place.made, counters.in_place.made_bytes), (1, 3));
    assert_eq!((counters.pool.made, counters.copies_on_write), (3, 1));
}

/// Buffers outlive the thread whose pool they came from, and end anywhere.
#[test]
fn buffers_outlive_their_thread() {
    let buffers = alone(|| (0..2_000u32).map(|at| Buffer::of(&vec![at; 64])).collect::<Vec<_>>());
    let halves = buffers.chunks(1_000).map(<[Buffer]>::to_vec).collect::<Vec<_>>();
    drop(buffers);
    let threads = halves.into_iter().map(|half| {
        thread::spawn(move || half.iter().map(|buffer| u64::from(buffer[0]) * buffer.len() as u64).sum::<u64>())
    });
    let sum: u64 = threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().expect("it ends")).sum();
    assert_eq!(sum, (0..2_000u64).map(|at| at % 256 * 64).sum::<u64>());
}

/// One thread makes, another clones, checks and drops, while both carve.
#[test]
fn a_stream_of_buffers_between_threads() {
    let rounds: u32 = if cfg!(miri) { 200 } else { 50_000 };
    let counters = alone(move || {
        let (sender, receiver) = mpsc::sync_channel::<Buffer>(64);
        let consumer = thread::spawn(move || {
            let mut queue = VecDeque::new();
            for (at, buffer) in receiver.iter().enumerate() {
                let copy = Buffer::of(buffer.as_slice());
                queue.push_back((buffer.slice(1..), buffer.clone(), copy));
                drop(buffer);
                if at % 3 == 0 || queue.len() > 100 {
                    let (part, whole, copy) = queue.pop_front().expect("just pushed");
                    assert_eq!((part.as_slice(), whole.as_slice()), (&copy[1..], copy.as_slice()));
                }
            }
            drop(queue);
            Counters::of_this_thread()
        });
        for round in 0..rounds {
            let len = [30, 64, 500, 3_000, 6_000][round as usize % 5];
            sender.send(Buffer::of(&vec![round as u8; len])).expect("the consumer listens");
        }
        drop(sender);
        // In this order: a thread that ends before its buffers do counts their chunk as kept
        // only then.
        consumer.join().expect("the consumer ends") + Counters::of_this_thread()
    });
    for tally in [counters.pool, counters.own] {
        assert_eq!((tally.live(), tally.live_bytes(), tally.held_bytes()), (0, 0, 0));
    }
}

/// A buffer that is made while its thread ends, after the pool has gone.
#[test]
fn a_buffer_of_an_ending_thread_has_memory_of_its_own() {
    struct Late(mpsc::Sender<Buffer>);
    impl Drop for Late {
        fn drop(&mut self) {
            let buffer = Buffer::of(&[9u8; 100]);
            drop(Buffer::alloc_unsafe(200));
            self.0.send(buffer).expect("the test waits");
        }
    }
    thread_local!(static LATE: std::cell::OnceCell<Late> = const { std::cell::OnceCell::new() });
    let (sender, receiver) = mpsc::channel();
    alone(move || {
        // Registered before the pool, so dropped after it.
        LATE.with(|late| assert!(late.set(Late(sender)).is_ok()));
        drop(Buffer::of(&[1u8; 100]));
    });
    let buffer = receiver.recv().expect("it was sent");
    assert_eq!(*buffer, [9; 100]);
    assert!(matches!(buffer.home(), Home::Own | Home::Pool));
}
