//! The demo server: the work of Node's `http/simple` benchmark.

fn main() {}
