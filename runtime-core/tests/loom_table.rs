//! The name table under a model checker: every order in which two adders and a reader can
//! take their steps.

use loom::sync::{Arc, Mutex};
use loom::thread;

/// The table's own source, on the checker's atomics in place of the machine's.
#[path = "../src/page/table.rs"]
#[allow(dead_code, reason = "only what is checked is used")]
mod table;

mod sync {
    pub use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
}

fn empty() -> table::Table<3> {
    table::Table {
        slots: std::array::from_fn(|_| sync::AtomicPtr::new(std::ptr::null_mut())),
        len: sync::AtomicUsize::new(0),
    }
}

#[test]
fn a_name_has_one_index_and_is_found_from_then_on() {
    loom::model(|| {
        let shared = Arc::new((Mutex::new(()), empty()));
        let adders = [["a", "b"], ["b", "c"]].map(|names| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (lock, table) = &*shared;
                names.map(|name| {
                    let found = table.find(name).or_else(|| {
                        let _held = lock.lock().unwrap();
                        table.find_or_add(name, |_| true)
                    });
                    let index = found.expect("there is room");
                    assert_eq!((table.find(name), table.get(index)), (Some(index), Some(name)));
                    index
                })
            })
        });
        // A reader sees whole names, never moving, never fewer.
        let table = &shared.1;
        let before = table.len();
        let first: Vec<_> = (0..before).map(|index| table.get(index).unwrap()).collect();
        assert!(first.iter().all(|name| ["a", "b", "c"].contains(name)));
        assert!(table.len() >= before);
        assert_eq!(first, (0..before).map(|index| table.get(index).unwrap()).collect::<Vec<_>>());
        let [left, right] = adders.map(|adder| adder.join().unwrap());
        assert_eq!(left[1], right[0]);
        let mut all = vec![left[0], left[1], right[1]];
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert!(table.is_full() && table.find_or_add("d", |_| true).is_none());
    });
}

#[test]
fn a_name_that_finds_no_room_leaves_no_trace() {
    loom::model(|| {
        let table = empty();
        assert_eq!(table.find_or_add("a", |_| false), None);
        assert_eq!((table.len(), table.find("a")), (0, None));
        assert_eq!(table.find_or_add("b", |index| index == 0), Some(0));
    });
}
