//! A small HTTP runtime whose tracing is switched by one byte of a shared page.

#![warn(missing_docs)]
