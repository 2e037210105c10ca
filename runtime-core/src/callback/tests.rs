//! What an embedder can see of entries, hooks, queues, failures and context values.

use super::*;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn push(&self, event: impl Into<String>) {
        self.0.borrow_mut().push(event.into());
    }

    fn job(&self, event: &'static str) -> impl FnOnce() + 'static {
        let log = self.clone();
        move || log.push(event)
    }

    fn take(&self) -> String {
        self.0.take().join(" ")
    }

    /// Reports failures here and says `verdict` to each.
    fn handle(&self, verdict: Verdict) {
        let log = self.clone();
        on_failure(move |failure| {
            log.push(format!("{:?}:{}", failure.origin, failure.type_name));
            verdict
        });
    }

    /// All five hooks, by name and type.
    fn hooks(&self) -> AsyncHook {
        let [a, b, c, d, e] = [(); 5].map(|()| self.clone());
        Hooks::new()
            .init(move |init| a.push(format!("init:{}", init.type_name)))
            .before(move |_| b.push("before"))
            .after(move |_| c.push("after"))
            .destroy(move |_| d.push("destroy"))
            .promise_resolve(move |_| e.push("resolve"))
            .enable()
    }
}

fn ids() -> (u64, u64) {
    (execution_async_id().get(), trigger_async_id().get())
}

#[test]
fn ids_are_unique_and_name_the_operation_that_began_them() {
    let here = AsyncResource::new("A");
    let there = std::thread::spawn(|| (0..5000).map(|_| AsyncResource::new("B").async_id()).collect::<Vec<_>>());
    let mut all = there.join().unwrap();
    let children = make_callback(&here, || [AsyncResource::new("C"), AsyncResource::new("D")]).unwrap();
    assert_eq!(children.each_ref().map(AsyncResource::trigger_async_id), [here.async_id(); 2]);
    assert_eq!(here.trigger_async_id(), AsyncId::NONE);
    all.extend(children.each_ref().map(AsyncResource::async_id));
    all.push(here.async_id());
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), all.contains(&AsyncId::NONE)), (count, false));
}

#[test]
fn an_entry_is_seen_inside_and_gone_after() {
    let (a, b) = (AsyncResource::new("A"), AsyncResource::with_trigger("B", AsyncId(7)));
    let (a_id, b_id) = (a.async_id().get(), b.async_id().get());
    assert_eq!(ids(), (0, 0));
    let seen = make_callback(&a, || {
        let outer = ids();
        let inner = b.run_in_async_scope(|| (ids(), make_callback(&a, ids).unwrap()));
        (outer, inner, ids())
    });
    assert_eq!(seen, Ok(((a_id, 0), ((b_id, 7), (a_id, 0)), (a_id, 0))));
    assert_eq!(ids(), (0, 0));
}

#[test]
fn queues_drain_where_the_outermost_entry_is_left() {
    let log = Log::default();
    let resource = AsyncResource::new("A");
    make_callback(&resource, || {
        make_callback(&resource, || {
            queue_microtask(log.job("m1"));
            let later = log.clone();
            next_tick(move || {
                later.push("t1");
                queue_microtask(later.job("m2"));
                next_tick(later.job("t3"));
                // An entry inside a tick is not the outermost.
                let nested = AsyncResource::new("B");
                make_callback(&nested, || next_tick(later.job("t4"))).unwrap();
                later.push("t1-end");
            });
            next_tick(log.job("t2"));
        })
        .unwrap();
        log.push("outer-end");
    })
    .unwrap();
    assert_eq!(log.take(), "outer-end t1 t1-end t2 t3 t4 m1 m2");
}

#[test]
fn a_microtask_that_queues_a_tick_waits_for_the_microtasks() {
    let log = Log::default();
    make_callback(&AsyncResource::new("A"), || {
        let later = log.clone();
        queue_microtask(move || {
            next_tick(later.job("tick"));
            queue_microtask(later.job("m3"));
            later.push("m1");
        });
        queue_microtask(log.job("m2"));
    })
    .unwrap();
    assert_eq!(log.take(), "m1 m2 m3 tick");
}

#[test]
fn what_is_queued_outside_runs_at_the_turn() {
    let log = Log::default();
    next_tick(log.job("tick"));
    queue_microtask(log.job("microtask"));
    assert_eq!(log.take(), "");
    assert_eq!(run_loop_turn(), Verdict::GoOn);
    assert_eq!(log.take(), "tick microtask");
    make_callback(&AsyncResource::new("A"), || {
        next_tick(log.job("late"));
        run_loop_turn();
        log.push("inside");
    })
    .unwrap();
    assert_eq!(log.take(), "inside late");
}

#[test]
fn panics_and_errors_are_contained_and_reported_once() {
    let log = Log::default();
    log.handle(Verdict::GoOn);
    let resource = AsyncResource::new("A");
    let result = make_callback(&resource, || {
        let inner = make_callback(&AsyncResource::new("B"), || -> u8 { panic!("inner") });
        assert!(inner.is_err());
        assert_eq!(execution_async_id(), resource.async_id());
        next_tick(|| panic!("tick"));
        next_tick(log.job("next"));
        queue_microtask(|| panic!("microtask"));
        try_callback(&AsyncResource::new("C"), || Err::<(), _>("no")).unwrap_err();
        5
    });
    assert_eq!(result, Ok(5));
    assert_eq!(log.take(), "Callback:B Callback:C Tick:TickObject next Microtask:Microtask");
    assert_eq!((ids(), stop_requested()), ((0, 0), false));
}

#[test]
fn stop_leaves_the_queues_until_it_is_cleared() {
    let log = Log::default();
    log.handle(Verdict::Stop);
    let failed = make_callback(&AsyncResource::new("A"), || {
        next_tick(log.job("tick"));
        panic!("stop here");
    });
    assert!(failed.is_err() && stop_requested());
    assert_eq!((log.take().as_str(), run_loop_turn()), ("Callback:A", Verdict::Stop));
    clear_stop();
    assert_eq!((run_loop_turn(), log.take().as_str()), (Verdict::GoOn, "tick"));
}

#[test]
fn a_handler_or_payload_that_panics_does_not_get_out() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    on_failure(|_| panic!("in the handler"));
    assert!(make_callback(&AsyncResource::new("A"), || std::panic::panic_any(Bomb)).is_err());
    assert!(stop_requested());
    clear_stop();
    on_failure(|_| Verdict::GoOn);
    let bomb = Bomb;
    assert!(make_callback(&AsyncResource::new("A"), move || drop(bomb)).is_err());
    assert_eq!((ids(), stop_requested()), ((0, 0), false));
}

#[test]
fn without_a_handler_the_loop_stops() {
    assert!(make_callback(&AsyncResource::new("A"), || panic!("nobody listens")).is_err());
    assert_eq!(run_loop_turn(), Verdict::Stop);
}

#[test]
fn hooks_see_the_life_of_resources() {
    let log = Log::default();
    let hook = log.hooks();
    let resource = AsyncResource::new("A");
    make_callback(&resource, || {
        log.push("run");
        next_tick(log.job("tick"));
    })
    .unwrap();
    drop(resource);
    assert_eq!(log.take(), "init:A before run init:TickObject after before tick after");
    run_loop_turn();
    assert_eq!(log.take(), "destroy destroy");
    hook.disable();
    make_callback(&AsyncResource::new("B"), || next_tick(|| {})).unwrap();
    run_loop_turn();
    assert_eq!(log.take(), "");
    hook.enable();
    log.handle(Verdict::GoOn);
    make_callback(&AsyncResource::new("C"), || panic!("after comes all the same")).unwrap_err();
    assert_eq!(log.take(), "init:C before after Callback:C");
    drop(hook);
    run_loop_turn();
    assert_eq!(log.take(), "", "dropping the handle disables");
}

#[test]
fn hooks_change_hooks_and_panic() {
    let log = Log::default();
    log.handle(Verdict::GoOn);
    let second = Rc::new(RefCell::new(None::<AsyncHook>));
    let slot = second.clone();
    let later = log.clone();
    let first = Hooks::new()
        .before(move |_| {
            later.push("first");
            let inner = later.clone();
            // Counts from the next event on.
            *slot.borrow_mut() = Some(Hooks::new().before(move |_| inner.push("second")).enable());
            panic!("in a hook");
        })
        .enable();
    let third = {
        let log = log.clone();
        Hooks::new().before(move |_| log.push("third")).enable()
    };
    let resource = AsyncResource::new("A");
    make_callback(&resource, || log.push("run")).unwrap();
    assert_eq!(log.take(), "first Hook:A third run");
    first.disable();
    make_callback(&resource, || log.push("run")).unwrap();
    assert_eq!(log.take(), "third second run");
    // One that drops itself while it runs.
    let itself = Rc::new(RefCell::new(None::<AsyncHook>));
    let (slot, later) = (itself.clone(), log.clone());
    *itself.borrow_mut() = Some(
        Hooks::new()
            .after(move |_| {
                drop(slot.borrow_mut().take());
                later.push("last");
            })
            .enable(),
    );
    drop((first, third, second.take()));
    for _ in 0..2 {
        make_callback(&resource, || log.push("run")).unwrap();
    }
    assert_eq!(log.take(), "run last run");
}

#[test]
fn an_init_hook_that_makes_a_resource_is_entered_again() {
    let depth = Rc::new(Cell::new(0));
    let seen = depth.clone();
    let _hook = Hooks::new()
        .init(move |_| {
            seen.set(seen.get() + 1);
            if seen.get() < 5 {
                drop(AsyncResource::new("INNER"));
            }
        })
        .enable();
    drop(AsyncResource::new("OUTER"));
    assert_eq!(depth.get(), 5);
}

#[test]
fn scopes_pair_enter_and_leave() {
    let log = Log::default();
    let resource = AsyncResource::new("A");
    {
        let mut scope = pin!(CallbackScope::new(&resource));
        scope.as_mut().enter();
        scope.as_mut().enter();
        next_tick(log.job("tick"));
        assert_eq!(execution_async_id(), resource.async_id());
        assert_eq!(log.take(), "");
    }
    assert_eq!((log.take().as_str(), ids()), ("tick", (0, 0)));
    let mut scope = pin!(CallbackScope::new(&resource));
    for _ in 0..2 {
        scope.as_mut().enter();
        assert_eq!(execution_async_id(), resource.async_id());
        scope.as_mut().leave();
        scope.as_mut().leave();
        assert_eq!(ids(), (0, 0));
    }
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let mut scope = pin!(CallbackScope::new(&resource));
        scope.as_mut().enter();
        next_tick(log.job("kept"));
        panic!("through the scope");
    }));
    assert!(unwound.is_err());
    assert_eq!((log.take().as_str(), ids()), ("", (0, 0)));
    run_loop_turn();
    assert_eq!(log.take(), "kept");
}

#[test]
fn a_corrupted_stack_is_reported_with_both_stacks_and_put_right() {
    let reports = Rc::new(RefCell::new(Vec::new()));
    let kept = reports.clone();
    on_failure(move |failure| {
        match &failure.cause {
            Cause::CorruptStack(report) => kept.borrow_mut().push((report.clone(), failure.to_string())),
            _ => panic!("not a corrupted stack: {failure}"),
        }
        Verdict::GoOn
    });
    let log = Log::default();
    let _hook = {
        let log = log.clone();
        Hooks::new().after(move |id| log.push(id.to_string())).enable()
    };
    let [a, b, c] = ["A", "B", "C"].map(AsyncResource::new);
    let [a_id, b_id, c_id] = [&a, &b, &c].map(AsyncResource::async_id);
    make_callback(&a, || {
        let mut outer = pin!(CallbackScope::new(&b));
        outer.as_mut().enter();
        make_callback(&c, || outer.as_mut().leave()).unwrap();
        assert_eq!(execution_async_id(), a_id);
    })
    .unwrap();
    let reports = reports.take();
    assert_eq!(reports.len(), 1, "said once");
    let (report, text) = &reports[0];
    assert_eq!((&report.expected, &report.actual), (&vec![b_id, a_id], &vec![c_id, b_id, a_id]));
    assert!(
        text.contains(&format!("{b_id} < {a_id}")) && text.contains(&format!("{c_id} < {b_id} < {a_id}")),
        "{text}"
    );
    assert_eq!(log.take(), format!("{b_id} {c_id} {a_id}"), "each was told once");
    assert_eq!(ids(), (0, 0));
    // A scope that is never left, in a box that lives on.
    let mut leaked = Box::pin(CallbackScope::new(&b));
    on_failure(|_| Verdict::GoOn);
    make_callback(&a, || leaked.as_mut().enter()).unwrap();
    assert_eq!(ids(), (0, 0));
    drop(leaked);
    assert_eq!(ids(), (0, 0));
}

#[test]
fn a_context_value_follows_the_work() {
    let (user, route) = (AsyncLocal::new(), AsyncLocal::new());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (user, route) = (Rc::new(user), Rc::new(route));
    let look = {
        let (seen, user, route) = (seen.clone(), user.clone(), route.clone());
        Rc::new(move |place| seen.borrow_mut().push((place, user.get().map(|u| *u), route.get().map(|r| *r))))
    };
    let timer = user.run(1, || {
        next_tick({
            let look = look.clone();
            move || look("tick")
        });
        route.run("/a", || AsyncResource::new("Timeout"))
    });
    make_callback(&timer, || {
        look("timer");
        user.run(2, || {
            look("inner");
            let look = look.clone();
            queue_microtask(move || look("microtask"));
        });
        user.exit(|| look("exit"));
        assert!(catch_unwind(AssertUnwindSafe(|| user.run(3, || panic!("through run")))).is_err());
        look("end");
    })
    .unwrap();
    look("outside");
    assert_eq!(
        *seen.borrow(),
        [
            ("timer", Some(1), Some("/a")),
            ("inner", Some(2), Some("/a")),
            ("exit", None, Some("/a")),
            ("end", Some(1), Some("/a")),
            ("tick", Some(1), None),
            ("microtask", Some(2), Some("/a")),
            ("outside", None, None),
        ]
    );
}

#[test]
fn promises_resolve_once_and_react_as_microtasks() {
    let log = Log::default();
    log.handle(Verdict::GoOn);
    let hook = log.hooks();
    let promise = Promise::new();
    let later = log.clone();
    let chained = promise.then(move |value| {
        later.push(format!("then {value}"));
        value + 1
    });
    let fails = promise.then(|_| -> u8 { panic!("in a reaction") });
    assert_eq!(log.take(), "init:PROMISE init:PROMISE init:PROMISE");
    make_callback(&AsyncResource::new("A"), || {
        promise.resolve(1).unwrap();
        assert_eq!(promise.resolve(2), Err(2));
        log.push("resolved");
    })
    .unwrap();
    assert_eq!(
        log.take(),
        "init:A before resolve resolved after before then 1 resolve after before after Microtask:PROMISE"
    );
    assert_eq!((chained.value().as_deref(), fails.value()), (Some(&2), None));
    drop(hook);
}

#[test]
fn depth_costs_no_more_than_the_native_stack() {
    fn down(depth: u32, resource: &AsyncResource) -> u32 {
        if depth == 0 { 0 } else { make_callback(resource, || down(depth - 1, resource) + 1).unwrap() }
    }
    let resource = AsyncResource::new("A");
    assert_eq!(down(1000, &resource), 1000);
    assert_eq!(ids(), (0, 0));
}

#[test]
fn a_thread_may_end_with_hooks_and_work_queued() {
    struct AtTheEnd;
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            next_tick(|| {});
            drop(AsyncResource::new("LATE"));
            let _ = make_callback(&AsyncResource::new("LATE"), || {});
        }
    }
    std::thread::spawn(|| {
        std::mem::forget(Log::default().hooks());
        let value = AtTheEnd;
        next_tick(move || drop(value));
        drop(AsyncResource::new("A"));
    })
    .join()
    .unwrap();
}
