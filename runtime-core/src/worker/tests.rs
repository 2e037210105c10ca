//! What the users of ports can rely on.

use super::*;
use crate::callback::{Hooks, Verdict, clear_stop, execution_async_id, next_tick, on_failure};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

/// Counts wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Two bound ports of this thread, and the second one's events in order.
fn pair() -> (BoundPort, Rc<BoundPort>, Rc<RefCell<Vec<String>>>) {
    let (a, b) = channel();
    let (a, b) = (a.bind(Arc::new(Count::default())), Rc::new(b.bind(Arc::new(Count::default()))));
    let events = Rc::new(RefCell::new(Vec::new()));
    let log = events.clone();
    b.target().add(move |event| {
        log.borrow_mut().push(match event {
            Event::Message(value) => text(value),
            other => format!("{other:?}"),
        });
    });
    (a, b, events)
}

#[test]
fn messages_arrive_in_order_then_the_close_once() {
    let (a, b, events) = pair();
    for name in ["1", "2", "3"] {
        assert_eq!(a.post(name), Ok(Flow::Room));
    }
    a.close();
    assert_eq!(a.post("late"), Err(PostError::Closed("late".into())));
    assert_eq!(b.post("late"), Err(PostError::Closed("late".into())));
    assert_eq!((b.deliver(), b.deliver()), (3, 0));
    b.close();
    b.deliver();
    assert_eq!(*events.borrow(), ["1", "2", "3", "Close"]);
    let closed = Rc::new(Cell::new(0));
    let seen = closed.clone();
    a.target().add(move |event| seen.set(seen.get() + u32::from(*event == Event::Close)));
    a.deliver();
    a.deliver();
    assert_eq!(closed.get(), 1, "the end that closed sees it too");
}

#[test]
fn one_wake_up_a_batch() {
    let (a, b) = channel();
    a.post("before anybody listens").unwrap();
    let wakes = Arc::new(Count::default());
    let b = b.bind(wakes.clone());
    let got = Rc::new(Cell::new(0));
    let count = got.clone();
    b.on_message(move |_| count.set(count.get() + 1));
    for batch in 1..=3 {
        for _ in 0..100 {
            a.post("message").unwrap();
        }
        assert_eq!(wakes.0.load(Ordering::SeqCst), batch);
        b.deliver();
    }
    assert_eq!(got.get(), 301);
    drop(a);
    assert_eq!(wakes.0.load(Ordering::SeqCst), 4, "and one for the close");
}

#[test]
fn each_message_is_a_callback_of_its_own() {
    let (a, b) = channel();
    let b = b.bind(Arc::new(Count::default()));
    let log = Rc::new(RefCell::new(Vec::new()));
    let [before, after, handler] = [(); 3].map(|()| log.clone());
    let _hooks = Hooks::new()
        .before(move |id| before.borrow_mut().push(format!("before {id}")))
        .after(move |_| after.borrow_mut().push("after".to_owned()))
        .enable();
    let id = b.resource().async_id();
    b.on_message(move |value| {
        assert_eq!(execution_async_id(), id);
        handler.borrow_mut().push(text(&value));
        let handler = handler.clone();
        next_tick(move || handler.borrow_mut().push("tick".to_owned()));
    });
    a.post("x").unwrap();
    a.post("y").unwrap();
    b.deliver();
    let seen = log.borrow().iter().filter(|event| !event.starts_with("before")).cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(seen, "x after tick after y after tick after");
    assert_eq!(log.borrow().iter().filter(|event| **event == format!("before {id}")).count(), 2);
}

#[test]
fn listeners_come_and_go_while_they_are_called() {
    let (a, b, events) = pair();
    let log = events.clone();
    b.target().once(move |_| log.borrow_mut().push("once".to_owned()));
    let victim = Rc::new(Cell::new(None));
    let (port, doomed, log) = (Rc::downgrade(&b), victim.clone(), events.clone());
    b.target().once(move |_| {
        let port = port.upgrade().unwrap();
        assert!(port.target().remove(doomed.get().unwrap()));
        assert!(!port.target().remove(doomed.get().unwrap()));
        let log = log.clone();
        port.target().add(move |_| log.borrow_mut().push("added".to_owned()));
    });
    victim.set(Some(b.target().add(|_| panic!("removed before its turn"))));
    a.post("1").unwrap();
    a.post("2").unwrap();
    b.deliver();
    assert_eq!(*events.borrow(), ["1", "once", "2", "added"]);
}

#[test]
fn a_listener_or_handler_that_panics_harms_no_other() {
    let failures = Rc::new(Cell::new(0));
    let count = failures.clone();
    on_failure(move |_| {
        count.set(count.get() + 1);
        Verdict::GoOn
    });
    let (a, b, events) = pair();
    let id = b.target().add(|_| panic!("a listener"));
    let log = events.clone();
    b.target().add(move |_| log.borrow_mut().push("other".to_owned()));
    a.post("1").unwrap();
    b.deliver();
    assert_eq!((events.take().join(" ").as_str(), failures.get()), ("1 other", 1));
    b.target().remove(id);
    b.on_message(|_| panic!("a handler"));
    a.post("2").unwrap();
    a.post("3").unwrap();
    assert_eq!((b.deliver(), failures.get()), (2, 3));
}

#[test]
fn stop_keeps_the_rest_for_later() {
    let (a, b, events) = pair();
    on_failure(|_| Verdict::Stop);
    let failed = b.target().once(|_| panic!("stop"));
    a.post("1").unwrap();
    a.post("2").unwrap();
    a.close();
    assert_eq!(b.deliver(), 1);
    assert!(b.is_ready());
    clear_stop();
    assert!(!b.target().remove(failed));
    assert_eq!(b.deliver(), 1);
    assert_eq!(*events.borrow(), ["1", "2", "Close"]);
}

#[test]
fn a_handler_may_post_deliver_close_and_replace_itself() {
    let (a, b) = channel();
    let (a, b) = (a, Rc::new(b.bind(Arc::new(Count::default()))));
    let log = Rc::new(RefCell::new(Vec::new()));
    let (port, first) = (b.clone(), log.clone());
    b.on_message(move |value| {
        first.borrow_mut().push(format!("first {}", text(&value)));
        assert_eq!(port.deliver(), 0, "not inside itself");
        port.post("answer").unwrap();
        port.close();
        let second = first.clone();
        port.on_message(move |value| second.borrow_mut().push(format!("second {}", text(&value))));
    });
    a.post("1").unwrap();
    a.post("2").unwrap();
    b.deliver();
    assert_eq!(*log.borrow(), ["first 1", "second 2"]);
    assert_eq!(a.receive(), Some("answer".into()));
    assert_eq!(a.receive(), None);
}

#[test]
fn back_pressure_is_said_and_its_end_too() {
    let (a, b) = channel_with(Options { high_water: 2, capacity: 3 });
    let wakes = Arc::new(Count::default());
    let (a, b) = (a.bind(wakes.clone()), b.bind(Arc::new(Count::default())));
    let drains = Rc::new(Cell::new(0));
    let count = drains.clone();
    a.target().add(move |event| count.set(count.get() + u32::from(*event == Event::Drain)));
    assert_eq!(a.post("1"), Ok(Flow::Room));
    assert_eq!(a.post("2"), Ok(Flow::Full));
    assert_eq!(a.post("3"), Ok(Flow::Full));
    assert_eq!(a.post("4"), Err(PostError::Full("4".into())));
    assert_eq!(b.deliver(), 3);
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    a.deliver();
    assert_eq!((drains.get(), a.post("5")), (1, Ok(Flow::Room)));
    b.deliver();
    a.deliver();
    assert_eq!(drains.get(), 1);
}

#[test]
fn threads_exchange_and_a_thread_that_dies_closes() {
    let (here, there) = channel();
    let worker = std::thread::spawn(move || {
        on_failure(|_| Verdict::Stop);
        let port = Rc::new(there.bind(current_thread()));
        let answer = Rc::downgrade(&port);
        port.on_message(move |value| {
            let Value::Int(number) = value else { panic!("the last message") };
            answer.upgrade().unwrap().post(number * 2).unwrap();
        });
        while !crate::callback::stop_requested() {
            assert!(port.wait(100, LONG));
            port.deliver();
        }
        panic!("the thread dies");
    });
    let port = here.bind(current_thread());
    let (sum, closed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (add, close) = (sum.clone(), closed.clone());
    port.target().add(move |event| match event {
        Event::Message(Value::Int(number)) => add.set(add.get() + number),
        Event::Close => close.set(close.get() + 1),
        Event::Drain => {}
        other => panic!("{other:?}"),
    });
    for number in 0..2000_i64 {
        port.post(number).unwrap();
        if number % 7 == 0 {
            port.deliver();
        }
    }
    port.post("die").unwrap();
    while closed.get() == 0 && !crate::callback::stop_requested() {
        assert!(port.wait(100, LONG));
        port.deliver();
    }
    assert!(worker.join().is_err());
    assert_eq!((sum.get(), closed.get()), (1999 * 2000, 1));
    assert!(!port.wait(10, Duration::from_millis(5)));
}

#[test]
fn buffers_move_without_a_copy() {
    let bytes = vec![7u8; 1 << 16];
    let address = bytes.as_ptr();
    let (a, b) = channel();
    std::thread::spawn(move || a.post(bytes).map(drop).unwrap()).join().unwrap();
    let Some(Value::Bytes(bytes)) = b.receive() else { panic!("no bytes") };
    assert_eq!(bytes.as_ptr(), address);
}

#[test]
fn serde_builds_and_reads_the_tree() {
    #[derive(serde::Serialize, ::serde::Deserialize, Debug, PartialEq)]
    enum Kind {
        Unit,
        One(u8),
        Two(i64, String),
        Named { a: Option<f64>, b: Vec<bool> },
    }
    #[derive(serde::Serialize, ::serde::Deserialize, Debug, PartialEq)]
    struct Message {
        kinds: Vec<Kind>,
        by_number: BTreeMap<u32, char>,
        big: u64,
        nothing: (),
        pair: (i8, String),
    }
    let message = || Message {
        kinds: vec![
            Kind::Unit,
            Kind::One(1),
            Kind::Two(-2, "two".into()),
            Kind::Named { a: None, b: vec![true] },
            Kind::Named { a: Some(0.5), b: vec![] },
        ],
        by_number: [(1, 'ä'), (2, 'b')].into(),
        big: u64::MAX,
        nothing: (),
        pair: (-1, "a text that is longer than what lies in place".into()),
    };
    let value = to_value(&message()).unwrap();
    assert_eq!(value.get("big"), Some(&Value::Uint(u64::MAX)));
    assert_eq!(from_value::<Message>(value.clone()).unwrap(), message());
    assert_eq!(to_value(&value).unwrap(), value, "a value is itself");
    assert_eq!(from_value::<Value>(value.clone()).unwrap(), value);
    let json = serde_json::to_string(&value).unwrap();
    assert_eq!(json, serde_json::to_string(&message()).unwrap());
    let wrong = from_value::<Message>(Value::List(vec![])).unwrap_err();
    assert!(wrong.to_string().contains("invalid length 0"), "{wrong}");
    assert!(to_value(&BTreeMap::from([(vec![1], 2)])).is_err());
    assert!(from_value::<Kind>(Value::Int(1)).is_err());
}
