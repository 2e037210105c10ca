//! Buffers against plain models, and against Node's own where it is installed.

mod convert;
mod encodings;
mod memory;
mod model;
mod node;
