//! The tracebyte agent and its command line.
//!
//! Data flows kernel or runtime → ring → [`target`] → [`sink`] → endpoint or stream.
//! Control flows command line → [`control`] → [`target`] → enable byte → runtime.
//! ARCHITECTURE.md has the whole picture.

#![warn(missing_docs)]

pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod doctor;
pub mod error;
pub mod http;
pub mod profile;
pub mod register;
pub mod room;
pub mod sink;
pub mod sys;
pub mod target;
