//! The order of events that an embedder can see is Node's: the same scenarios run against
//! the `node` that is installed, and against this library, and must log the same.
//!
//! Operations are named by the order in which they were made, since ids differ.

use runtime_core::callback::{
    AsyncHook, AsyncId, AsyncLocal, AsyncResource, Hooks, Promise, Verdict, execution_async_id, make_callback,
    next_tick, on_failure, queue_microtask, run_loop_turn, trigger_async_id,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::process::Command;
use std::rc::Rc;

/// What every scenario begins with in Node: a log, names for ids, all hooks.
const PRELUDE: &str = r#"
const { AsyncResource, AsyncLocalStorage, createHook, executionAsyncId, triggerAsyncId } = require('async_hooks');
const events = [], names = new Map();
const log = (event) => events.push(event);
const name = (id) => names.has(id) ? names.get(id) : '-';
const hook = createHook({
  init(id, type) { if (/^([A-Z]|TickObject|Microtask|PROMISE)$/.test(type)) { names.set(id, type + names.size); log('init ' + name(id)); } },
  before(id) { if (names.has(id)) log('before ' + name(id)); },
  after(id) { if (names.has(id)) log('after ' + name(id)); },
  destroy(id) { if (names.has(id)) log('destroy ' + name(id)); },
  promiseResolve(id) { if (names.has(id)) log('resolve ' + name(id)); },
});
const here = (what) => log(what + ' in ' + name(executionAsyncId()) + ' by ' + name(triggerAsyncId()));
// A callback at depth 0; the log is printed a turn after what it left behind has run.
const run = (scenario) => setImmediate(() => { hook.enable(); scenario(); setImmediate(() => setImmediate(() => {
  hook.disable(); console.log(events.join('\n')); })); });
"#;

#[derive(Clone)]
struct Trace {
    events: Rc<RefCell<Vec<String>>>,
    names: Rc<RefCell<HashMap<AsyncId, String>>>,
}

impl Trace {
    fn new() -> Self {
        Self { events: Rc::default(), names: Rc::default() }
    }

    fn log(&self, event: &str) {
        self.events.borrow_mut().push(event.to_owned());
    }

    fn name(&self, id: AsyncId) -> String {
        self.names.borrow().get(&id).cloned().unwrap_or_else(|| "-".to_owned())
    }

    fn here(&self, what: &str) {
        self.log(&format!("{what} in {} by {}", self.name(execution_async_id()), self.name(trigger_async_id())));
    }

    fn hooks(&self) -> AsyncHook {
        let on = |event: &'static str| {
            let trace = self.clone();
            move |id| {
                let known = trace.names.borrow().get(&id).cloned();
                known.iter().for_each(|name| trace.log(&format!("{event} {name}")));
            }
        };
        let trace = self.clone();
        let init = move |init: runtime_core::callback::Init| {
            let name = format!("{}{}", init.type_name, trace.names.borrow().len());
            trace.log(&format!("init {name}"));
            trace.names.borrow_mut().insert(init.async_id, name);
        };
        Hooks::new()
            .init(init)
            .before(on("before"))
            .after(on("after"))
            .destroy(on("destroy"))
            .promise_resolve(on("resolve"))
            .enable()
    }
}

/// Runs the scenario both ways and compares.
fn same(script: &str, scenario: impl FnOnce(&Trace, &AsyncHook)) {
    let trace = Trace::new();
    let hooks = trace.hooks();
    hooks.disable();
    let immediate = AsyncResource::new("Immediate");
    make_callback(&immediate, || {
        hooks.enable();
        scenario(&trace, &hooks);
    })
    .unwrap();
    run_loop_turn();
    drop(hooks);
    let ours = trace.events.take().join("\n");
    let Ok(node) = Command::new("node").args(["-e", &format!("{PRELUDE}\n{script}")]).output() else {
        println!("skipped: `node` is not installed");
        return;
    };
    assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
    assert_eq!(ours, String::from_utf8_lossy(&node.stdout).trim_end());
}

#[test]
fn ticks_and_microtasks() {
    let script = r#"run(() => {
      process.nextTick(() => { here('t1'); queueMicrotask(() => here('m2')); process.nextTick(() => here('t3')); });
      queueMicrotask(() => { here('m1'); process.nextTick(() => here('t4')); queueMicrotask(() => here('m3')); });
      process.nextTick(() => here('t2'));
      log('end');
    });"#;
    same(script, |trace, _| {
        let t = trace.clone();
        next_tick(move || {
            t.here("t1");
            let (m, tick) = (t.clone(), t);
            queue_microtask(move || m.here("m2"));
            next_tick(move || tick.here("t3"));
        });
        let m = trace.clone();
        queue_microtask(move || {
            m.here("m1");
            let (tick, micro) = (m.clone(), m);
            next_tick(move || tick.here("t4"));
            queue_microtask(move || micro.here("m3"));
        });
        let t = trace.clone();
        next_tick(move || t.here("t2"));
        trace.log("end");
    });
}

#[test]
fn nested_scopes() {
    let script = r#"run(() => {
      const a = new AsyncResource('A');
      a.runInAsyncScope(() => {
        here('outer');
        const b = new AsyncResource('B');
        process.nextTick(() => here('tick'));
        b.runInAsyncScope(() => { here('inner'); a.runInAsyncScope(() => here('again')); });
        b.emitDestroy();
        here('outer');
      });
      a.emitDestroy();
      log('end');
    });"#;
    same(script, |trace, _| {
        let a = AsyncResource::new("A");
        a.run_in_async_scope(|| {
            trace.here("outer");
            let b = AsyncResource::new("B");
            let t = trace.clone();
            next_tick(move || t.here("tick"));
            b.run_in_async_scope(|| {
                trace.here("inner");
                a.run_in_async_scope(|| trace.here("again"));
            });
            drop(b);
            trace.here("outer");
        });
        drop(a);
        trace.log("end");
    });
}

#[test]
fn a_scope_that_fails_is_left() {
    let script = r#"run(() => {
      const a = new AsyncResource('A'), b = new AsyncResource('B');
      a.runInAsyncScope(() => {
        try { b.runInAsyncScope(() => { here('inner'); throw new Error('no'); }); } catch { here('caught'); }
      });
      log('end');
    });"#;
    on_failure(|_| Verdict::GoOn);
    same(script, |trace, _| {
        let (a, b) = (AsyncResource::new("A"), AsyncResource::new("B"));
        a.run_in_async_scope(|| {
            let failed = make_callback(&b, || {
                trace.here("inner");
                panic!("no");
            });
            failed.unwrap_err();
            trace.here("caught");
        });
        trace.log("end");
        // Node drops nothing here, so neither do we.
        std::mem::forget((a, b));
    });
}

#[test]
fn hooks_disabled_on_the_way() {
    let script = r#"run(() => {
      const a = new AsyncResource('A');
      a.runInAsyncScope(() => { hook.disable(); log('off'); });
      a.runInAsyncScope(() => { log('still off'); hook.enable(); });
      a.runInAsyncScope(() => log('on'));
    });"#;
    same(script, |trace, hook| {
        let a = AsyncResource::new("A");
        a.run_in_async_scope(|| {
            hook.disable();
            trace.log("off");
        });
        a.run_in_async_scope(|| {
            trace.log("still off");
            hook.enable();
        });
        a.run_in_async_scope(|| trace.log("on"));
        std::mem::forget(a);
    });
}

#[test]
fn promises() {
    let script = r#"run(() => {
      let resolve;
      const p = new Promise((r) => { resolve = r; });
      p.then(() => { here('then'); process.nextTick(() => here('tick')); });
      process.nextTick(() => here('first'));
      resolve();
      log('end');
    });"#;
    same(script, |trace, _| {
        let p = Promise::new();
        let t = trace.clone();
        std::mem::forget(p.then(move |()| {
            t.here("then");
            next_tick(move || t.here("tick"));
        }));
        let t = trace.clone();
        next_tick(move || t.here("first"));
        p.resolve(()).unwrap();
        trace.log("end");
        std::mem::forget(p);
    });
}

#[test]
fn context_values() {
    let script = r#"run(() => {
      hook.disable();
      const store = new AsyncLocalStorage();
      const look = (where) => log(where + ' ' + store.getStore());
      let a;
      store.run(1, () => {
        a = new AsyncResource('A');
        process.nextTick(() => look('tick'));
        store.run(2, () => queueMicrotask(() => look('microtask')));
        store.exit(() => look('exit'));
        look('end');
      });
      look('outside');
      store.run(3, () => a.runInAsyncScope(() => look('resource')));
    });"#;
    same(script, |trace, hook| {
        hook.disable();
        let store = Rc::new(AsyncLocal::new());
        let look = {
            let (store, trace) = (store.clone(), trace.clone());
            move |place: &str| match store.get() {
                Some(value) => trace.log(&format!("{place} {value}")),
                None => trace.log(&format!("{place} undefined")),
            }
        };
        let a = store.run(1, || {
            let a = AsyncResource::new("A");
            let later = look.clone();
            next_tick(move || later("tick"));
            let later = look.clone();
            store.run(2, || queue_microtask(move || later("microtask")));
            store.exit(|| look("exit"));
            look("end");
            a
        });
        look("outside");
        store.run(3, || a.run_in_async_scope(|| look("resource")));
    });
}
