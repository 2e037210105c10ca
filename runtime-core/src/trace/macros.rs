//! Macros that write an event, and evaluate its arguments only while its category is on.
//!
//! The category is a [`Category`](super::Category), a static [`Named`](super::Named), or a
//! literal name. Then come the event's name, for an asynchronous operation its id, and
//! arguments as `key = value`: integers, floats, bools, text, or [`Json`](super::Json). While
//! the category is off each costs one compare.

/// Writes an event of the phase given, if the category is on. The other macros are built on it.
#[doc(hidden)]
#[macro_export]
macro_rules! trace_event_of {
    ($phase:literal, $category:literal, $($rest:tt)+) => {{
        static CATEGORY: $crate::trace::Named = $crate::trace::Named::new($category);
        $crate::trace_event_of!($phase, CATEGORY, $($rest)+)
    }};
    ($phase:literal, $category:expr, $name:expr $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::trace_event_of!(@write event, $category, ($phase, $name, 0), $($key = $value),*)
    };
    (with_id $phase:literal, $category:literal, $($rest:tt)+) => {{
        static CATEGORY: $crate::trace::Named = $crate::trace::Named::new($category);
        $crate::trace_event_of!(with_id $phase, CATEGORY, $($rest)+)
    }};
    (with_id $phase:literal, $category:expr, $name:expr, $id:expr $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::trace_event_of!(@write event, $category, ($phase, $name, $id), $($key = $value),*)
    };
    (complete, $category:literal, $($rest:tt)+) => {{
        static CATEGORY: $crate::trace::Named = $crate::trace::Named::new($category);
        $crate::trace_event_of!(complete, CATEGORY, $($rest)+)
    }};
    (complete, $category:expr, $name:expr, $begin_ns:expr $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::trace_event_of!(@write complete, $category, ($name, $begin_ns), $($key = $value),*)
    };
    (@write $function:ident, $category:expr, ($($what:expr),+), $($key:ident = $value:expr),*) => {
        if $crate::trace::Traced::is_on(&$category) {
            $crate::trace::$function(
                $crate::trace::Traced::get(&$category),
                $($what,)+
                &[$((::core::stringify!($key), $crate::trace::Value::from($value))),*],
            );
        }
    };
}

/// Something begins in this thread; the next [`trace_end!`](crate::trace_end) of the thread
/// ends it.
///
/// ```
/// use runtime_core::{trace_begin, trace_end};
/// trace_begin!("my.jobs", "compact", files = 3, forced = true);
/// trace_end!("my.jobs", "compact", bytes = 4096_u64);
/// ```
#[macro_export]
macro_rules! trace_begin {
    ($($all:tt)+) => { $crate::trace_event_of!(b'B', $($all)+) };
}

/// What began last in this thread ends.
#[macro_export]
macro_rules! trace_end {
    ($($all:tt)+) => { $crate::trace_event_of!(b'E', $($all)+) };
}

/// Something happened.
#[macro_export]
macro_rules! trace_instant {
    ($($all:tt)+) => { $crate::trace_event_of!(b'i', $($all)+) };
}

/// Values over time: each argument is a series of the counter's.
#[macro_export]
macro_rules! trace_counter {
    ($($all:tt)+) => { $crate::trace_event_of!(b'C', $($all)+) };
}

/// Something that began at a time taken by [`now_ns`](crate::trace::now_ns) ends now: one
/// event with a duration.
///
/// ```
/// let begin_ns = runtime_core::trace::now_ns();
/// runtime_core::trace_complete!("my.jobs", "compact", begin_ns, files = 3);
/// ```
#[macro_export]
macro_rules! trace_complete {
    ($($all:tt)+) => { $crate::trace_event_of!(complete, $($all)+) };
}

/// An operation begins that may end in another thread, under an id of its own
/// ([`next_id`](crate::trace::lane::next_id)).
///
/// ```
/// let id = runtime_core::trace::lane::next_id();
/// runtime_core::trace_async_begin!("my.jobs", "upload", id, bytes = 4096);
/// runtime_core::trace_async_end!("my.jobs", "upload", id);
/// ```
#[macro_export]
macro_rules! trace_async_begin {
    ($($all:tt)+) => { $crate::trace_event_of!(with_id b'b', $($all)+) };
}

/// Something happened in the course of such an operation.
#[macro_export]
macro_rules! trace_async_instant {
    ($($all:tt)+) => { $crate::trace_event_of!(with_id b'n', $($all)+) };
}

/// Such an operation ends.
#[macro_export]
macro_rules! trace_async_end {
    ($($all:tt)+) => { $crate::trace_event_of!(with_id b'e', $($all)+) };
}

#[cfg(test)]
mod tests {
    use crate::page::tests_alone;
    use crate::trace::{Category, Json, Named, now_ns};
    use std::cell::Cell;

    static NAMED: Named = Named::new("macros.named");

    /// Every macro with every kind of category; returns how many arguments were evaluated.
    fn write_all() -> u32 {
        let evaluated = Cell::new(0);
        let costly = || {
            evaluated.set(evaluated.get() + 1);
            evaluated.get()
        };
        let category = Category::named("macros.category");
        trace_begin!(category, "work", n = costly());
        trace_end!(NAMED, "work", text = costly().to_string().as_str());
        trace_instant!("macros.literal", "seen", json = Json("[1]"), n = costly());
        trace_counter!(NAMED, "level", of = f64::from(costly()), other = -1_i8);
        trace_complete!("macros.literal", "all", now_ns(), yes = costly() > 0);
        trace_async_begin!(category, "op", 7, bytes = &b"raw\xff"[..], n = costly());
        trace_async_instant!(NAMED, "op", u64::from(costly()));
        trace_async_end!("macros.literal", "op", 7, n = costly(),);
        evaluated.get()
    }

    #[test]
    fn arguments_are_evaluated_only_while_the_category_is_on() {
        let _alone = tests_alone();
        assert_eq!(write_all(), 0);
        let enabled = crate::trace::enable("macros.*".parse().unwrap());
        assert_eq!(write_all(), 8);
        drop(enabled);
        assert_eq!(write_all(), 0);
    }
}
