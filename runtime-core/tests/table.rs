//! The category table to its last row, in a process of its own: rows are never given back.

use runtime_core::trace::{Category, Filter, Named, enable, flags};
use runtime_core_abi::page::{CATEGORIES_MAX, CATEGORY_EXHAUSTED};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;

static LATE: Named = Named::new("late.static");

#[test]
fn two_hundred_names_and_then_the_slot_that_is_never_on() {
    // Threads that add the same names at once agree on every index.
    let barrier = Barrier::new(4);
    let names: Vec<String> = (1..CATEGORIES_MAX).map(|n| format!("full.{n}")).collect();
    let seen: Vec<Vec<Category>> = thread::scope(|scope| {
        let adders = (0..4).map(|_| {
            scope.spawn(|| {
                barrier.wait();
                names.iter().map(|name| Category::named(name)).collect()
            })
        });
        let adders: Vec<_> = adders.collect();
        adders.into_iter().map(|adder| adder.join().unwrap()).collect()
    });
    assert!(seen.iter().all(|categories| *categories == seen[0]));
    let mut indexes: Vec<usize> = seen[0].iter().map(|category| category.index()).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (1..CATEGORIES_MAX).collect::<Vec<_>>());
    assert_eq!(Category::named("node.http"), Category::NODE_HTTP);

    // Full: every other name shares the slot behind the last, and no switch reaches it.
    let late = Category::named("full.200");
    assert!(late.is_exhausted() && late == Category::named("full.201"));
    assert_eq!((late.index(), late.name(), Category::at(late.index())), (CATEGORY_EXHAUSTED, None, None));
    late.set_enabled(true);
    let all = enable("*,full.*".parse::<Filter>().unwrap());
    assert!(!late.enabled() && !LATE.enabled() && LATE.category().is_exhausted());
    assert!(Category::all().all(Category::enabled));
    drop(all);
    assert!(!Category::all().any(Category::enabled));

    // The address of a flag is for ever, and each has one of its own.
    let words: Vec<_> = flags().iter().map(|word| word.as_ptr()).collect();
    for (index, category) in Category::all().enumerate() {
        category.set_enabled(true);
        let on: Vec<usize> = (0..=CATEGORIES_MAX).filter(|at| flags()[*at][0].load(Ordering::Relaxed) != 0).collect();
        assert_eq!(on, [index]);
        category.set_enabled(false);
    }
    assert_eq!(words, flags().iter().map(|word| word.as_ptr()).collect::<Vec<_>>());
}
