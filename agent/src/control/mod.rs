//! The control socket: lines of JSON, one request a connection.
//!
//! The client sends one [`protocol::Request`] line. The answer is one
//! [`protocol::Reply`] line, or, for `watch`, `record` and `profile`, a `started` line,
//! then event lines (Chrome trace objects, which begin with `{"ph":`), then an `end` or
//! `profile` line. During a stream the client may send `{"v":1,"verb":"stop"}`: the
//! window closes, the rest is drained, and the closing line comes. A connection that
//! ends early ends its session.

pub mod client;
pub mod protocol;
pub mod server;
